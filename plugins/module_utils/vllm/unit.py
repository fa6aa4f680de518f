# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a systemd unit, whether it can still start, and the journal lines with the reason if not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, List, Mapping, Sequence, Tuple

from ..instance.systemd import parse_properties

# Runs a command given as words and returns its exit status, output and error output.
Runner = Callable[[List[str]], Tuple[int, str, str]]

_PROPERTIES = (
    "LoadState,ActiveState,SubState,Result,NRestarts,ExecMainCode,ExecMainStatus,MainPID,InvocationID,Job,"
    "InactiveExitTimestampMonotonic"
)
# vLLM prints the traceback of its engine, then that of the API server: the cause stands far above the end.
_READ = 500
# Of earlier runs, only the last lines of systemd matter.
_READ_HISTORY = 20
_LONGEST = 500


class UnitError(Exception):
    """systemd could not be asked; the message is the whole sentence."""


@dataclass(frozen=True)
class UnitState:
    """A unit as ``systemctl show`` describes it.

    job is set if systemd will still start or stop it. began is when its last start began, on the monotonic clock.
    """

    load: str
    active: str
    sub: str
    result: str
    restarts: int
    code: int
    status: int
    pid: int
    invocation: str
    job: bool
    began: float = 0.0

    def __str__(self) -> str:
        exited = ""
        if self.code:
            # The codes are those of waitid(2): 1 is an exit, 2 and 3 are signals.
            how = "exit status" if self.code == 1 else "signal"
            exited = f", {how} {self.status}"
        times = "restart" if self.restarts == 1 else "restarts"
        return f"{self.active} ({self.sub}), result {self.result}{exited}, {self.restarts} {times}"


class Unit:
    """One unit of this host."""

    def __init__(self, name: str, run: Runner) -> None:
        self.name = name
        self._run = run

    def state(self) -> UnitState:
        """Return the present state of the unit; raises UnitError if systemd does not answer."""
        rc, out, err = self._run(["systemctl", "show", "--no-pager", f"--property={_PROPERTIES}", "--", self.name])
        if rc:
            raise UnitError(f"systemctl show {self.name}: {(err or out).strip()}")
        return parse_show(out)

    def journal(self, invocation: str) -> list[str]:
        """Return the last lines that the unit and systemd wrote about the invocation, oldest first.

        Without an invocation, or if it wrote nothing, the last lines about the unit in general: systemd reports there a
        start that it refused (an Assert or a Condition of the unit was not met).
        """
        # The last lines of a process matter most, and may not have been written yet.
        self._run(["journalctl", "--sync"])
        # systemd's own lines about an invocation carry the field without the underscore.
        matches = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"] if invocation else []
        lines = self._journal(_READ, matches)
        return lines or self._journal(_READ_HISTORY, [])

    def _journal(self, most: int, matches: list[str]) -> list[str]:
        options = ["--no-pager", "--quiet", "--output=cat", f"--lines={most}", f"--unit={self.name}"]
        rc, out, err = self._run(["journalctl", *options, *matches])
        if rc:
            return [f"journalctl: {err.strip()}"]
        return [line.rstrip() for line in out.splitlines() if line.strip()]


def parse_show(text: str) -> UnitState:
    """Return the state in the output of ``systemctl show --property=...``; raises UnitError without an ActiveState."""
    found = parse_properties(text)
    if "ActiveState" not in found:
        raise UnitError(f"systemctl show: expected a line ActiveState=, found {text.strip()[:200]!r}")

    def number(name: str) -> int:
        value = found.get(name, "")
        return int(value) if value.isascii() and value.isdigit() else 0

    return UnitState(
        load=found.get("LoadState", ""),
        active=found["ActiveState"],
        sub=found.get("SubState", ""),
        result=found.get("Result", ""),
        restarts=number("NRestarts"),
        code=number("ExecMainCode"),
        status=number("ExecMainStatus"),
        pid=number("MainPID"),
        invocation=found.get("InvocationID", ""),
        job=number("Job") > 0,
        began=number("InactiveExitTimestampMonotonic") / 1e6,
    )


def is_up(state: UnitState) -> bool:
    """Return whether the unit runs or is starting."""
    return state.active in ("active", "activating", "reloading") and state.sub != "auto-restart"


def explain_failure(first: UnitState, now: UnitState) -> str:
    """Return why the unit will not answer, as a clause that follows its name; empty while it may still start.

    first is the state when the wait began: earlier restarts do not count, a new one means that it died during the wait.
    """
    if now.load != "loaded" and not is_up(now):
        return _not_loaded(now)
    if now.active == "deactivating" and now.job:
        # It is being restarted while it was starting; how that start ended no longer matters.
        return ""
    if now.active == "failed" or now.result != "success":
        return f"has failed: {_manner(now)}"
    # systemd does not count status 0 as a failure, but a server that ends by itself has failed.
    if now.sub == "auto-restart":
        return f"ended by itself: {_manner(now)}"
    if now.active == "inactive" and not now.job:
        return "is not started"
    if now.restarts > first.restarts:
        return "died and was restarted by systemd while this run waited for it"
    return ""


def explain_lost(state: UnitState) -> str:
    """Return why systemd would not start a running unit again, as a clause that follows its name; empty if it would."""
    if state.load == "loaded" or not is_up(state):
        return ""
    return f"runs but {_not_loaded(state)}, so systemd will not start it again after it stops"


def _not_loaded(state: UnitState) -> str:
    return {
        "not-found": "does not exist on this host",
        "masked": "is masked",
    }.get(state.load, f"cannot be loaded by systemd (LoadState={state.load})")


def _manner(state: UnitState) -> str:
    """Return how the main process ended, from systemd's result and the exit status."""
    if state.result == "oom-kill":
        return "the kernel killed one of its processes because memory ran out (oom-kill)"
    if state.result == "start-limit-hit":
        return "it died too often in a short time (start-limit-hit)"
    if state.result == "timeout":
        return "it exceeded systemd's time limit for starting or stopping (timeout)"
    # The codes are those of waitid(2).
    ended = {1: "exit status", 2: "killed by signal", 3: "dumped core on signal"}
    return f"{ended[state.code]} {state.status} ({state.result})" if state.code in ended else state.result


_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# "(EngineCore pid=123) ERROR 11-21 08:00:00 [core.py:900] " in front of the message, complete or in part.
_PREFIX = re.compile(r"(?:\([A-Za-z]\w*(?: pid=\d+)?\) ?)?(?:(?P<level>[A-Z]+) [\d-]+ [\d:.]+ \[[^\]]*\] ?)?")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Refused|Failure)(?:: \S.*)?\Z")
_FAULT = re.compile(
    r"[\w.-]+: error: "
    r"|.*(?:exited unexpectedly|CUDA out of memory|[Aa]ddress already in use)"
    r"|.*(?:Permission denied|No such file or directory)"
)
# systemd's own lines; "Failed with result" repeats the state.
_SYSTEMD = re.compile(r"\S+: Failed (?:at step|to) |.*(?:killed by the OOM killer|unmet condition|asserts failed)")
# What vLLM's API server logs when its engine has died for any reason.
_GENERIC = re.compile(
    r".*(?:Engine core initialization failed|EngineDeadError|See root cause above)"
    r"|.*(?:failed to start\.|output_handler failed)"
)
# A line of the access log, of a request that was answered.
_ACCESS = re.compile(r'.*"(?:GET|HEAD|POST|OPTIONS|DELETE|PUT) \S+ HTTP/[\d.]+" \d{3}')
# What it logs about a request that asked for something impossible.
_OF_A_REQUEST = re.compile(r"Error with model error=")


def reasons(lines: Sequence[str], most: int = 5) -> list[str]:
    """Return the lines with the reason why a Python service died, the cause first, without their log prefixes.

    Exceptions come before other error lines; those that only report the death of another process come last.
    """
    parsed = [_split_level(line) for line in lines]
    exceptions = [_with_detail(parsed, index) for index, (_level, text) in enumerate(parsed) if _EXCEPTION.match(text)]
    faults = [
        text for _level, text in parsed if not text.startswith(" ") and (_FAULT.match(text) or _SYSTEMD.match(text))
    ]
    errors = [text for level, text in parsed if level in ("ERROR", "CRITICAL") and not _is_no_reason(text)]
    found = list(dict.fromkeys([*exceptions, *faults, *errors]))
    specific = [text for text in found if not _GENERIC.match(text)]
    return (specific or found)[:most]


def advice(lines: Sequence[str], issues: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the advice of each known issue whose symptom is in a line, each once."""
    text = "\n".join(_ANSI.sub("", line) for line in lines).lower()
    return list(dict.fromkeys(issue["advice"] for issue in issues if issue["symptom"].lower() in text))


def _split_level(line: str) -> tuple[str, str]:
    """Return the level ("" without one) and the text of a log line; the text keeps its indentation."""
    clean = _ANSI.sub("", line)
    prefix = _PREFIX.match(clean)
    if prefix is None:
        return "", clean
    return prefix.group("level") or "", clean[prefix.end() :]


def _with_detail(parsed: Sequence[tuple[str, str]], index: int) -> str:
    """Return an exception's line, with the next line if it belongs to it (pydantic writes the cause there)."""
    text = parsed[index][1]
    after = parsed[index + 1][1] if index + 1 < len(parsed) else ""
    if text.endswith(("validation error", ":")) or re.search(r"\d validation errors? for ", text):
        return f"{text} {after.strip()}".strip()
    return text


def _is_no_reason(text: str) -> bool:
    """Return whether an error line is a part of a traceback, or of a request and not of the server."""
    frame = text.startswith((" ", "Traceback ", "During handling", "The above exception"))
    return frame or not text.strip() or bool(_OF_A_REQUEST.match(text))


def mask(text: str, secrets: Sequence[str]) -> str:
    """Return text with every secret replaced by asterisks, the longest first, because it may contain another one."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "********")
    return text


def without_access_log(lines: Sequence[str]) -> list[str]:
    """Return lines without those of answered requests, which do not explain a failure."""
    return [line for line in lines if not _ACCESS.match(line)]


def redact_lines(lines: Sequence[str], secrets: Sequence[str], most: int | None = None) -> list[str]:
    """Return the last lines (all without most): masked, without colours, none longer than a message can take."""
    last = lines if most is None else lines[len(lines) - min(most, len(lines)) :]
    masked = [mask(_ANSI.sub("", line), secrets) for line in last]
    return [line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..." for line in masked]
