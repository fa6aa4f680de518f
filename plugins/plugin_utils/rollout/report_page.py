# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout's document as one page: no host, error or option can inject HTML, and the page loads nothing."""

import json
from typing import Any, Mapping, Sequence

from ..pages.texts import SharedTexts, escape_json, fill_page
from .report import ENDS, STATES, STEPS

FIGURES = ("tokens_per_second", "first_token_s", "first_token_p90_s", "requests", "streams", "tokens")
_WHOLE = (
    "id", "kind", "user", "controller", "clusters", "summary", "began", "ended", "last", "seconds", "result", "reason",
    "totals", "requests",
)  # fmt: skip


def page(document: Mapping[str, Any], parts: Mapping[str, str]) -> str:
    """Return the page as text. ``parts`` are its ``html``, ``css`` and ``js``; the page allows only these two."""
    return fill_page(parts, f"Rollout {document['id']}", data(document))


def data(document: Mapping[str, Any]) -> str:
    """Return the page's data as JSON for a script element; texts that many hosts share are stored once."""
    texts = SharedTexts()
    names = list(dict.fromkeys([*STEPS, *ENDS, *(step["step"] for row in document["hosts"] for step in row["steps"])]))
    numbers = {row["host"]: number for number, row in enumerate(document["hosts"])}
    compact = {
        **{key: document[key] for key in _WHOLE},
        "options": [[key, _text(value)] for key, value in sorted(document["options"].items())],
        "sessions": document["sessions"],
        "pauses": _pauses(document["sessions"], document["began"]),
        "states": list(STATES),
        "steps": names,
        "ends": list(ENDS),
        "durations": [[name, *row.values()] for name, row in document["steps"].items()],
        "changes": [_change(change, numbers) for change in document["changes"]],
        "waves": [[row["wave"], len(row["failed"])] for row in document["waves"]],
        "figures": list(FIGURES),
        "gates": [_gate(row, numbers, texts) for row in document["gates"]],
        "hosts": [_host(row, document["began"], names, texts) for row in document["hosts"]],
        "texts": texts.all,
    }
    return escape_json(json.dumps(compact, separators=(",", ":"), default=str))


def _pauses(sessions: Sequence[Mapping[str, Any]], began: float) -> list[list[float]]:
    """Return the pauses of a rollout: the seconds from its beginning to each continuation, and how long it had stopped.

    The page leaves these times out, because a night between two runs would dwarf everything else.
    """
    pauses = []
    for earlier, later in zip(sessions, sessions[1:]):
        pauses.append([round(later["began"] - began, 1), max(0.0, round(later["began"] - earlier["last"], 1))])
    return pauses


def _host(row: Mapping[str, Any], began: float, names: Sequence[str], texts: SharedTexts) -> list[Any]:
    steps = []
    for step in row["steps"]:
        values = [names.index(step["step"]), round(step["at"] - began, 1), round(step["seconds"], 1)]
        more = [texts.number(step["detail"]), int(bool(step.get("broke_off")))]
        while more and not more[-1]:
            more.pop()
        steps.append(values + more)
    number = texts.number(row["detail"])
    return [row["host"], texts.number(row["cluster"]), row["wave"], STATES.index(row["state"]), number, steps]


def _change(change: Mapping[str, Any], numbers: Mapping[str, int]) -> list[Any]:
    lines = [[line["what"], _text(line["before"]), _text(line["after"])] for line in change["lines"]]
    return [change["instance"], lines, change["files"], [numbers[name] for name in change["hosts"]]]


def _gate(row: Mapping[str, Any], numbers: Mapping[str, int], texts: SharedTexts) -> list[Any]:
    figures = [[(row[when] or {}).get(key) for key in FIGURES] if row[when] else 0 for when in ("before", "after")]
    verdicts = [[verdict["name"], int(verdict["ok"]), texts.number(verdict["detail"])] for verdict in row["verdicts"]]
    # A host that no other event names is listed here by its name.
    return [numbers.get(row["host"], row["host"]), texts.number(row["instance"]), *figures, verdicts]


def _text(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
