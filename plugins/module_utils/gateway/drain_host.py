# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain servers of this gateway, return them to service, wait for them and watch them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from ..common.foreign_text import quote_foreign
from ..common.unix_socket_host import PART_SECONDS
from .haproxy_host import GatewayPaths, HaproxyHost, NoAnswerError
from .records_host import OwnersFile
from .servers import (
    DRAINED,
    STATUS,
    Records,
    Selection,
    ServersChange,
    ServersError,
    ServersRequest,
    decide_change,
    describe_faults,
    select_servers,
)
from .state import READY, HaproxyView

# A reload reads the saved states before its worker answers here, so a drain counts only after it has lasted this long.
SETTLE_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0


@dataclass
class ServersOutcome:
    """Result of a change or a dry run: ``view`` and ``records`` after it, ``before`` holds both from before it."""

    names: list[str]
    view: HaproxyView
    records: Records
    change: ServersChange
    changed: bool
    before: tuple[HaproxyView, Records]
    warnings: list[str]
    waited: float = 0.0
    arrivals: int = 0

    def idle(self) -> bool:
        """Return whether no request runs or waits on the servers."""
        return not any(self.view.servers[name].sessions + self.view.servers[name].queued for name in self.names)

    def own_names(self) -> list[str]:
        """Return the servers without those that somebody else holds."""
        return [name for name in self.names if name not in self.change.held]

    def up(self) -> bool:
        """Return whether all own servers are in service."""
        return all(self.view.servers[name].serves for name in self.own_names())


class GatewayServers:
    """The servers of this gateway."""

    def __init__(self, paths: GatewayPaths) -> None:
        self.haproxy = HaproxyHost(paths)
        self.name = self.haproxy.name
        self.owners = OwnersFile(paths.owners_file, self.name)

    def change(self, selection: Selection, request: ServersRequest, check: bool) -> ServersOutcome:
        """Check the request, set, record and save it while holding the gateway's lock. Raises ServersError."""
        read_only = check or request.state == STATUS
        with contextlib.nullcontext() if read_only else self.owners.lock():
            view, records = self.haproxy.view(), self.owners.read()
            selected = select_servers(view, selection, self.name)
            try:
                change = decide_change(view, selected, request, records)
            except ServersError as exc:
                raise ServersError("\n".join(f"{self.name}: {line}" for line in str(exc).splitlines())) from exc
            unsaved = [] if request.state == STATUS else self.haproxy.unsaved_servers(view, selected)
            outcome = ServersOutcome(
                names=selected,
                view=view,
                records=change.records,
                change=change,
                changed=bool(change.changed or unsaved),
                before=(view, records),
                warnings=self.owners.warnings,
                arrivals=self.haproxy.address_arrivals(),
            )
            if not read_only and outcome.changed:
                self._apply(change, request.state == DRAINED)
                outcome.view = self.haproxy.wait_for_view()
            return outcome

    def wait(self, outcome: ServersOutcome, request: ServersRequest, seconds: float) -> None:
        """Wait until drained servers are idle or ready ones are up; a drain that a reload lost is set again.

        Returns after ``seconds`` at the latest. Raises ServersError where HAProxy stays silent.
        """
        began = time.monotonic()
        draining = request.state == DRAINED
        settled = began + (SETTLE_SECONDS if outcome.change.commands and draining else 0)
        pause, unanswered = _FIRST_PAUSE, ""
        # A reload may have come before the first view after the change.
        worker = outcome.before[0].started
        while True:
            now = time.monotonic()
            outcome.waited = now - began
            done = outcome.idle() if draining else outcome.up()
            if not unanswered and now >= settled and (done or outcome.waited >= seconds):
                return
            if unanswered and outcome.waited >= max(seconds, PART_SECONDS):
                raise ServersError(unanswered)
            time.sleep(min(pause, settled - now) if done and now < settled else pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            try:
                if self._update(outcome, request, worker):
                    settled = time.monotonic() + SETTLE_SECONDS
                worker, unanswered = outcome.view.started, ""
            except NoAnswerError as exc:
                # HAProxy is restarting; its new process reads the saved states.
                unanswered = str(exc)

    def watch(self, outcome: ServersOutcome, seconds: float) -> None:
        """Watch servers that are back in service for ``seconds``. Raises ServersError when they answer with errors."""
        began, unanswered = time.monotonic(), ""
        names = [name for name in outcome.names if outcome.view.servers[name].serves]
        # The view from before the change, so that the first request counts.
        first = outcome.before[0]
        while True:
            if outcome.view.started != first.started:
                first = outcome.view
            faults = describe_faults(first, outcome.view, names)
            if faults:
                raise ServersError("\n".join(f"{self.name}: {line}" for line in faults))
            left = seconds - (time.monotonic() - began)
            if left <= 0 and not unanswered:
                return
            if left <= 0:
                raise ServersError(unanswered)
            time.sleep(min(_LONGEST_PAUSE, left))
            try:
                outcome.view, unanswered = self.haproxy.view(), ""
                select_servers(outcome.view, Selection(names), self.name)
            except NoAnswerError as exc:
                # HAProxy is restarting.
                unanswered = str(exc)

    def _update(self, outcome: ServersOutcome, request: ServersRequest, worker: str) -> bool:
        """Read the servers again; return whether a drain that a reload after ``worker`` lost was set again."""
        outcome.view = self.haproxy.view()
        select_servers(outcome.view, Selection(outcome.names), self.name)
        if request.state != DRAINED:
            return False
        own = outcome.own_names()
        lost = [name for name in own if outcome.view.servers[name].state == READY]
        if not lost:
            return False
        records = self.owners.read()
        if outcome.view.started == worker or any(name not in records for name in lost):
            raise ServersError(
                f"{self.name}: {', '.join(lost)} was made ready by another user while it was being drained; "
                "nothing was stopped. Find out who needs it"
            )
        again = self.change(Selection(own), request, False)
        outcome.view, outcome.records = again.view, again.records
        return True

    def _apply(self, change: ServersChange, draining: bool) -> None:
        """Set, record and save. A run that is killed in between leaves a record too many, which counts for nothing."""
        if draining:
            self.owners.write(change.records)
        for command in change.commands:
            answer = self.haproxy.ask(command).strip()
            if answer:
                raise ServersError(f"{self.name}: HAProxy refused '{command}': {quote_foreign(answer)}")
        self.haproxy.save_states()
        if not draining:
            self.owners.write(change.records)
