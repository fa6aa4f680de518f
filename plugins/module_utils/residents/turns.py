# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which of the instances that share chips is awake; two never are, because the memory is enough for one.

The one whose requests have waited longest is woken: at once where the other one is idle, else when the patience is
over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Sequence

from ..instance.systemd import Unit

# So many seconds without a request make an instance idle: the next one of the same client is on its way before that.
QUIET = 0.5


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
