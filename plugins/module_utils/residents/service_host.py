# SPDX-License-Identifier: GPL-3.0-or-later
"""The service vllm-residents@GROUP: keep one of the instances that share chips awake."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import socket
import threading
import time

from ..common.files_host import bytes_of, listed, publish
from ..common.lines_host import write_line
from ..common.program_host import Program
from ..common.repeated import Repeated
from ..instance.marks import CONFIG_DIR
from ..instance.systemd import Unit
from ..instance.systemd_host import read_units
from .member_host import CallError, Member, News
from .turns import Action, Turns

OWN = "/run/vllm-residents"
# Seconds: vLLM sleeps or wakes within DEADLINE. A failed call is repeated after RETRY. WITHIN: so long a call waits for
# running requests; then it is repeated.
DEADLINE, RETRY, WITHIN = 120.0, 10.0, 5.0
# Seconds between two looks at everything while nothing happens, and while a request waits. UNITS: how long the state of
# the units is good for. NAMES: how often the list of instances is read.
IDLE, BUSY, UNITS, NAMES = 1.0, 0.25, 0.5, 5.0
# A message that still holds is repeated after so many seconds.
REPEAT = 60.0
# Seconds between two writings of when each loop last worked.
WRITE_EVERY = 15.0
_GROUP = re.compile(r"(?m)^RESIDENTS=\"?([^\"\n]+?)\"?$")


def read_names(group: str) -> list[str]:
    """Return the instances of a group."""
    found = []
    for name in listed(CONFIG_DIR):
        named = (
            _GROUP.search(bytes_of(f"{CONFIG_DIR}/{name}").decode("utf-8", "replace")) if name[-4:] == ".env" else None
        )
        if named and named[1] == group:
            found.append(name[: -len(".env")])
    return found


class Service:
    """Keeps one instance of a group awake."""

    def __init__(self, group: str, patience: float) -> None:
        self.group, self.turns = group, Turns(patience)
        self.news = News()
        self.members: dict[str, Member] = {}
        self.units: dict[str, Unit] = {}
        self.read_at = self.named_at = self.wrote_at = 0.0
        self.granted: dict[str, threading.Event] = {}
        self.held = Unit()
        self.told: dict[str, float] = {}
        self.loops = {
            name: Repeated(text, self.say) for name, text in (("turns", "The round"), ("starts", "The queue"))
        }

    def say(self, text: str, key: str = "") -> None:
        """Write a line to the journal; one with a key at most once a minute."""
        now = time.monotonic()
        if not key or now - self.told.get(key, -REPEAT) >= REPEAT:
            self.told[key] = now
            write_line(text)

    def refresh(self, names: bool = False) -> None:
        """Read the list of instances and their units, where what is known is too old. Raises OSError."""
        now = time.monotonic()
        if names or now - self.named_at >= NAMES:
            self.named_at = now
            found = read_names(self.group)
            with self.news:
                for name in set(self.members) - set(found):
                    self.members.pop(name).left = True
                for name in [name for name in found if name not in self.members]:
                    self.members[name] = Member(name, self.news, self.say)
                    self.members[name].start()
                self.units = {name: self.units.get(name, Unit()) for name in self.members}
            self.read_at = 0.0
        if self.members and now - self.read_at >= UNITS:
            self.units = read_units(list(self.members))
            self.read_at = now
        self.follow_start()

    def follow_start(self) -> None:
        """Notice the end of a start."""
        name = self.turns.starting
        if not name:
            return
        unit = self.units.get(name, Unit())
        if unit.invocation == self.held.invocation and unit.waits:
            return
        self.turns.starting, self.turns.began = "", time.monotonic()
        started = unit.is_active and unit.invocation == self.held.invocation
        self.say(f"{name} has started" if started else f"{name} did not start; the others may have the chips")

    def step(self) -> bool:
        """Look once, and do what is to be done; return whether that was something."""
        try:
            self.refresh(names=not set(self.granted) <= set(self.members))
            action = self.decide()
            if action and action.verb in ("start", "wake"):
                # Not by a state that was read before the last call.
                self.read_at = 0.0
                self.refresh()
                action = self.decide()
        except OSError as exc:
            self.say(str(exc), "systemd")
            return False
        if action:
            getattr(self, action.verb)(action.name)
        return action is not None

    def decide(self) -> Action | None:
        """Return what is to be done."""
        now = time.monotonic()
        with self.news.lock:
            self.turns.queue = [name for name in self.granted if name in self.members]
            views = [member.view(self.units[name]) for name, member in self.members.items()]
        asked = any(view.waiting for view in views if view.asleep) or self.turns.queue
        for view in views if asked else ():
            silent = now - self.members[view.name].silent
            if view.has_chips and not view.answers and not view.unit.starts and silent >= DEADLINE:
                self.say(
                    f"{view.name} has the chips of {self.group} and has not answered for {silent:.0f} s, so the others "
                    f"wait; restart it: systemctl restart vllm@{view.name}",
                    view.name,
                )
        return self.turns.decide(views, now)

    def sleep(self, name: str) -> None:
        """Put an instance to sleep; one whose requests still run is asked again."""
        began = time.monotonic()
        # Newer releases of vLLM would else end requests that run in the background.
        path = f"/sleep?level=1&mode=wait&within={WITHIN:g}"
        if self.command(name, path, WITHIN + DEADLINE, "does not go to sleep"):
            self.say(f"{name} sleeps after {time.monotonic() - began:.1f} s")

    def wake(self, name: str) -> None:
        """Wake an instance. Where that fails, it is put to sleep again: the next one needs all of the memory."""
        began, waiting = time.monotonic(), self.members[name].status.waiting
        if self.command(name, "/wake_up", DEADLINE, "does not wake up"):
            self.turns.began = time.monotonic()
            self.say(f"{name} is awake after {self.turns.began - began:.1f} s; {waiting} requests waited")
        else:
            self.command(name, "/sleep?level=1", WITHIN + DEADLINE, "does not go to sleep again")

    def open(self, name: str) -> None:
        """Let requests in again."""
        self.command(name, "/wake_up", DEADLINE, "does not accept requests again")

    def command(self, name: str, path: str, timeout: float, failure: str) -> bool:
        """Have an instance do something; return whether it has."""
        member = self.members[name]
        try:
            answer = member.call("POST", path, timeout)
            status, why = answer.status, f"it answers {answer.status}: {answer.text[:200].strip()}"
            member.ask_status()
        except CallError as exc:
            status, why = 0, str(exc)
        if status == http.client.CONFLICT:
            self.say(
                f"{name} has {member.status.running} running requests; another one waits for their end", f"{name} runs"
            )
        elif status != http.client.OK:
            self.turns.resting[name] = time.monotonic() + RETRY
            self.say(
                f"{name} {failure} ({why}); the next attempt is in {RETRY:.0f} s. If that fails too, restart "
                f"it: systemctl restart vllm@{name}"
            )
        return status == http.client.OK

    def start(self, name: str) -> None:
        """Let an instance start."""
        self.turns.starting, self.held = name, self.units[name]
        self.say(f"{name} starts; the others sleep")
        with self.news:
            self.granted.pop(name).set()

    def listen(self) -> None:
        """Accept those who want to start."""
        while True:
            self.loops["starts"].attempt(self._accept)
            time.sleep(IDLE)

    def _accept(self) -> None:
        """Accept them until the socket fails."""
        place = f"{OWN}/{self.group}/socket"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place)
            listener.listen()
            listener.settimeout(WRITE_EVERY)
            while True:
                with contextlib.suppress(socket.timeout):
                    connection, _address = listener.accept()
                    threading.Thread(target=self.queue, args=(connection,), daemon=True).start()
                self.loops["starts"].worked()

    def queue(self, connection: socket.socket) -> None:
        """Let one wait for its start."""
        with connection, contextlib.suppress(OSError, UnicodeDecodeError):
            name = connection.makefile().readline(256).strip()
            granted = threading.Event()
            with self.news:
                self.granted[name] = granted
            # It ends without a word when systemd ends it.
            while not granted.wait(0.2):
                if select.select([connection], [], [], 0)[0]:
                    break
            with self.news:
                if self.granted.get(name) is granted:
                    del self.granted[name]
            if granted.is_set():
                connection.sendall(b"go\n")

    def run(self) -> None:
        """Serve until this program is replaced by a newer one; systemd starts that."""
        threading.Thread(target=self.listen, daemon=True).start()
        program = Program()
        while self.turns.starting or not program.replaced():
            self.loops["turns"].attempt(self._turn)

    def _turn(self) -> None:
        """Look once, and wait for something to happen where there was nothing to do."""
        self.news.event.clear()
        self._write_worked()
        acted = False
        try:
            acted = self.step()
        finally:
            if not acted:
                waits = self.granted or any(member.status.waiting for member in list(self.members.values()))
                self.news.event.wait(BUSY if waits or self.turns.starting else IDLE)

    def _write_worked(self) -> None:
        """Write when each loop last worked; the service of the role health makes metrics of it."""
        now = time.monotonic()
        if now - self.wrote_at >= WRITE_EVERY:
            self.wrote_at = now
            loops = {**self.loops, **{name: member.loop for name, member in self.members.items()}}
            found = {name: loop.worked_at for name, loop in loops.items()}
            publish(f"{OWN}/{self.group}/worked", json.dumps(found), durable=False)
