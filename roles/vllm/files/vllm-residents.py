# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which of the instances that share chips is awake; the others sleep (vLLM's sleep mode).

    vllm-residents.py serve GROUP PATIENCE
    vllm-residents.py acquire GROUP NAME SECONDS

``serve`` is the service vllm-residents@GROUP. It asks each instance whose environment has ``RESIDENTS=GROUP`` who waits
there (vllm_residents.py answers), and wakes the one whose requests have waited longest: at once where the other one is
idle, else after PATIENCE seconds. Two are never awake together: the memory of the chips is enough for one.

``acquire`` runs before vLLM starts, because a start needs that memory too. It waits until all others sleep and no other
one starts. The service learns from the unit when the start has ended, so nobody has to give anything back.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import re
import secrets
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

CONFIG, RUN, OWN = Path("/etc/vllm"), Path("/run/vllm"), Path("/run/vllm-residents")
# Seconds: vLLM sleeps or wakes within DEADLINE. A failed call is repeated after RETRY. WITHIN: so long a call waits for
# running requests; then it is repeated.
DEADLINE, RETRY, WITHIN = 120.0, 10.0, 5.0
# Seconds: of a request for news, between two requests, after one without an answer.
POLL, PAUSE, ABSENT = 20.0, 0.02, 0.5
# Seconds between two looks at everything while nothing happens, and while a request waits. UNITS: how long the state of
# the units is good for. NAMES: how often the list of instances is read.
IDLE, BUSY, UNITS, NAMES = 1.0, 0.25, 0.5, 5.0
# Where an instance that listens on all addresses is asked.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
# So many seconds without a request make an instance idle: the next one of the same client is on its way before that.
QUIET = 0.5
# An answer is not longer; the rest of it is not read.
MOST_BYTES = 1 << 20
# A message that still holds is repeated after so many seconds.
REPEAT = 60.0
_TOKEN = re.compile(r"[A-Za-z0-9_=-]{17,190}\Z", re.ASCII)
_GROUP = re.compile(r"(?m)^RESIDENTS=\"?([^\"\n]+?)\"?$")


class CallError(Exception):
    """An instance did not do what it was asked for; the message is the reason."""


@dataclass(frozen=True)
class Unit:
    """The state of an instance's unit, and the id of this run of it."""

    active: str = "inactive"
    sub: str = "dead"
    invocation: str = ""

    @property
    def starts(self) -> bool:
        """Whether vLLM starts: it takes memory, and does not answer yet."""
        return self.active == "activating" and self.sub in ("start", "start-post")

    @property
    def runs(self) -> bool:
        """Whether vLLM may have memory of the chips."""
        return self.starts or self.active in ("active", "reloading", "refreshing", "deactivating")

    @property
    def waits(self) -> bool:
        """Whether the unit is on its way to a start."""
        return self.active == "activating" and not self.sub.startswith("auto-restart")


@dataclass(frozen=True)
class View:
    """What is known of an instance. ``asleep`` is None where nobody knows.

    ``since``: when the oldest of its waiting requests came; ``ended``: when the last of its running ones ended.
    """

    name: str
    unit: Unit
    answers: bool = True
    asleep: bool | None = False
    closed: bool = False
    running: int = 0
    waiting: int = 0
    since: float = 0.0
    ended: float = 0.0

    @property
    def has_chips(self) -> bool:
        """Whether it may have the memory of the chips."""
        return self.unit.runs and self.asleep is not True


@dataclass(frozen=True)
class Action:
    """What is to be done with an instance: ``sleep``, ``wake``, ``open`` (let requests in again) or ``start``."""

    verb: str
    name: str


@dataclass
class Turns:
    """Who may start, who starts now, when the awake one began, and until when nothing is asked of whom."""

    patience: float
    queue: list[str] = field(default_factory=list)
    starting: str = ""
    began: float = 0.0
    resting: dict[str, float] = field(default_factory=dict)

    def decide(self, views: Sequence[View], now: float) -> Action | None:
        """Return what is to be done now, None where nothing is."""
        able = [view.name for view in views if view.answers and now >= self.resting.get(view.name, 0)]
        having = [view for view in views if view.has_chips]
        starter = self.starting or next((view.name for view in having if view.unit.starts), "")
        wanted = starter or (self.queue[0] if self.queue else "")
        if wanted:
            others = [view for view in having if view.name != wanted and not view.unit.starts]
            if not others and not any(view.unit.starts for view in having) and not starter:
                return Action("start", wanted)
            return next((Action("sleep", view.name) for view in others if view.name in able), None)
        if len(having) > 1:
            having = sorted(having, key=lambda view: (view.running, view.name))
            return next((Action("sleep", view.name) for view in having if view.name in able), None)
        # vLLM would answer these requests with an error.
        wrong = [view.name for view in views if view.unit.runs and view.asleep and not view.closed]
        if wrong and wrong[0] in able:
            return Action("sleep", wrong[0])
        asking = [view for view in views if view.unit.runs and view.asleep and view.waiting and view.name in able]
        asking.sort(key=lambda view: view.since)
        if not having:
            return Action("wake", asking[0].name) if asking else None
        return self._share(having[0], asking, now) if having[0].answers else None

    def _share(self, awake: View, asking: Sequence[View], now: float) -> Action | None:
        """Return what is to be done with the only instance that is awake."""
        rests = now < self.resting.get(awake.name, 0)
        if asking and not rests:
            idle = not awake.running and not awake.waiting and now - awake.ended >= QUIET
            # An instance that has just woken has as long as one that waits.
            due = now - max(asking[0].since, self.began) >= self.patience
            return Action("sleep", awake.name) if idle or due or awake.closed else None
        return Action("open", awake.name) if awake.closed and not (rests and awake.asleep is None) else None


def read_names(group: str) -> list[str]:
    """Return the instances of a group."""
    found = []
    for path in sorted(CONFIG.glob("*.env")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            named = _GROUP.search(path.read_text(encoding="utf-8"))
            if named and named[1] == group:
                found.append(path.name[: -len(".env")])
    return found


def read_units(names: Sequence[str]) -> dict[str, Unit]:
    """Return the state of the units of instances. Raises OSError where systemd does not answer."""
    units = [f"vllm@{name}.service" for name in names]
    words = ["systemctl", "show", *units, "--property=Id,ActiveState,SubState,InvocationID"]
    try:
        text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout
    except subprocess.SubprocessError as exc:
        raise OSError(f"systemd does not answer: {exc}") from exc
    found = {}
    for block in text.split("\n\n"):
        lines = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        # Nothing but the whole answer: an unknown instance would count as one without memory.
        unit = Unit(lines["ActiveState"], lines["SubState"], lines.get("InvocationID", "")) if lines else Unit()
        found[lines.get("Id", "")[len("vllm@") : -len(".service")]] = unit
    return {name: found[name] for name in names}


def read_key(name: str) -> str:
    """Return the API key of an instance, empty without one; newer releases of vLLM want it at each endpoint."""
    try:
        text = (CONFIG / f"{name}.secrets").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    found = re.search(r"(?m)^VLLM_API_KEY=(.*)$", text)
    value = found[1].strip() if found else ""
    # As systemd reads it.
    return re.sub(r'\\([\\"$`])', r"\1", value[1:-1]) if value[:1] == '"' else value


def read_token(name: str) -> str:
    """Return the token that the middleware of an instance accepts now; write one where there is none."""
    place = RUN / name / "operator"
    for _attempt in range(5):
        text = token_in(place)
        # Another program's token is used as it is, because that program is calling now.
        if text:
            return text
        if not write_token(place):
            time.sleep(ABSENT)
    raise OSError(f"another program calls the instance, and {place} has no token")


def token_in(place: Path) -> str:
    """Return the token of a file, empty where it has none."""
    try:
        # The directory belongs to vLLM's user: a link is not followed, and a pipe without a writer does not block.
        file = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(file, 200).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    finally:
        os.close(file)
    return text if _TOKEN.match(text) else ""


def write_token(place: Path) -> bool:
    """Write a fresh token; return False where another program holds the lock on the directory to do so."""
    directory = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not token_in(place):
            place.unlink(missing_ok=True)
            # The directory belongs to vLLM's user, so no link there is followed. This program's group reads the file.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(place, flags, 0o640), "w", encoding="utf-8") as file:
                file.write(secrets.token_hex(32) + "\n")
    except BlockingIOError:
        return False
    finally:
        os.close(directory)
    return True


class News:
    """Guards what the threads share, and wakes the main one when something has changed."""

    def __init__(self) -> None:
        self.lock, self.event = threading.RLock(), threading.Event()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_exception: object) -> None:
        self.event.set()
        self.lock.release()


class Member(threading.Thread):
    """An instance, and the thread that keeps what is known of it up to date."""

    def __init__(self, name: str, news: News) -> None:
        super().__init__(daemon=True, name=name)
        self.instance, self.news, self.left = name, news, False
        self.status: dict[str, Any] = {}
        # When the last answer came; since when there is none.
        self.taken, self.silent = 0.0, time.monotonic()
        self.answers = False
        # Whether vLLM sleeps, and the run of the unit of which that is known.
        self.asleep: bool | None = None
        self.invocation = ""

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection to the instance. Raises OSError where it has no address."""
        text = (CONFIG / f"{self.instance}.yaml").read_text(encoding="utf-8")
        found: dict[str, str] = dict(re.findall(r"^(host|port): *['\"]?([^'\"\n]+?)['\"]? *$", text, re.MULTILINE))
        if "port" not in found:
            raise OSError("no port")
        host = found.get("host", "127.0.0.1")
        host = LOOPBACK.get(host, host)
        if not re.search(r"^ssl-certfile:", text, re.MULTILINE):
            return http.client.HTTPConnection(host, int(found["port"]), timeout=timeout)
        # The request stays on the host and uses an address that is not in the certificate.
        context = ssl._create_unverified_context()  # noqa: S323
        return http.client.HTTPSConnection(host, int(found["port"]), timeout=timeout, context=context)

    def call(self, method: str, path: str, timeout: float) -> tuple[int, bytes]:
        """Return status and body of an answer. Raises CallError where there is none."""
        for attempt in (1, 2, 3):
            try:
                with contextlib.closing(self.connect(timeout)) as connection:
                    headers = {"Operator-Token": read_token(self.instance), "Connection": "close"}
                    key = read_key(self.instance)
                    headers.update({"Authorization": f"Bearer {key}"} if key else {})
                    connection.request(method, path, headers=headers)
                    answer = connection.getresponse()
                    body = answer.read(MOST_BYTES)
            except (OSError, ValueError, http.client.HTTPException) as exc:
                raise CallError(f"no answer ({exc or type(exc).__name__})") from exc
            # Another program has removed its token in between.
            if answer.status != http.client.NOT_FOUND or attempt == 3:
                return answer.status, body
        raise AssertionError

    def ask(self, path: str, timeout: float) -> Any:
        """Return the JSON of an answer. Raises CallError."""
        status, body = self.call("GET", path, timeout)
        if status != http.client.OK:
            raise CallError(f"GET {path} answers {status}")
        try:
            return json.loads(body)
        except ValueError as exc:
            raise CallError(f"GET {path} answers no JSON") from exc

    def run(self) -> None:
        """Ask for news again and again."""
        while not self.left:
            after = self.status.get("version", -1) if self.answers else -1
            try:
                self.take(self.ask(f"/residents?after={after}&within={POLL}", POLL + 10))
            except CallError:
                with self.news:
                    if self.answers:
                        self.silent = time.monotonic()
                    self.answers = False
                time.sleep(ABSENT)
            time.sleep(PAUSE)

    def ask_status(self) -> None:
        """Ask now. Raises CallError."""
        self.take(self.ask("/residents", 10))

    def take(self, status: dict[str, Any]) -> None:
        """Take an answer, unless a newer one is known; ask vLLM itself where the middleware cannot know."""
        asleep = status["asleep"]
        if asleep is None or status["process"] != self.status.get("process"):
            asleep = bool(self.ask("/is_sleeping", 10)["is_sleeping"])
        with self.news:
            same = status["process"] == self.status.get("process")
            if same and status["version"] < self.status["version"]:
                return
            self.status, self.asleep, self.answers, self.taken = status, asleep, True, time.monotonic()

    def view(self, unit: Unit) -> View:
        """Return what is known, with the lock held."""
        # An instance that slept sleeps on, also where it does not answer; another run of the unit has begun awake.
        if self.answers:
            self.invocation = unit.invocation
        elif self.invocation != unit.invocation:
            self.asleep = None
        since, ended = (self.taken - self.status.get(key, 0.0) for key in ("waited", "quiet"))
        running, waiting = (self.status.get(key, 0) if self.answers else 0 for key in ("running", "waiting"))
        closed = bool(self.status.get("closed"))
        return View(self.instance, unit, self.answers, self.asleep, closed, running, waiting, since, ended)


class Service:
    """Keeps one instance of a group awake."""

    def __init__(self, group: str, patience: float) -> None:
        self.group, self.turns = group, Turns(patience)
        self.news = News()
        self.members: dict[str, Member] = {}
        self.units: dict[str, Unit] = {}
        self.read_at = self.named_at = 0.0
        self.granted: dict[str, threading.Event] = {}
        self.held = Unit()
        self.told: dict[str, float] = {}

    def say(self, text: str, key: str = "") -> None:
        """Write a line to the journal; one with a key at most once a minute."""
        now = time.monotonic()
        if not key or now - self.told.get(key, -REPEAT) >= REPEAT:
            self.told[key] = now
            print(text, flush=True)

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
                    self.members[name] = Member(name, self.news)
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
        started = unit.active == "active" and unit.invocation == self.held.invocation
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
        except (OSError, KeyError) as exc:
            self.say(f"systemd does not tell the state of the units: {exc}", "systemd")
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
        began, waiting = time.monotonic(), self.members[name].status.get("waiting", 0)
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
            status, body = member.call("POST", path, timeout)
            member.ask_status()
            why = f"it answers {status}: {body[:200].decode(errors='replace').strip()}"
        except CallError as exc:
            status, why = 0, str(exc)
        if status == http.client.CONFLICT:
            running = member.status.get("running", 0)
            self.say(f"{name} has {running} running requests; another one waits for their end", f"{name} runs")
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
        place = OWN / self.group / "socket"
        place.unlink() if place.exists() else None
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen()
            while True:
                connection, _address = listener.accept()
                threading.Thread(target=self.queue, args=(connection,), daemon=True).start()

    def queue(self, connection: socket.socket) -> None:
        """Let one wait for its start."""
        with connection, contextlib.suppress(OSError):
            name = connection.makefile().readline().strip()
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
        version = os.stat(__file__).st_mtime_ns
        while self.turns.starting or os.stat(__file__).st_mtime_ns == version:
            self.news.event.clear()
            if not self.step():
                waits = self.granted or any(member.status.get("waiting") for member in self.members.values())
                self.news.event.wait(BUSY if waits or self.turns.starting else IDLE)


def acquire(group: str, name: str, seconds: float) -> None:
    """Wait until an instance may start. Raises SystemExit when the time is up."""
    until = time.monotonic() + seconds
    print(f"Waiting for the chips of {group}", flush=True)
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(OWN / group / "socket"))
            connection.settimeout(max(0.1, until - time.monotonic()))
            connection.sendall(f"{name}\n".encode())
            if connection.recv(10) == b"go\n":
                return
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))
    # The limit of starts is meant for vLLM's failures.
    subprocess.run(["systemctl", "reset-failed", f"vllm@{name}.service"], check=False)
    raise SystemExit(
        f"The chips of {group} did not become free in {seconds:.0f} s, another attempt follows; what they wait for: "
        f"journalctl -u vllm-residents@{group}"
    )


def main(words: Sequence[str]) -> None:
    """Run the command of the command line."""
    commands: Mapping[tuple[str, int], Any] = {
        ("serve", 2): lambda group, patience: Service(group, float(patience)).run(),
        ("acquire", 3): lambda group, name, seconds: acquire(group, name, float(seconds)),
    }
    command = commands.get((words[0], len(words) - 1)) if words else None
    if command is None:
        raise SystemExit(__doc__)
    command(*words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
