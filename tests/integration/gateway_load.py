# SPDX-License-Identifier: GPL-3.0-or-later
"""Constant load on two gateways: engines that are processes of their own, and clients that notice every failure."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

from tests.fakes.gateways import HANGS, TOP, free_port, until

CHAT = "/v1/chat/completions"
# The ends of streams, by path.
LAST = {CHAT: b"[DONE]", "/v1/completions": b"[DONE]", "/v1/messages": b"message_stop", "/v1/responses": b".completed"}
# A clock that a test can set: time.time() of a program, and the seconds in a file more.
CLOCK = """
import os, time
real = time.time
def jumped():
    try:
        with open(os.environ["CLOCK"]) as file:
            return real() + float(file.read())
    except (OSError, ValueError):
        return real()
time.time = jumped
"""


class Clock:
    """The clock of one program; ``environ`` is what the program is started with."""

    def __init__(self, directory):
        directory.mkdir(parents=True)
        (directory / "sitecustomize.py").write_text(CLOCK)
        self.file = directory / "seconds"
        path = f"{directory}:{TOP / '.collections'}"
        self.environ = {**os.environ, "PYTHONPATH": path, "CLOCK": str(self.file)}

    def jump(self, seconds):
        aside = self.file.with_suffix(".new")
        aside.write_text(str(seconds))
        aside.replace(self.file)


class Instance:
    """An engine with the role's middleware; ``ledger`` is what it answered, as it counts itself."""

    def __init__(self, directory):
        self.run, self.port, self.ledger = directory / "run", free_port(), []
        self.clock, self.process, self.reader = Clock(directory / "clock"), None, None

    def start(self):
        command = [sys.executable, "-m", "tests.fakes.counted_engine", str(self.run), str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TOP, env=self.clock.environ, text=True)
        self.reader = threading.Thread(target=self._read, args=(self.process.stdout,))
        self.reader.start()
        until(lambda: listens(self.port))

    def _read(self, lines):
        for line in lines:
            with contextlib.suppress(ValueError):
                self.ledger.append(json.loads(line))

    def end(self):
        """End as a crash does."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait(HANGS)
        self.reader.join()


@contextlib.contextmanager
def instances(directory, number):
    found = [Instance(directory / f"engine{n}") for n in range(number)]
    try:
        for each in found:
            each.start()
        yield found
    finally:
        for each in found:
            each.end()


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Load:
    """What the clients share: the gateways that they use, what died when, and what failed."""

    def __init__(self, gateways, seconds_between=0.0):
        self.gateways, self.alive = gateways, list(gateways)
        self.pause = seconds_between
        self.stopped, self.clients = threading.Event(), []
        self.deaths, self.failures, self.lost = [], [], 0

    def dies(self, name):
        """Tell that a gateway or an engine is about to die."""
        self.deaths.append((name, time.monotonic()))
        with contextlib.suppress(ValueError):
            self.alive.remove(name)

    def excused(self, name, began):
        """Return whether a request at a gateway can have been lost with it, or with an engine."""
        return any(dead in (name, "engine") and at >= began - 1 for dead, at in self.deaths)

    def fails(self, client, name, began, why):
        if self.excused(name, began):
            self.lost += 1
        else:
            self.failures.append(f"{client} at {name} after {time.monotonic() - began:.2f} s: {why}")

    def port(self):
        name = random.choice(self.alive)
        return name, self.gateways[name].port

    @property
    def answered(self):
        return sum(client.answered for client in self.clients)

    @contextlib.contextmanager
    def running(self, clients):
        self.clients = clients
        for each in clients:
            each.start()
        try:
            yield self
        finally:
            self.stopped.set()
            for each in clients:
                each.join()


class Requests(threading.Thread):
    """A client that asks without a pause; ``prompt`` and ``completion`` are the tokens of what was answered."""

    def __init__(self, load, name, key, seed=0):
        super().__init__(name=name)
        self.load, self.key, self.chance = load, key, random.Random(seed)
        self.answered = self.prompt = self.completion = 0

    def run(self):
        while not self.load.stopped.is_set():
            (gateway, port), began = self.load.port(), time.monotonic()
            try:
                why = self.ask(port)
            except (OSError, http.client.HTTPException) as exc:
                why = f"{type(exc).__name__}: {exc}"
            if why:
                self.load.fails(self.name, gateway, began, why)
            time.sleep(self.load.pause)

    def send(self, port, path, body, more=()):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS)
        for level, option, value in more:
            connection.connect()
            connection.sock.setsockopt(level, option, value)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection.request("POST", path, body, headers)
        return connection, connection.getresponse()

    def ask(self, port):
        """Send a request of one of all kinds; return what is wrong with the answer."""
        path, stream = self.chance.choice(list(LAST)), self.chance.random() < 0.5
        prompt, tokens = self.chance.randint(0, 6), self.chance.randint(1, 9)
        body = {"model": f"m{tokens % 3}", "messages": "word " * prompt, "stream": stream, "pause": 0.002}
        body.update({"max_tokens": tokens, "max_output_tokens": tokens})
        connection, answer = self.send(port, path, json.dumps(body))
        with contextlib.closing(connection):
            text = answer.read()
            if answer.status != 200 or (stream and LAST[path] not in text):
                return f"{path} stream={stream}: {answer.status} {text[-200:]}"
        self.answered += 1
        self.prompt += prompt
        self.completion += tokens
        return ""


class BreakOff(Requests):
    """Breaks streams off after some hundred tokens."""

    def ask(self, port):
        body = {"model": "m", "messages": "word", "stream": True, "max_tokens": 10_000, "pause": 0.001}
        connection, answer = self.send(port, CHAT, json.dumps(body))
        with contextlib.closing(connection):
            most, seen = self.chance.randint(300, 500), 0
            while answer.status == 200 and seen < most:
                text = answer.read1(65536)
                if not text:
                    return f"ended after {seen} tokens"
                seen += text.count(b"made")
            self.answered += 1
            return "" if answer.status == 200 else f"{answer.status} {answer.read()[-200:]}"


class ReadSlowly(Requests):
    """Reads a long stream slower than it is made."""

    TOKENS = 2000

    def ask(self, port):
        body = {"model": "m", "messages": "word", "stream": True, "max_tokens": self.TOKENS, "pause": 0}
        small = (socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection, answer = self.send(port, CHAT, json.dumps(body), [small])
        text = b""
        with contextlib.closing(connection):
            while part := answer.read(4096):
                text += part
                time.sleep(0.02)
        if answer.status != 200 or text.count(b"made") != self.TOKENS or b"[DONE]" not in text:
            return f"{answer.status}, {text.count(b'made')} tokens"
        self.answered += 1
        self.prompt += 1
        self.completion += self.TOKENS
        return ""
