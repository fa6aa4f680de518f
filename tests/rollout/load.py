# SPDX-License-Identifier: GPL-3.0-or-later
"""A bounded load of chats, plain and streamed by turns, that tells of every request how it ended.

    load.py --url https://gateway:443 --ca ca.crt --key-file alice.key --model NAME --out requests.jsonl

A file of JSON lines says of each request {start, seconds, kind, status, ok, text, error, first_token_s, server}, as
soon as it has ended; error begins with what kind of failure it is: connect, cut, late, status, answer or wrong.
SIGTERM and SIGINT let the requests that run come to their end, then a summary (JSON) is printed. The exit status is 0
where no request failed, 1 where one did, 2 where the options cannot be used.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import signal
import socket
import ssl
import statistics
import sys
import threading
import time
import urllib.parse
from typing import Any, TextIO

PROMPT = "Is the fleet ready? Answer in one sentence."
KINDS = ("plain", "stream")
RETRY = 0.2
MOST_BYTES = 16 * 1024 * 1024


class FailedError(Exception):
    """A request that did not end as it should; the message begins with its kind."""


class Request:
    """One request with its own connection, which has to be over by a deadline."""

    def __init__(self, options: argparse.Namespace, number: int) -> None:
        self.options = options
        self.kind = KINDS[number % 2] if options.kind == "both" else options.kind
        self.row: dict[str, Any] = {
            "start": round(time.time(), 3), "seconds": 0.0, "kind": self.kind, "status": 0, "ok": False, "text": "",
            "error": "", "first_token_s": None, "server": "",
        }  # fmt: skip
        self.began = time.monotonic()
        self.sock: socket.socket | None = None
        self.size = 0
        self.body = self.tail = b""
        self.done = False

    def run(self) -> dict[str, Any]:
        """Return what became of it; whatever happens, something did."""
        connection = self._connection()
        try:
            self._connect(connection)
            self._answer(self._response(connection))
            self._judge()
        except FailedError as exc:
            self.row["error"] = str(exc)
        except Exception as exc:  # what nobody thought of is a failed request, not the end of the load
            self.row["error"] = f"answer: {type(exc).__name__}: {exc}"
        finally:
            with contextlib.suppress(OSError):
                connection.close()
        self.row["seconds"] = round(self._elapsed(), 4)
        self.row["ok"] = not self.row["error"]
        return self.row

    def _elapsed(self) -> float:
        return time.monotonic() - self.began

    def _connection(self) -> http.client.HTTPConnection:
        url, timeout = self.options.address, min(10.0, self.options.timeout)
        if url.scheme == "https":
            return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout, context=self.options.tls)
        return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as exc:
            raise FailedError(f"connect: {exc or type(exc).__name__}") from exc
        # An answer that closes the connection takes the socket away from it.
        self.sock = connection.sock

    def _limit(self) -> None:
        left = self.options.timeout - self._elapsed()
        if left <= 0:
            raise FailedError(f"late: not over after {self.options.timeout:g} s")
        if self.sock is not None:
            self.sock.settimeout(left)

    def _response(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        payload: dict[str, Any] = {
            "model": self.options.model, "messages": [{"role": "user", "content": self.options.prompt}],
            "max_tokens": self.options.max_tokens, "temperature": 0,
        }  # fmt: skip
        if self.kind == "stream":
            payload["stream"] = True
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self.options.key:
            headers["Authorization"] = f"Bearer {self.options.key}"
        path = self.options.address.path.rstrip("/") + "/v1/chat/completions"
        try:
            self._limit()
            connection.request("POST", path, json.dumps(payload).encode(), headers)
            self._limit()
            response = connection.getresponse()
        except socket.timeout as exc:
            raise FailedError(f"late: no answer within {self.options.timeout:g} s") from exc
        except (OSError, http.client.HTTPException) as exc:
            raise FailedError(f"cut: no answer ({type(exc).__name__})") from exc
        self.row["status"] = response.status
        self.row["server"] = response.headers.get("X-Served-By", "")
        return response

    def _answer(self, response: http.client.HTTPResponse) -> None:
        """Read the answer to its end; what a stream holds is read as it comes."""
        stream = self.kind == "stream" and response.status == 200
        while not response.isclosed():
            data = self._read(response)
            if not data:
                break
            self.size += len(data)
            if self.size > MOST_BYTES:
                raise FailedError(f"answer: larger than {MOST_BYTES} bytes")
            if stream:
                self._events(data)
            else:
                self.body += data
        if response.length:
            raise FailedError(f"cut: after {self.size} bytes, {response.length} are missing")
        if response.status != 200:
            raise FailedError(f"status {response.status}: {_error_of(self.body)}")
        if stream and not self.done:
            raise FailedError(f"cut: the stream ended after {self.size} bytes without [DONE]")

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        self._limit()
        try:
            return response.read1(65536)
        except socket.timeout as exc:
            raise FailedError(
                f"late: not over after {self.options.timeout:g} s ({self.size} bytes had arrived)"
            ) from exc
        except (OSError, ValueError, http.client.HTTPException) as exc:
            raise FailedError(f"cut: after {self.size} bytes ({type(exc).__name__})") from exc

    def _events(self, data: bytes) -> None:
        *lines, self.tail = (self.tail + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            text = line[5:].strip()
            if text == b"[DONE]":
                self.done = True
                continue
            self._chunk(text)

    def _chunk(self, text: bytes) -> None:
        try:
            chunk = json.loads(text)
            if "error" in chunk:
                raise FailedError(f"answer: an error in the stream: {_error_of(text)}")
            deltas = [choice.get("delta") or {} for choice in chunk["choices"]]
            content = "".join(delta.get("content") or "" for delta in deltas)
            thought = any(delta.get("reasoning") or delta.get("reasoning_content") for delta in deltas)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise FailedError(f"answer: no chunk of a chat: {text[:200]!r}") from exc
        self.row["text"] += content
        if self.row["first_token_s"] is None and (content or thought):
            self.row["first_token_s"] = round(self._elapsed(), 4)

    def _judge(self) -> None:
        if self.kind == "plain":
            try:
                self.row["text"] = json.loads(self.body)["choices"][0]["message"]["content"] or ""
            except (ValueError, KeyError, TypeError, IndexError) as exc:
                raise FailedError(f"answer: no chat: {self.body[:200]!r}") from exc
        text = self.row["text"]
        if not text.strip():
            raise FailedError("answer: empty")
        if self.options.expect and not any(part in text for part in self.options.expect):
            raise FailedError(f"wrong: {text[:200]!r}")


def _error_of(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:200]
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:200] or "with an empty body"


class Load:
    """Workers that ask one after the other until they are told to stop."""

    def __init__(self, options: argparse.Namespace, out: TextIO) -> None:
        self.options = options
        self.out = out
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._next = 0
        self.rows: list[tuple[str, bool, float, float | None]] = []
        self.texts: dict[str, int] = {}
        self.errors: dict[str, int] = {}

    def run(self) -> dict[str, Any]:
        """Ask until a signal, the time or the number of requests is there; return the summary."""
        began = time.monotonic()
        workers = [threading.Thread(target=self._work, daemon=True) for _number in range(self.options.workers)]
        for worker in workers:
            worker.start()
        end = began + self.options.seconds if self.options.seconds else math.inf
        for worker in workers:
            while worker.is_alive():
                if time.monotonic() >= end:
                    self.stopped.set()
                # In pieces: a thread that waits without end takes no signals.
                worker.join(0.2)
        return self._summary(time.monotonic() - began)

    def _work(self) -> None:
        while not self.stopped.is_set():
            with self._lock:
                number = self._next
                if self.options.requests and number >= self.options.requests:
                    return
                self._next += 1
            row = Request(self.options, number).run()
            self._keep(row)
            # What is refused is refused at once; thousands of times a second would be no bounded load.
            self.stopped.wait(self.options.pause if row["ok"] else max(self.options.pause, RETRY))

    def _keep(self, row: dict[str, Any]) -> None:
        line = json.dumps(row) + "\n"
        with self._lock:
            self.out.write(line)
            self.out.flush()
            self.rows.append((row["kind"], row["ok"], row["seconds"], row["first_token_s"]))
            # Not every answer is one of few.
            if row["text"] in self.texts or len(self.texts) < 100:
                self.texts[row["text"]] = self.texts.get(row["text"], 0) + 1
            kind = row["error"].partition(":")[0]
            if kind:
                self.errors[kind] = self.errors.get(kind, 0) + 1

    def _summary(self, seconds: float) -> dict[str, Any]:
        good = [row for row in self.rows if row[1]]
        return {
            "seconds": round(seconds, 1),
            "requests": len(self.rows),
            "ok": len(good),
            "failed": len(self.rows) - len(good),
            **{kind: sum(row[0] == kind for row in self.rows) for kind in KINDS},
            "errors": self.errors,
            "texts": {text: count for text, count in self.texts.items() if text},
            "request_s": _spread([row[2] for row in good]),
            "first_token_s": _spread([row[3] for row in good if row[3] is not None]),
        }


def _spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    return {"median": round(statistics.median(ordered), 4), "p99": p99, "max": ordered[-1]}


def options_of(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options; ends the program with a sentence where they cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="address of the gateway or of a server, without /v1")
    parser.add_argument("--model", required=True, help="served name of the model")
    parser.add_argument("--out", default="-", help="file for the lines; -: the output, and the summary to stderr")
    parser.add_argument("--ca", help="file with the certificates that are trusted for https")
    parser.add_argument("--key-file", help="file whose first line is the API key")
    parser.add_argument("--workers", type=int, default=4, help="requests at a time")
    parser.add_argument("--kind", choices=[*KINDS, "both"], default="both")
    parser.add_argument("--requests", type=int, default=0, help="stop after so many; 0: never")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many; 0: never")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a worker waits between two requests")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds until a request must be over")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--expect", action="append", default=[], help="text of an answer; given twice, one of them")
    parser.add_argument("--max-tokens", type=int, default=64)
    options = parser.parse_args(words)
    if options.workers < 1 or options.timeout <= 0 or options.pause < 0:
        parser.error("--workers takes 1 or more, --timeout more than 0, --pause 0 or more")
    options.address = urllib.parse.urlsplit(options.url)
    if options.address.scheme not in ("http", "https") or not options.address.hostname:
        parser.error(f"--url {options.url}: expected something like https://gateway:443")
    try:
        options.tls = ssl.create_default_context(cafile=options.ca) if options.address.scheme == "https" else None
        options.key = _first_line(options.key_file) if options.key_file else ""
    except (OSError, ValueError) as exc:
        parser.error(f"--ca or --key-file: {exc}")
    return options


def _first_line(path: str) -> str:
    with open(path, encoding="ascii") as file:
        line = file.readline().strip()
    if not line:
        raise ValueError(f"{path} begins with an empty line, expected a key")
    return line


def main() -> None:
    options = options_of()
    with contextlib.ExitStack() as stack:
        to_output = options.out == "-"
        out = sys.stdout if to_output else stack.enter_context(open(options.out, "a", encoding="utf-8"))
        load = Load(options, out)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_ignored: load.stopped.set())
        summary = load.run()
    print(json.dumps(summary, indent=2), file=sys.stderr if to_output else sys.stdout)
    sys.exit(1 if summary["failed"] else 0)


if __name__ == "__main__":
    main()
