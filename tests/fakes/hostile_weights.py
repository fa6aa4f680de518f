# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hostile server of weights answers: a right answer for a file, with anything in it changed."""

from __future__ import annotations

import random
import re
import urllib.parse
from collections.abc import Iterator, Mapping

from tests.fakes.fuzz import NASTY_TEXTS

NUMBERS = (
    "²",
    "\u0663".encode().decode("latin-1"),
    "9" * 19,
    "9" * 5000,
    "-1",
    "+1",
    "1_0",
    "0x10",
    "1e3",
    "NaN",
    "",
    " 7 ",
    "0",
)
DATES = (
    *("Sat, 21 Nov 2026 12:00:00 GMT", "Sat, 21 Nov 99999999999999999999 12:00:00 GMT", "Thu, 99 Foo 0000 99:99:99 X"),
    *("Sat, 21 Nov 2026 12:00:00 +99999999999999", "Sat, 21 Nov 2026 12:00:00 -0000", "21 Nov", "²"),
)
RANGES = tuple(
    text.format(number)
    for number in NUMBERS
    for text in ("bytes {}-9/99", "bytes 0-{}/99", "bytes 0-9/{}", "bytes */{}", "{}", "lines {0}-{0}/{0}")
)
TAGS = ('"tag"', 'W/"tag"', '"other"', "tag", '"', "W/")
# What each header is given, beside what any text may be.
HEADERS = {
    "Content-Length": NUMBERS,
    "Content-Range": RANGES,
    "X-Linked-Size": NUMBERS,
    "Retry-After": (*NUMBERS, *DATES, "0.1", "1", "601"),
    "Date": DATES,
    "ETag": TAGS,
    "Last-Modified": DATES,
    "Location": ("/", "//", "http://[", "http://127.0.0.1:99999/", "http://a..b/", "file:///etc/passwd", "ftp://h/x"),
    "Transfer-Encoding": ("chunked", "gzip", "identity", "chunked, chunked"),
    "Connection": ("close", "keep-alive", "upgrade"),
    "Content-Encoding": ("gzip", "br"),
}
# The statuses with which a header counts.
STATUS_OF = {"Retry-After": ("429", "503"), "X-Linked-Size": ("302", "307"), "Location": ("301", "308")}
STATUSES = (
    *("200", "206", "100", "101", "204", "301", "302", "304", "307", "400", "401", "403", "404", "405", "408", "416"),
    *("429", "500", "501", "503", "599", "999", "0", "-1", "abc", "²00", ""),
)


def answer(
    choose: random.Random, head: bytes, files: Mapping[str, bytes], elsewhere: str
) -> Iterator[bytes | float | None]:
    """Yield the steps of an answer to one request; ``elsewhere`` is an address that serves the same paths."""
    words = head.split(b"\r\n", 1)[0].split()
    method, path = words[0].decode("latin-1"), urllib.parse.unquote(words[1].decode("latin-1"))
    content = files.get(path, b"")
    wanted = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d*)", head)
    first = int(wanted[1]) if wanted else 0
    end = min(int(wanted[2]) + 1, len(content)) if wanted and wanted[2] else len(content)
    body = content[first:end]
    status = "206" if wanted else "200"
    headers = [("Content-Length", str(len(body))), ("Date", DATES[0])]
    if wanted:
        headers.append(("Content-Range", f"bytes {first}-{end - 1}/{len(content)}"))
    if choose.random() < 0.2:
        status = choose.choice(STATUSES)
    if choose.random() < 0.15:
        status, path = "302", urllib.parse.quote(path)
        headers.append(("Location", choose.choice((elsewhere + path, path, "//" + "x" * 300, *NASTY_TEXTS))))
    for _change in range(choose.choice((0, 0, 1, 1, 2, 4))):
        name = choose.choice(tuple(HEADERS))
        headers = _changed(choose, headers, name)
        if name in STATUS_OF and choose.random() < 0.5:
            status = choose.choice(STATUS_OF[name])
    if choose.random() < 0.25:
        body = _other_body(choose, body)
    if choose.random() < 0.15:
        headers.append(("Transfer-Encoding", "chunked"))
        body = _chunked(choose, body)
    ending = choose.choice(("\r\n",) * 9 + ("\n", "\r", "\r\n "))
    version = choose.choice(("HTTP/1.1",) * 9 + ("HTTP/1.0", "HTTP/2", "ICY", "HTTP/9999999999999", ""))
    reason = choose.choice(("OK",) * 9 + NASTY_TEXTS)
    lines = [f"{version} {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    text = ending.join((*lines, "", "")).encode("latin-1", "replace")
    if choose.random() < 0.05:
        text = b"HTTP/1.1 100 Continue\r\n\r\n" * choose.choice((1, 20, 5000)) + text
    yield from _timed(choose, text + (body if method == "GET" else b""))
    if choose.random() < 0.6:
        yield True


def _changed(choose: random.Random, headers: list[tuple[str, str]], name: str) -> list[tuple[str, str]]:
    """Return headers with one of them set, doubled, removed, or hidden among many."""
    text = choose.choice(HEADERS[name] if choose.random() < 0.8 else NASTY_TEXTS)
    kind = choose.choice(("set", "set", "set", "set", "add", "remove", "many"))
    if kind == "many":
        return headers + [(f"X-{number}", "x") for number in range(choose.choice((20, 150)))]
    kept = headers if kind == "add" else [entry for entry in headers if entry[0] != name]
    return kept if kind == "remove" else [*kept, (name, text)]


def _other_body(choose: random.Random, body: bytes) -> bytes:
    kind = choose.choice(("shorter", "longer", "other", "none"))
    if kind == "shorter":
        return body[: choose.randint(0, len(body))]
    if kind == "longer":
        return body + b"x" * choose.choice((1, 5000))
    return choose.randbytes(len(body)) if kind == "other" else b""


def _chunked(choose: random.Random, body: bytes) -> bytes:
    sizes = (f"{len(body):x}",) * 6 + ("-5", "0", "zz", "²", "f" * 17, "f" * 5000, "", "5;x=" + "y" * 70_000)
    end = choose.choice((b"0\r\n\r\n",) * 6 + (b"", b"0\r\n", b"0\r\n" + b"X: y\r\n" * 5000 + b"\r\n", b"-1\r\n\r\n"))
    return choose.choice(sizes).encode("latin-1", "replace") + b"\r\n" + body + b"\r\n" + end


def _timed(choose: random.Random, content: bytes) -> Iterator[bytes | float | None]:
    """Yield the bytes at once, in pieces, cut off, or too slowly."""
    kind = choose.random()
    if kind < 0.7:
        yield content
    elif kind < 0.8:
        place = choose.randint(0, len(content))
        yield from (content[:place], 0.01, content[place:])
    elif kind < 0.9:
        yield content[: choose.randint(0, len(content))]
        if choose.random() < 0.5:
            yield None
    elif kind < 0.92:
        yield content[: choose.randint(0, len(content))]
        yield 60.0
    elif kind < 0.98:
        yield content
    else:
        for place in range(len(content)):
            yield content[place : place + 1]
            yield 0.05
