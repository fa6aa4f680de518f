# SPDX-License-Identifier: GPL-3.0-or-later
"""Fuzzing that can be repeated: seeded cases, what a hostile server or file says, and what no answer to it may do.

The unit tests run a few hundred cases; FUZZ_SECONDS=60 runs each test for a minute, with new seeds. A failure names its
case: FUZZ_CASE=NAME/NUMBER runs that one alone.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
ONLY = os.environ.get("FUZZ_CASE", "")

NASTY_TEXTS = (
    *(
        "",
        " ",
        "\x00",
        "\x1b[31mred",
        "a\r\nb",
        "\u202eevil",
        "²",
        "٣",
        "größe",
        "模型",
        "../../etc/passwd",
        "/etc/passwd",
    ),
    *(
        "-1",
        "0",
        "1",
        "+1",
        "1_0",
        "1e9",
        "0x10",
        "NaN",
        "Infinity",
        "null",
        "true",
        "9" * 19,
        "9" * 5000,
        "x" * 70_000,
    ),
    *(
        "http://[",
        "http://h:99999/",
        "file:///etc/passwd",
        "a.partial",
        ".verified.json",
        "%00",
        "%2e%2e%2f",
        "{{ 7 * 7 }}",
    ),
)
NASTY_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, -(2**63), 10**400, 1.5, float("nan"), float("inf"), b"\xff"),
    *([], {}, [[]], {"": ""}, {1: 2}, [None]),
)


def cases(name: str, count: int) -> Iterator[tuple[str, random.Random]]:
    """Yield cases, each with its label and its own random choices: ``count`` of them, or those of FUZZ_SECONDS."""
    if ONLY:
        if ONLY.rpartition("/")[0] == name:
            yield ONLY, random.Random(ONLY)
        return
    end, number = time.monotonic() + SECONDS, 0
    while number < count or time.monotonic() < end:
        label = f"{name}/{number}"
        yield label, random.Random(label)
        number += 1


@contextlib.contextmanager
def told_apart(label: str) -> Iterator[None]:
    """Name the case in whatever a with block raises."""
    try:
        yield
    except BaseException as exc:
        exc.add_note(f"fuzz case: FUZZ_CASE={label}")
        raise


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what a call returns, or raise what it raises; AssertionError where it does neither in time."""
    ended: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            ended.append((True, call()))
        except BaseException as exc:
            ended.append((False, exc))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert ended, f"it hangs: nothing came of it in {seconds:g} s"
    is_result, found = ended[0]
    if is_result:
        return found
    raise found


def assert_presentable(message: str, most: int = 20_000) -> None:
    """Fail for a message that a terminal would obey, or that nobody can read."""
    assert message, "the error says nothing"
    assert message.isprintable(), f"the message has control characters: {message[:2000]!r}"
    assert len(message) <= most, f"the message has {len(message)} characters: {message[:2000]!r}"


def assert_enough(count: int, least: int, what: str) -> None:
    """Fail where too few of all cases had an outcome: then the test shows nothing of it."""
    assert ONLY or count >= least, f"only {count} cases were {what}, expected {least} or more"


def nasty(choose: random.Random) -> Any:
    """Return a value that a file may hold and no program expects."""
    return copy.deepcopy(choose.choice(NASTY_TEXTS if choose.random() < 0.5 else NASTY_VALUES))


def mutated(choose: random.Random, value: Any) -> Any:
    """Return data with one to three places changed, each place as likely as any other."""
    value = copy.deepcopy(value)
    for _change in range(choose.randint(1, 3)):
        places = list(_places(value))
        if not places or choose.random() < 0.03:
            return nasty(choose)
        _change_place(choose, *choose.choice(places))
    return value


def mutated_text(choose: random.Random, text: str) -> str:
    """Return the text of a tool or a file with one to three changes: words, lines, characters, its end."""
    for _change in range(choose.randint(1, 3)):
        text = _change_text(choose, text)
    return text


def _change_text(choose: random.Random, text: str) -> str:
    kind = choose.choice(("word", "word", "word", "number", "number", "line", "insert", "cut", "nothing"))
    if kind == "cut":
        return text[: choose.randint(0, len(text))]
    if kind == "nothing":
        return choose.choice(("", *NASTY_TEXTS, "[" * 100_000, '{"a":' * 100_000))
    if kind == "insert":
        at = choose.randint(0, len(text))
        return text[:at] + choose.choice(NASTY_TEXTS) + text[at:]
    if kind == "line":
        lines = text.splitlines(keepends=True) or [""]
        at = choose.randrange(len(lines))
        lines[at : at + 1] = choose.choice(([], [lines[at]] * 2, [choose.choice(NASTY_TEXTS)]))
        return "".join(lines)
    found = [match.span() for match in re.finditer(r"\d+" if kind == "number" else r"[^\s,:=<>|\"]+", text)]
    if not found:
        return text
    start, end = choose.choice(found)
    return text[:start] + choose.choice(NASTY_TEXTS) + text[end:]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of nested data with each of its keys."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _change_place(choose: random.Random, container: Any, key: Any) -> None:
    """Replace, extend, remove, double or rename what stands at a place."""
    kind = choose.choice(("replace", "replace", "extend", "remove", "add", "rename"))
    found = container[key]
    if kind == "extend" and isinstance(found, str):
        at = choose.randint(0, len(found))
        container[key] = found[:at] + choose.choice(NASTY_TEXTS) + found[at:]
    elif kind == "remove":
        del container[key]
    elif kind in ("add", "rename") and isinstance(container, dict):
        with contextlib.suppress(TypeError):
            container[nasty(choose)] = container.pop(key) if kind == "rename" else nasty(choose)
    elif kind == "add" and isinstance(container, list):
        container.append(nasty(choose) if choose.random() < 0.5 else copy.deepcopy(found))
    else:
        container[key] = nasty(choose)


class HostileServer:
    """A server on its own port. ``script`` gets the head of each request and yields what happens next.

    Bytes are sent, a number is a pause in seconds, None resets the connection. Its end closes the connection, unless it
    yields True as its last word.
    """

    def __init__(self, script: Callable[[bytes], Iterator[bytes | float | None]]) -> None:
        self._script = script
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> HostileServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        # close alone does not wake the thread in accept. A long run had thousands of them, and no file arrived in time.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(120)
            while self._answer(connection):
                pass

    def _answer(self, connection: socket.socket) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = b""
        while b"\r\n\r\n" not in head:
            received = connection.recv(65536)
            if not received:
                return False
            head += received
            if head.startswith(b"\x16"):
                # The first byte of TLS; servers that speak only plain HTTP say so at once.
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return False
        step: Any = False
        for step in self._script(head):
            if step is None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            if isinstance(step, bytes):
                connection.sendall(step)
            elif step is not True and self._ended.wait(step):
                return False
        return step is True
