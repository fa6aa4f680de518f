# SPDX-License-Identifier: GPL-3.0-or-later
"""What a release's option table states about a flag or a key inside it, and how two tables differ."""

from typing import Any, Iterator, Mapping, Sequence, Tuple

from ..options.table import OptionTable
from ..options.values import Entry

# A flag's name, and the keys that lead to a value inside it.
Path = Tuple[str, ...]

# A changed choice of more values than this lists only the changed values, and the number of all.
FEW = 6


def entry_of(options: OptionTable, path: Path) -> Entry | None:
    """Return what a table states about a flag or a key inside a JSON flag; an untyped key is ``any``."""
    entry: Any = options.flags.get(path[0])
    for key in path[1:]:
        if entry is None:
            return None
        if entry["kind"] not in ("json", "any"):
            return None
        entry = entry["keys"].get(key) if "keys" in entry else {"kind": "any"}
        entry = {"kind": entry} if isinstance(entry, str) else entry
    found: Entry | None = entry
    return found


def paths_of(options: OptionTable) -> Iterator[Path]:
    for name, entry in options.flags.items():
        yield from _paths_below((name,), entry)


def _paths_below(path: Path, entry: Any) -> Iterator[Path]:
    yield path
    for key, inner in (entry.get("keys") or {}).items() if isinstance(entry, Mapping) else ():
        yield from _paths_below((*path, str(key)), inner)


def _state(entry: Entry | None) -> str:
    return "not there" if entry is None else _takes(entry)


def states_of(before: Entry | None, after: Entry | None, details: Sequence[str]) -> tuple[str, str]:
    if before and after and details and before["kind"] == after["kind"] == "choice" and len(before["values"]) > FEW:
        return f"one of {len(before['values'])} values", "; ".join(details)
    return _state(before), "; ".join(details) or _state(after)


def differences_of(before: Entry, after: Entry) -> list[str]:
    """Return a text for each change in what a flag accepts; the keys inside it have rows of their own."""
    if before["kind"] == after["kind"] == "choice":
        return _differences("takes", before["values"], after["values"])
    found = [f"now takes {_takes(after)}"] if _takes(before) != _takes(after) else []
    if before.get("negatable") and not after.get("negatable"):
        found.append("can no longer be switched off")
    gone_names = [name for name in before.get("aliases", ()) if name not in after.get("aliases", ())]
    found += _listed("no longer called", gone_names)
    # A table that was made before parsers were read has none.
    known = [entry["known"] for entry in (before, after) if "plugin" in entry]
    return found + (_differences("has the parser", *known) if len(known) == 2 else [])


def _differences(words: str, before: Sequence[Any], after: Sequence[Any]) -> list[str]:
    old, new = [str(value) for value in before], [str(value) for value in after]
    gone, came = [value for value in old if value not in new], [value for value in new if value not in old]
    return _listed(f"no longer {words}", gone) + _listed(words, came)


def _listed(words: str, values: Sequence[str]) -> list[str]:
    return [f"{words} {', '.join(values)}"] if values else []


def _takes(entry: Entry) -> str:
    kind = entry["kind"]
    if kind == "choice":
        return "one of " + ", ".join(str(value) for value in entry["values"])
    if kind == "list" and "of" in entry:
        return f"a list, each {_takes({**entry, 'kind': entry['of']})}"
    words: dict[str, str] = {
        "switch": "a switch",
        "boolean": "true or false",
        "integer": " or ".join(["an integer", *entry.get("words", ())]),
        "number": "a number",
        "text": "a text",
        "list": "a list",
        "json": "a mapping" + (" or a text" if entry.get("text") else ""),
        "any": "any value",
    }
    return words[kind]
