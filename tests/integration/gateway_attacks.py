# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody sends to a gateway who wants in: each attack is the bytes of a connection."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading

from tests.integration.gateway_load import CHAT

BODY = json.dumps({"model": "m", "messages": "intruder word", "max_tokens": 3}).encode()
# A request without a key, for where another one ends too early or too late.
INNER = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(BODY), BODY)
NAMED = INNER.replace(b"Host: x", b"Host: x\r\nX-Gateway-Usage: gw1 alice research")
# Two ideas of where a body ends: headers, and what comes after the head.
SMUGGLED = [
    (["Content-Length: 5", "Transfer-Encoding: chunked"], b"0\r\n\r\n"),
    (["Transfer-Encoding: chunked", "Content-Length: 5"], b"0\r\n\r\n"),
    (["Content-Length: 0", "Content-Length: 500"], b""),
    (["Content-Length: 0, 500"], b""),
    (["Content-Length: +0"], b""),
    (["Content-Length: -1"], b""),
    (["Content-Length: 0x0"], b""),
    (["Content-Length: 99999999999999999999999"], b""),
    (["Content-Length : 0"], b""),
    (["Transfer-Encoding: xchunked"], b"0\r\n\r\n"),
    (["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], b"0\r\n\r\n"),
    (["Transfer-Encoding: identity, chunked, identity"], b"0\r\n\r\n"),
    (["Transfer-Encoding:\x0bchunked"], b"0\r\n\r\n"),
    (["Transfer-Encoding\t: chunked"], b"0\r\n\r\n"),
    (["Transfer_Encoding: chunked", "Content-Length: 0"], b"0\r\n\r\n"),
    (["X: y", " Transfer-Encoding: chunked", "Content-Length: 0"], b""),
    (["X: y\nTransfer-Encoding: chunked", "Content-Length: 0"], b"0\r\n\r\n"),
    (["X: y\rContent-Length: 400", "Content-Length: 0"], b""),
    (["Transfer-Encoding: chunked"], b"fffffffffffffffffffff\r\n"),
    (["Transfer-Encoding: chunked"], b"0;x=\n\r\n\r\n"),
    (["Connection: x-gateway-usage, content-length", "Content-Length: 0"], b""),
    (["Expect: 100-continue", "Content-Length: 0"], b""),
    (["Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk", "Content-Length: 0"], b""),
]
WRONG_KEYS = [
    "", "Bearer", "Bearer ", "Bearer \0", "Bearer wrong", "Basic YTpi", "Bearer " + "k" * 100_000, "Bearer |",
    "Bearer \xff\xfe", "Bearer ../clients.map", "Bearer @research", "Bearer " + "0" * 64,
]  # fmt: skip
PATHS = [
    CHAT, f"/{CHAT}", f"{CHAT}/", CHAT.replace("chat", "%63hat"), f"/x/..{CHAT}", f"/.{CHAT}", f"{CHAT}%00", f"{CHAT}#",
    f"{CHAT};x", f"{CHAT}?key=x", f"http://127.0.0.1{CHAT}", f"//127.0.0.1{CHAT}", "/gateway/usage", "/metrics", "*",
]  # fmt: skip


def head(path, lines, version="HTTP/1.1"):
    return "\r\n".join([f"POST {path} {version}", "Host: x", *lines, "", ""]).encode("latin-1")


def without_key(key):
    """Return attacks of somebody whose best key is ``key``: wrong, ended, or somebody's with something added."""
    length = f"Content-Length: {len(BODY)}"
    found = [head(CHAT, [f"Authorization: {value}", length]) + BODY for value in WRONG_KEYS]
    found += [head(path, [f"Authorization: Bearer {key}", length]) + BODY for path in PATHS]
    found += [head(CHAT, [f"Authorization: Bearer {key}", *lines]) + rest + INNER for lines, rest in SMUGGLED]
    found += [
        head(CHAT, ["X-Gateway-Usage: gw1 alice research", length]) + BODY,
        head(CHAT, [f"X-Api-Key: {key}", length], "HTTP/1.0") + BODY,
        head(CHAT, [length], "HTTP/0.9") + BODY,
        b"POST " + CHAT.encode() + b"\r\n\r\n" + BODY,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 40,
        b"\x16\x03\x01" + b"\0" * 200,
        b"\0" * 70_000,
    ]
    return found


def with_key(key):
    """Return attacks of a client with a key of its own, who wants to be another one or to be served uncounted."""
    return [
        head(CHAT, [f"Authorization: Bearer {key}", *lines]) + rest + inner
        for lines, rest in SMUGGLED
        for inner in (INNER, NAMED)
    ]


def odd_bodies():
    """Return bodies that no client should send, and vLLM must be able to get or refuse."""
    model = {"model": "m" * 1_000_000, "messages": "word", "max_tokens": 2}
    texts = [json.dumps({**model, "stream": stream}).encode() for stream in (False, True)]
    return [
        *texts, b"no JSON", b"", b"\0" * 1000, b'{"stream": tru', b"[" * 100_000 + b'"stream"', b'{"model":"\xff\xfe"}',
        json.dumps({"model": "m", "messages": "word", "max_tokens": 1}).encode("utf-16"), b'{"model":{"stream":1}}',
        b'{"messages":"word","max_tokens":1,"model":"a","model":"b"}', b'{"\\u0073tream":true,"max_tokens":1}',
    ]  # fmt: skip


def answers(port, data):
    """Return the statuses of all answers on one connection."""
    text = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        while part := connection.recv(65536):
            text += part
    return [int(status) for status in re.findall(rb"^HTTP/1\.\d (\d{3})", text, re.MULTILINE)]


class Attacks(threading.Thread):
    """Sends attacks until the load ends; ``seen`` has the statuses of each, and ``got_in`` those that were answered."""

    def __init__(self, load, attacks, most):
        super().__init__()
        self.load, self.attacks, self.most = load, attacks, most
        self.seen, self.got_in, self.answered, self.rounds = set(), [], 0, 0

    def run(self):
        while not self.load.stopped.is_set():
            for data in self.attacks():
                _name, port = self.load.port()
                found = answers(port, data)
                self.seen.update(found)
                if found.count(200) > self.most:
                    self.got_in.append((data[:300], found))
                if self.load.stopped.is_set():
                    break
            self.rounds += 1
