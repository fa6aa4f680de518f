# SPDX-License-Identifier: GPL-3.0-or-later
"""The next order for a host, from what Ironic and its BMC show: a run can begin, or go on, in every state.

next_step() writes a disk; removal.py has the steps that remove a host, cycle.py those of a power
cycle.

Pure: the caller carries orders out. A write is ordered once in a run; a second time only after a power cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

from ...module_utils.common.foreign_text import quote_foreign
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from .ironic import HANDED_OVER

# The phases in their order, each with its deadline in seconds. A server with eight chips tests itself for ten minutes
# at each start.
PHASES: Mapping[str, int] = {
    "enroll": 300,
    "prepare": 300,
    "order": 600,
    "ramdisk": 1800,
    "write": 1800,
    "boot": 1800,
    "erase": 300,
    "stop": 300,
    "wipe": 1800,
    "power_off": 300,
    "off": 60,
    "power_on": 300,
}

# A BMC that answers nothing for this long has failed, and a server without power for this long was cut off (seconds).
SILENCE = 60
CUT = 60

# What a step asks for.
CREATE, DESCRIBE_AND_DEPLOY, MANAGE, PROVIDE = "create", "deploy", "manage", "provide"
ABORT, UNDEPLOY, WAIT, CHECK, FAIL = "abort", "undeploy", "wait", "check", "fail"
STOP, WIPE, POWER_OFF, POWER_ON, RENEW, DONE = "stop", "wipe", "power off", "power on", "renew", "done"

UNDER_WAY = ("deploying", "wait call-back")
# Ironic waits for an agent, and takes an abort.
WAITS_FOR_AGENT = ("wait call-back", "clean wait")

# Characters of the beginning, and of the end, of an error of Ironic.
MOST_ERROR = 250


class DeadlineError(ValueError):
    """A deadline is invalid; the message is the whole sentence."""


@dataclass(frozen=True)
class Node:
    """A node as Ironic shows it. ``order`` is the name of the order that it was last given.

    ``handed_over`` is whether a run has begun to forget it, ``maintenance`` whether anybody else has set it aside.
    """

    state: str
    last_error: str = ""
    maintenance: bool = False
    handed_over: bool = False
    step: str = ""
    order: str = ""
    power: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Node:
        """Return the node of an answer; a field of another kind counts as empty."""
        step, extra = data.get("deploy_step"), data.get("extra")
        aside, own = data.get("maintenance") is True, data.get("maintenance_reason") == HANDED_OVER
        return cls(
            state=_text(data.get("provision_state")),
            last_error=_text(data.get("last_error")),
            maintenance=aside and not own,
            handed_over=aside and own,
            step=_text(step.get("step")) if isinstance(step, Mapping) else "",
            order=_text(extra.get("order")) if isinstance(extra, Mapping) else "",
            power=_text(data.get("power_state")),
        )


@dataclass
class Progress:
    """What a run has done for a host so far. Times are seconds of one clock.

    ``order`` is the order that the record knows, ``expected`` whether the inventory still describes it. ``refused`` is
    why Ironic did not take the last step, empty if it did.
    """

    released: bool = False
    order: str = ""
    expected: bool = True
    phase: str = ""
    since: float = 0.0
    managed: int = 0
    deploys: int = 0
    cuts: int = 0
    erased: bool = False
    stops: int = 0
    wipes: int = 0
    starts: int = 0
    given_up: str = ""
    refused: str = ""
    proved: bool = False
    silent_since: float | None = None
    off_since: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def enter(self, phase: str, now: float) -> bool:
        """Note the phase of a host; return whether it is another one."""
        if phase == self.phase:
            return False
        if self.phase:
            self.seconds[self.phase] = round(self.seconds.get(self.phase, 0.0) + now - self.since, 1)
        self.phase, self.since = phase, now
        return True


@dataclass(frozen=True)
class Step:
    """What to do next, in which phase; ``reason`` is the sentence of a failure or of an abort.

    ``cut`` says that an abort is for a server without power: it is written a second time.
    """

    do: str
    phase: str
    reason: str = ""
    cut: bool = False


def read_deadlines(own: Any) -> dict[str, float]:
    """Return the deadline of each phase. Raises DeadlineError."""
    deadlines: dict[str, float] = dict(PHASES)
    if not isinstance(own, Mapping):
        raise DeadlineError(f"provision_deadlines: found {show_value(own)}, expected a mapping of phases to seconds")
    for phase, value in own.items():
        if phase not in PHASES:
            raise DeadlineError(f"provision_deadlines: there is no phase {phase!r}; {nearest(str(phase), PHASES)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 86400:
            raise DeadlineError(
                f"provision_deadlines.{phase}: found {show_value(value)}, expected seconds from 1 to 86400"
            )
        deadlines[phase] = float(value)
    return deadlines


def next_step(node: Node | None, progress: Progress, now: float, deadlines: Mapping[str, float]) -> Step:
    """Return the next step of a host whose disk is written."""
    return bounded_step(_by_state, node, progress, now, deadlines)


def bounded_step(
    decide: Callable[[Node | None, Progress], Step],
    node: Node | None,
    progress: Progress,
    now: float,
    deadlines: Mapping[str, float],
) -> Step:
    """Return the step that ``decide`` chooses, unless its phase is over time, or the BMC or the server fell silent."""
    step = decide(node, progress)
    if node is not None and node.handed_over and step.do not in (CHECK, DONE):  # those forget it by themselves
        step = Step(RENEW, "enroll")
    waits = node is not None and node.state in WAITS_FOR_AGENT and not node.handed_over
    if step.do in (FAIL, CHECK) or step.phase in ("boot", "erase"):
        return _in_time(step, waits, progress, now, deadlines)
    if progress.silent_since is not None and now - progress.silent_since >= SILENCE:
        return Step(FAIL, step.phase, f"the BMC has not answered for {SILENCE} s")
    if waits and _is_cut(progress, now):
        step = Step(ABORT, step.phase, f"the server lost its power in the phase {step.phase}", cut=True)
    return _in_time(step, waits, progress, now, deadlines)


def _in_time(step: Step, waits: bool, progress: Progress, now: float, deadlines: Mapping[str, float]) -> Step:
    if step.do == FAIL:
        return step
    limit = deadlines[step.phase]
    if step.phase != progress.phase or now - progress.since < limit:
        return step
    reason = f"the phase {step.phase} has taken longer than {limit:g} s"
    if progress.refused:
        reason += f": {progress.refused}"
    if waits and now - progress.since < limit + SILENCE:  # an abort that Ironic has not taken by then fails
        return Step(ABORT, step.phase, reason)
    return Step(FAIL, step.phase, reason)


def _is_cut(progress: Progress, now: float) -> bool:
    return progress.off_since is not None and now - progress.off_since >= CUT


def _by_state(node: Node | None, progress: Progress) -> Step:
    if node is None:
        return Step(CREATE, "enroll")
    if node.maintenance:
        return in_maintenance(node, progress)
    if node.state in ("enroll", "verifying"):
        return enroll_step(node, progress)
    if node.state == "manageable":
        return Step(PROVIDE, "prepare")
    if node.state in ("available", "deploy failed"):
        return _deploy(node, progress)
    if node.state in UNDER_WAY:
        return _attach(node, progress)
    if node.state == "active":
        return _active(node, progress)
    if node.state == "deleting":
        return Step(WAIT, "erase")
    return Step(
        FAIL, progress.phase or "enroll", f"Ironic has the node in the state {quote_foreign(node.state)!r}"
        f"{because(node)}; nothing is done about it"
    )  # fmt: skip


def in_maintenance(node: Node, progress: Progress) -> Step:
    """Return the failure of a node that Ironic has set aside."""
    reason = f"Ironic has the node in maintenance{because(node)}; look at it first"
    return Step(FAIL, progress.phase or "enroll", reason)


def enroll_step(node: Node, progress: Progress) -> Step:
    """Return the step of a node that Ironic does not manage yet."""
    if node.state == "verifying":
        return Step(WAIT, "enroll")
    if progress.managed:
        # Each attempt of Ironic shows the BMC its account twice, and BMCs lock accounts.
        return Step(FAIL, "enroll", f"Ironic cannot manage the server{because(node)}")
    return Step(MANAGE, "enroll")


def _deploy(node: Node, progress: Progress) -> Step:
    if progress.given_up:
        return Step(FAIL, progress.phase, progress.given_up)
    if progress.deploys and progress.deploys > min(progress.cuts, 1):
        return Step(FAIL, progress.phase, f"Ironic could not write the disk{because(node)}")
    return Step(DESCRIBE_AND_DEPLOY, "order")


def _attach(node: Node, progress: Progress) -> Step:
    """Continue an order that this run, or one before it, has given."""
    phase = "order" if node.state == "deploying" and not node.step else _phase_of(node)
    if not progress.order or node.order != progress.order:
        return Step(
            FAIL, phase, "Ironic carries out an order that this inventory's record does not know; wait until it ends, "
            "or abort it, then run again"
        )  # fmt: skip
    if not progress.expected:
        return Step(
            FAIL, phase, "Ironic carries out an order from before the inventory changed; wait until it ends, or abort "
            "it, then run again"
        )  # fmt: skip
    return Step(WAIT, phase)


def _phase_of(node: Node) -> str:
    """Return the phase of a deployment under way by the step that Ironic shows."""
    if node.step in ("", "deploy"):
        return "ramdisk"
    return "write"


def _active(node: Node, progress: Progress) -> Step:
    """A written disk: only a released host is written again, and only once in a run."""
    if progress.released and not progress.deploys and not progress.erased and node.order != progress.order:
        return Step(UNDEPLOY, "erase")
    if not progress.order or node.order != progress.order:
        return Step(
            FAIL, "boot", "Ironic has written the disk for an order that this inventory's record does not know; to "
            "write it again: -e provision_release=HOST"
        )  # fmt: skip
    return Step(CHECK, "boot")


def because(node: Node) -> str:
    """Return the error of a node as the end of a sentence, empty where it has none."""
    text = node.last_error
    if len(text) > 2 * MOST_ERROR:  # the BMC's own words come last
        text = f"{text[:MOST_ERROR]} ... {text[-MOST_ERROR:]}"
    return f": {quote_foreign(text, 3 * MOST_ERROR)}" if text else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
