# SPDX-License-Identifier: GPL-3.0-or-later
"""The clients of the gateways as a table: those of the inventory, and those that the gateways let in."""

from typing import Any, Mapping, Sequence

from ...module_utils.gateway.clients import ANY
from ...module_utils.gateway.expiry import end_in_words, end_of
from ..common.answers import describe_silent
from ..common.tables import table
from .usage import merge_rows

WIDTH = 120
HEADERS = ("client", "team", "models", "keys", "expires", "requests", "tokens", "note")
Results = Mapping[str, Mapping[str, Any]]


def client_table(requests: Results, keys: Results, usage: Results, now: float, width: int = WIDTH) -> str:
    """Return the table; the results by gateway are those of gateway_client, gateway_keys and gateway_usage_info.

    ``now`` is in seconds since 1970. Without usage there are no columns for it.
    """
    declared = {gateway: _mapping(result.get("clients")) for gateway, result in requests.items()}
    present = {gateway: _mapping(result.get("present")) for gateway, result in keys.items()}
    names = sorted({str(name) for found in (*declared.values(), *present.values()) for name in found})
    if not names:
        return "No gateway has clients."
    sums = _sums(usage)
    rows = []
    for name in names:
        entry = next((_mapping(found[name]) for found in declared.values() if name in found), {})
        known: Mapping[str, Any] = next((found[name] for found in present.values() if name in found), {})
        numbers = [f"{number:,}" for number in sums.get(name, (0, 0))] if sums is not None else ["", ""]
        expires = known.get("expires") or _expires(entry)
        notes = _notes(name, declared, present)
        if _is_over(expires, now):
            notes.insert(0, "expired")
        team = str(known.get("team") or entry.get("team") or "")
        row = [name, team, _models(entry, known), str(known.get("keys", "")), expires, *numbers, "; ".join(notes)]
        rows.append(row)
    foot = [] if sums is None else ["", "requests and tokens: those of the last 30 days"]
    unread = [*describe_silent({gateway: result for gateway, result in keys.items() if result.get("msg")}, "present")]
    unread += [
        f"{gateway}: no tokens: {result['msg']}"
        for gateway, result in usage.items()
        if "rows" not in result and result.get("msg")
    ]
    return "\n".join([table(HEADERS, rows, width), *foot, *unread])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sums(usage: Results) -> dict[str, tuple[int, int]] | None:
    """Return the requests and tokens of each client, None where no gateway counts them."""
    counting = [result["rows"] for result in usage.values() if "rows" in result]
    if not counting:
        return None
    found: dict[str, tuple[int, int]] = {}
    for row in merge_rows(row for rows in counting for row in rows):
        requests, tokens = found.get(row["client"], (0, 0))
        found[row["client"]] = requests + row["requests"], tokens + row["prompt"] + row["completion"]
    return found


def _expires(entry: Mapping[str, Any]) -> str:
    """Return the end of a client that no gateway has yet; the run that brings it there reports an invalid one."""
    try:
        return end_in_words(str(end_of(entry.get("expires")) or ""))
    except ValueError:
        return "invalid"


def _is_over(expires: str, now: float) -> bool:
    """Return whether keys have ended; those of an end that is none, such as never, have not."""
    try:
        return end_of(expires) <= now
    except ValueError:
        return False


def _models(entry: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    models: Sequence[Any] = entry.get("models") or known.get("services") or [ANY]
    return ", ".join(map(str, models)).replace(ANY, "all")


def _notes(name: str, declared: Results, present: Results) -> list[str]:
    """Return where a client is in the inventory and at the gateways alone."""
    lacking = [gateway for gateway, found in present.items() if name not in found and name in declared.get(gateway, {})]
    alien = [gateway for gateway, found in present.items() if name in found and name not in declared.get(gateway, {})]
    return [
        *([f"not at {', '.join(lacking)} yet: run gateway.yml -t gateway_keys"] if lacking else []),
        *([f"not in gateway_clients of {', '.join(alien)}: the next run of gateway.yml ends it"] if alien else []),
    ]
