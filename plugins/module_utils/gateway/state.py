# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the answers of HAProxy's admin socket about servers and services."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterator, Mapping

from ..common.foreign_numbers import read_count
from ..common.foreign_text import quote_foreign
from .stat_rows import read_rows

# One worker answers one connection, so its counters and states belong together.
VIEW_COMMANDS = "show info;show servers state;show stat"
READY, DRAIN, MAINT = "ready", "drain", "maint"
# Prefix of the gateway's own proxies; a service is named after an instance, whose name has no colon.
OWN = "gateway:"
# The routers of a service are servers of a separate backend, each beside its vLLM (haproxy.cfg.j2).
ROUTERS, ROUTER = f"{OWN}router:", "router:"
# Bits of srv_admin_state: set by the configuration, by inheritance, by a resolver or by hand.
_MAINT, _DRAIN = 0x01 | 0x02 | 0x04 | 0x20 | 0x40, 0x08 | 0x10
# srv_op_state: starting (slowly) and running; 0 is stopped, 3 asks for no new sessions.
_RUNNING = ("1", "2")
# Names and addresses become part of commands and messages.
_WORD = re.compile(r"[\w.:%-]+", re.ASCII)
# Characters of a check's result; an engine chooses its text.
_LONGEST_REASON = 150
# How the agent's text begins for a server that is sick and stays in service, because its service needs it.
SICK = "sick"
_STATES, _STATS = "\n# be_id ", "\n# pxname,"


class StateError(ValueError):
    """HAProxy's answer is invalid; the message describes what was found, as a clause."""


@dataclass(frozen=True)
class HaproxyServer:
    """A server: ``state`` was requested, ``up`` is the result of its checks, ``why`` names the check that failed.

    A server that is sick and in service is up, and has a ``why`` too. ``changed_s`` is how long it has been up or down,
    and ``downs`` how often it went down.
    """

    name: str
    backend: str
    host: str
    port: int
    state: str
    up: bool
    why: str = ""
    sessions: int = 0
    queued: int = 0
    requests: int = 0
    errors: int = 0
    retries: int = 0
    redispatches: int = 0
    weightless: bool = False
    changed_s: int = 0
    downs: int = 0

    @property
    def address(self) -> str:
        """Host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def serves(self) -> bool:
        """Whether HAProxy sends it new requests."""
        return self.state == READY and self.up


@dataclass(frozen=True)
class HaproxyView:
    """A snapshot of HAProxy. ``started`` changes whenever its counters restart at zero; ``pid`` is the worker's."""

    pid: int
    started: str
    servers: Mapping[str, HaproxyServer]
    frontends: Mapping[str, Mapping[str, int]]
    queues: Mapping[str, int] = field(default_factory=dict)

    def backends(self) -> dict[str, dict[str, int]]:
        """Return how many servers each service has, how many of them are in service, and the requests without one."""
        found: dict[str, dict[str, int]] = {}
        for server in self.servers.values():
            queued = self.queues.get(server.backend, 0)
            entry = found.setdefault(server.backend, {"ready": 0, "servers": 0, "queued": queued})
            entry["servers"] += 1
            entry["ready"] += server.serves
        return found


def read_view(text: str) -> HaproxyView:
    """Return the snapshot in HAProxy's answer to VIEW_COMMANDS. Raises StateError."""
    info, found, rest = text.partition(_STATES)
    states, also, stats = rest.partition(_STATS)
    # A truncated answer lacks servers.
    if not found or not also or not text.endswith("\n\n"):
        raise StateError(f"its answer is incomplete and ends with {text[-60:]!r}")
    info_fields = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
    try:
        rows = read_rows(_STATS[1:] + stats)
        return HaproxyView(
            pid=_count(info_fields, "Pid"),
            started=f"{info_fields['Pid']}-{info_fields['Start_time_sec']}",
            servers=_servers(f"# be_id {states}", rows),
            frontends={
                row["pxname"]: _frontend(row)
                for row in rows
                if row["svname"] == "FRONTEND" and not row["pxname"].startswith(OWN)
            },
            queues={row["pxname"]: _count(row, "qcur") for row in rows if row["svname"] == "BACKEND"},
        )
    except KeyError as exc:
        raise StateError(f"its answer lacks {quote_foreign(exc.args[0])}") from exc
    except ValueError as exc:
        raise StateError(f"its answer is invalid: {quote_foreign(exc)}") from exc


def read_kept_states(text: str) -> dict[str, str]:
    """Return the state of each server in the saved state file, nothing for a damaged file."""
    _version, _newline, states = text.partition("\n")
    try:
        return {row["srv_name"]: _state(row) for row in _rows(states)}
    except (KeyError, ValueError):
        return {}


def _count(row: Mapping[str, str], name: str) -> int:
    """Return a counter of a row; HAProxy leaves those that have no meaning there empty."""
    count = read_count(row[name] or "0")
    if count is None:
        raise ValueError(f"{name}: found {row[name][:60]!r}, expected a number")
    return count


def _port(row: Mapping[str, str]) -> int:
    port = _count(row, "srv_port")
    if port > 65535:
        raise ValueError(f"srv_port: found {port}, expected a port up to 65535")
    return port


def _rows(states: str) -> Iterator[dict[str, str]]:
    """Yield the rows of ``show servers state`` from its heading on."""
    lines = states.splitlines()
    columns = lines[0][2:].split() if lines else []
    for line in lines[1:]:
        if line.strip():
            yield dict(zip(columns, line.split(" ")))


def _state(row: Mapping[str, str]) -> str:
    admin = _count(row, "srv_admin_state")
    if admin & _MAINT:
        return MAINT
    # With a weight of 0 HAProxy sends no new requests either.
    return DRAIN if admin & _DRAIN or _count(row, "srv_uweight") == 0 else READY


def _servers(states: str, stats: list[dict[str, str]]) -> dict[str, HaproxyServer]:
    figures = {(row["pxname"], row["svname"]): row for row in stats}
    found = {}
    for row in _rows(states):
        backend, name = row["be_name"], row["srv_name"]
        if backend.startswith(OWN):
            continue
        if (backend, name) not in figures:
            raise ValueError(f"it has no counters of the server {backend}/{name}")
        found[name] = _server(row, figures[backend, name], figures.get((f"{ROUTERS}{backend}", f"{ROUTER}{name}"), {}))
    return found


def _server(row: Mapping[str, str], stat: Mapping[str, str], router: Mapping[str, str]) -> HaproxyServer:
    """Return a server; the requests to its router, empty without one, are its own."""
    all_of_it = [stat, router] if router else [stat]
    invalid = [row[name] for name in ("srv_name", "be_name", "srv_addr") if not _WORD.fullmatch(row[name])]
    if invalid:
        raise ValueError(f"found {invalid[0][:60]!r}, expected a name or an address")
    up = row["srv_op_state"] in _RUNNING
    return HaproxyServer(
        name=row["srv_name"],
        backend=row["be_name"],
        host=row["srv_addr"],
        port=_port(row),
        state=_state(row),
        up=up,
        why=_sick(stat) if up else _why(stat),
        sessions=sum(_count(each, "scur") for each in all_of_it),
        queued=sum(_count(each, "qcur") for each in all_of_it),
        requests=sum(_count(each, "stot") for each in all_of_it),
        # eresp includes answers that the server cut off; requests that clients aborted are not the server's errors.
        errors=sum(_count(stat, name) for name in ("hrsp_5xx", "econ", "eresp")),
        retries=_count(stat, "wretr"),
        redispatches=_count(stat, "wredis"),
        weightless=_count(row, "srv_uweight") == 0,
        changed_s=_count(stat, "lastchg"),
        downs=_count(stat, "chkdown"),
    )


def _sick(stat: Mapping[str, str]) -> str:
    """Return why a server that stays in service is sick, empty for one that is well (gateway-agent.py)."""
    _up, found, reason = stat["last_agt"].partition(f"({SICK}")
    return _printable(f"{SICK}{reason[:-1] if reason.endswith(')') else reason}") if found else ""


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST_REASON])


def _why(stat: Mapping[str, str]) -> str:
    """Return the result of the check that took a server out: the agent check or the health check."""
    # The check of a server that answers 404, as an instance does while it stops (disable-on-404).
    if stat["check_status"].lstrip("* ") == "L7OKC":
        return "stopping (systemctl stop or a reboot)"
    kind = "agent" if "(agent)" in stat["status"] else "check"
    text = stat["last_agt"] or stat["agent_desc"] if kind == "agent" else stat["last_chk"] or stat["check_desc"]
    return _printable(f"{stat[f'{kind}_status'].lstrip('* ')}: {text}".strip(": "))


def _frontend(row: Mapping[str, str]) -> dict[str, int]:
    return {
        "requests": _count(row, "req_tot"),
        "ok": sum(_count(row, f"hrsp_{kind}") for kind in ("1xx", "2xx", "3xx")),
        "client_errors": _count(row, "hrsp_4xx"),
        "server_errors": _count(row, "hrsp_5xx"),
        "denied": _count(row, "dreq"),
    }
