# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines with vLLM's sleep mode on one host, each a process with the role's middleware, and systemd around them.

    python sleeping_engine.py NAME DIRECTORY PORT

The engines share ``chips``: an engine that is awake has a file there. What vLLM or a chip would not survive is a line
in ``faults``: two engines awake, a request to one that sleeps, a sleep under a running request.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

FILES = Path(__file__).resolve().parents[2] / "roles/vllm/files"
HELPER = FILES / "vllm-residents.py"
# Newer releases of vLLM want the key at each endpoint.
KEY = 'k"$\\1'
SYSTEMCTL = """#!/bin/sh
for word in "$@"; do
  case $word in
    vllm@*.service) name=${word#vllm@}; printf 'Id=%s\\n' "$word"; cat "$UNITS/${name%.service}"; echo ;;
  esac
done
"""
COLLECTIONS = FILES.parents[2] / ".collections"
# The program of the host with other places and times.
RUNNER = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.baremetal.inference.plugins.module_utils.residents import (
    member_host, service_host, start_host,
)
top = sys.argv[3]
member_host.CONFIG_DIR = service_host.CONFIG_DIR = top + "/etc"
member_host.RUN_DIR = top + "/run"
service_host.OWN = start_host.OWN = top + "/own"
service_host.RETRY, service_host.DEADLINE, service_host.WITHIN = 1.0, 3.0, 1.0
service_host.NAMES = service_host.REPEAT = 0.5
runpy.run_path(sys.argv[2])["main"](sys.argv[4:])
"""


class SleepingEngine:
    """Answers as vLLM in development mode does."""

    def __init__(self, name, top):
        self.name, self.top = name, top
        self.asleep, self.running = False, 0
        self.take_chips()

    def fault(self, text):
        with open(self.top / "faults", "a", encoding="utf-8") as file:
            file.write(f"{self.name}: {text}\n")

    def take_chips(self):
        (self.top / "chips" / self.name).touch()
        others = [path.name for path in (self.top / "chips").iterdir() if path.name != self.name]
        if others:
            self.fault(f"out of memory, {others} awake")

    def setting(self, name):
        """Return a number that a test has written for this engine."""
        path = self.top / f"{self.name}.{name}"
        return float(path.read_text() or 1) if path.exists() else 0.0

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        path = scope["path"]
        known = dict(scope["headers"]).get(b"authorization") == f"Bearer {KEY}".encode()
        if path in ("/sleep", "/wake_up", "/is_sleeping") and not known:
            await answer(send, b"no key", 401)
        elif path == "/sleep":
            await self.sleep(send)
        elif path == "/wake_up":
            await self.wake(send)
        elif path == "/is_sleeping":
            await answer(send, json.dumps({"is_sleeping": self.asleep}).encode())
        elif path == "/v1/completions":
            await self.complete(receive, send)
        else:
            await answer(send, path.encode())

    async def sleep(self, send):
        if self.setting("sleep-fails"):
            await answer(send, b"no sleep", 500)
            return
        if self.running:
            self.fault(f"put to sleep under {self.running} requests")
        await asyncio.sleep(0.05)
        self.asleep = True
        (self.top / "chips" / self.name).unlink(missing_ok=True)
        await answer(send, b"", 500 if self.setting("sleep-seems-to-fail") else 200)

    async def wake(self, send):
        if self.setting("wake-fails"):
            # It has a part of the memory now, and counts as asleep.
            self.take_chips()
            await answer(send, b"no memory", 500)
            return
        if self.asleep:
            self.take_chips()
            await asyncio.sleep(0.05)
            self.asleep = False
        await answer(send, b"")

    async def complete(self, receive, send):
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        if self.asleep:
            self.fault("a request while it sleeps")
            await answer(send, b"sleeping", 500)
            return
        self.running += 1
        try:
            await asyncio.sleep(self.setting("takes") or 0.02)
        finally:
            self.running -= 1
        if self.asleep:
            self.fault("fell asleep under a request")
        with open(self.top / f"{self.name}.answered", "ab") as file:
            file.write(body + b"\n")
        await answer(send, self.name.encode() + b" " + body)


async def answer(send, body, status=200):
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Host:
    """A host with instances that share chips: their processes, their units, the program that decides."""

    def __init__(self, top, patience=1.0):
        self.top, self.patience = top, patience
        for name in ("etc", "run", "own/chips0", "chips", "units", "bin"):
            (top / name).mkdir(parents=True)
        (top / "bin/systemctl").write_text(SYSTEMCTL)
        (top / "bin/systemctl").chmod(0o755)
        self.ports, self.engines, self.helper, self.log = {}, {}, None, top / "journal"

    def add(self, name):
        """Install an instance."""
        # Instances of the lab have this file alone.
        from tests.fakes.gateways import free_port

        self.ports[name] = free_port()
        (self.top / f"etc/{name}.env").write_text('A="b"\nRESIDENTS="chips0"\n')
        (self.top / f"etc/{name}.yaml").write_text(f"model: /m\nhost: 127.0.0.1\nport: {self.ports[name]}\n")
        (self.top / f"etc/{name}.secrets").write_text('# managed\nVLLM_API_KEY="k\\"\\$\\\\1"\n')
        self.unit(name, "inactive", "dead", "")

    def unit(self, name, active, sub, invocation):
        partial = self.top / "units" / f".{name}"
        partial.write_text(f"ActiveState={active}\nSubState={sub}\nInvocationID={invocation}\n")
        partial.replace(self.top / "units" / name)

    def run_helper(self, *words):
        env = {**os.environ, "PATH": f"{self.top / 'bin'}:{os.environ['PATH']}", "UNITS": str(self.top / "units")}
        command = [sys.executable, "-c", RUNNER, str(COLLECTIONS), str(HELPER), str(self.top), *words]
        with open(self.log, "ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def serve(self):
        """Start the program, as its unit does."""
        self.helper = self.run_helper("serve", "chips0", str(self.patience))

    def kill_helper(self):
        self.helper.kill()
        self.helper.wait()

    def start(self, name):
        """Start an instance, as systemd does; return when it is active."""
        invocation = uuid.uuid4().hex
        self.unit(name, "activating", "start-pre", invocation)
        acquiring = self.run_helper("acquire", "chips0", name, "60")
        if acquiring.wait(70):
            self.unit(name, "activating", "auto-restart", invocation)
            raise AssertionError(self.journal())
        self.unit(name, "activating", "start", invocation)
        (self.top / "run" / name).mkdir(exist_ok=True)
        env = {**os.environ, "RESIDENTS": "chips0", "OPERATOR_GUARD": "1", "RESIDENTS_WAIT": "20"}
        env["AVAILABILITY_DIRECTORY"] = str(self.top / "run" / name)
        command = [sys.executable, __file__, name, str(self.top), str(self.ports[name])]
        self.engines[name] = subprocess.Popen(command, env=env)
        until(lambda: self.get(name, "/health", {"availability-probe": "1"})[0] == 200)
        (self.top / "run" / name / "ready").touch()
        self.unit(name, "active", "running", invocation)

    def crash(self, name):
        """Let an instance die, as by a fault of its engine; its unit waits for its next start."""
        self.engines[name].kill()
        self.engines.pop(name).wait()
        (self.top / "chips" / name).unlink(missing_ok=True)
        for path in (self.top / "run" / name).iterdir():
            path.unlink()
        self.unit(name, "activating", "auto-restart", "")

    def stop(self, name):
        """Stop an instance that is drained."""
        self.crash(name)
        self.unit(name, "inactive", "dead", "")

    def freeze(self, name):
        self.engines[name].send_signal(signal.SIGSTOP)

    def ask(self, name, method, path, body=None, headers=None, timeout=120):
        """Return status, body and headers of an answer; status 0 where there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[name], timeout=timeout)
        with contextlib.closing(connection):
            try:
                connection.request(method, path, body, headers or {})
                found = connection.getresponse()
                return found.status, found.read(), found.headers
            except (OSError, http.client.HTTPException) as exc:
                return 0, repr(exc).encode(), {}

    def get(self, name, path, headers=None):
        return self.ask(name, "GET", path, None, headers)

    def complete(self, name, text="x"):
        return self.ask(name, "POST", "/v1/completions", text)

    def in_background(self, name, text="x"):
        """Send a request from another thread; return the list in which its answer will be."""
        found = []
        threading.Thread(target=lambda: found.append(self.complete(name, text)), daemon=True).start()
        return found

    def set(self, name, setting, value=""):
        path = self.top / f"{name}.{setting}"
        if value is None:
            path.unlink()
        else:
            path.write_text(str(value))

    def awake(self):
        return sorted(path.name for path in (self.top / "chips").iterdir())

    def faults(self):
        path = self.top / "faults"
        return path.read_text() if path.exists() else ""

    def journal(self):
        return self.log.read_text()

    def status(self, name):
        """Return what the middleware of an instance tells the program."""
        place = self.top / "run" / name / "operator"
        # The program writes it before its first call.
        until(place.exists)
        token = place.read_text().strip()
        return json.loads(self.get(name, "/residents", {"operator-token": token})[1])

    def waiting(self, name):
        """Return how many requests of an instance wait."""
        return self.status(name)["waiting"]

    def end(self):
        for process in [*self.engines.values(), *filter(None, [self.helper])]:
            process.kill()
            process.wait()


def until(true, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def main(name, top, port, host="127.0.0.1"):
    import uvicorn

    sys.path.insert(0, str(COLLECTIONS))
    from ansible_collections.baremetal.inference.plugins.module_utils.middleware import availability_host

    availability_host.CACHE_DIR = str(top)
    app = availability_host.Availability(SleepingEngine(name, Path(top)))
    uvicorn.run(app, host=host, port=int(port), log_level="error", lifespan="off", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
