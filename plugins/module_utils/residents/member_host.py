# SPDX-License-Identifier: GPL-3.0-or-later
"""One of the instances that share chips, and what is known of it."""

import http.client
import threading
import time
from typing import Any, Callable, Optional

from ..common.foreign_json import load_json
from ..common.repeated import Repeated
from ..instance.api_host import Answer, ask
from ..instance.config_file import API_KEY, InstanceError, read_secrets
from ..instance.config_host import listening_in
from ..instance.listener_host import StrangerError
from ..instance.marks import CONFIG_DIR, OPERATOR_HEADER, RUN_DIR
from ..instance.operator_host import shared_token
from ..instance.systemd import Unit
from .status import Status, is_sleeping, parse_status
from .turns import View

# Seconds: of a request for news, between two requests, after one without an answer.
POLL, PAUSE, ABSENT = 20.0, 0.02, 0.5


class CallError(Exception):
    """An instance did not answer; the message is the reason."""


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

    def __init__(self, name: str, news: News, say: Callable[[str], None]) -> None:
        super().__init__(daemon=True, name=name)
        self.instance, self.news, self.left = name, news, False
        self.loop = Repeated(f"The question to {name}", say)
        self.status = Status()
        # When the last answer came; since when there is none.
        self.taken, self.silent = 0.0, time.monotonic()
        self.answers = False
        # Whether vLLM sleeps, and the run of the unit of which that is known.
        self.asleep: Optional[bool] = None
        self.invocation = ""

    def call(self, method: str, path: str, timeout: float) -> Answer:
        """Return an answer. Raises CallError where there is none."""
        for attempt in (1, 2, 3):
            try:
                listening = listening_in(CONFIG_DIR, self.instance)
                if listening is None:
                    raise CallError("it accepts no requests")
                headers = {OPERATOR_HEADER: shared_token(f"{RUN_DIR}/{self.instance}")}
                key = read_key(self.instance)
                headers.update({"Authorization": f"Bearer {key}"} if key else {})
                answer = ask(listening, method, path, timeout, headers=headers)
            except (OSError, InstanceError) as exc:
                raise CallError(f"no answer ({exc or type(exc).__name__})") from exc
            # Another program has removed its token in between.
            if answer.status != http.client.NOT_FOUND or attempt == 3:
                return answer
        raise AssertionError

    def ask_json(self, path: str, timeout: float) -> Any:
        """Return the JSON of an answer. Raises CallError, and ValueError for a body that is none."""
        answer = self.call("GET", path, timeout)
        if answer.status != http.client.OK:
            raise CallError(f"GET {path} answers {answer.status}")
        return load_json(answer.body)

    def run(self) -> None:
        """Ask for news again and again."""
        while not self.left:
            if not self.loop.attempt(self._ask_news):
                # An answer that makes no sense is none.
                self._miss()
            time.sleep(PAUSE if self.answers else ABSENT)

    def _ask_news(self) -> None:
        after = self.status.version if self.answers else -1
        try:
            self.take(self.ask_json(f"/residents?after={after}&within={POLL}", POLL + 10))
        except CallError as exc:
            self._miss()
            if isinstance(exc.__cause__, StrangerError):
                # The loop reports it.
                raise

    def _miss(self) -> None:
        with self.news:
            if self.answers:
                self.silent = time.monotonic()
            self.answers = False

    def ask_status(self) -> None:
        """Ask now. Raises CallError."""
        try:
            self.take(self.ask_json("/residents", 10))
        except ValueError as exc:
            raise CallError(f"GET /residents: {exc}") from exc

    def take(self, document: Any) -> None:
        """Take an answer, unless a newer one is known; ask vLLM itself where the middleware cannot know."""
        status = parse_status(document)
        asleep = status.asleep
        if asleep is None or status.process != self.status.process:
            asleep = is_sleeping(self.ask_json("/is_sleeping", 10))
        with self.news:
            if status.process != self.status.process or status.version >= self.status.version:
                self.status, self.asleep, self.answers, self.taken = status, asleep, True, time.monotonic()

    def view(self, unit: Unit) -> View:
        """Return what is known, with the lock held."""
        # An instance that slept sleeps on, also where it does not answer; another run of the unit has begun awake.
        if self.answers:
            self.invocation = unit.invocation
        elif self.invocation != unit.invocation:
            self.asleep = None
        status = self.status
        running, waiting = (status.running, status.waiting) if self.answers else (0, 0)
        since, ended = self.taken - status.waited, self.taken - status.quiet
        return View(self.instance, unit, self.answers, self.asleep, status.closed, running, waiting, since, ended)


def read_key(name: str) -> str:
    """Return the API key of an instance, empty without one; newer releases of vLLM want it at each endpoint."""
    try:
        with open(f"{CONFIG_DIR}/{name}.secrets", encoding="utf-8") as file:
            return read_secrets(file.read()).get(API_KEY, "")
    except FileNotFoundError:
        return ""
