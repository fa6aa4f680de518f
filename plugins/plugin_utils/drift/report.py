# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings of a recipe or of a guide's command appear, change or vanish between two releases of vLLM."""

from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, Mapping, Sequence

from ...module_utils.common.spelling import misspelt
from ..common.tables import table, wrapped
from ..common.versions import sort_key
from ..fleet.explain import WIDTH, format_value
from ..options.table import Foreign, OptionTable
from ..options.values import decoded
from .options import Path, differences_of, entry_of, paths_of, states_of
from .uses import Use

Row = Dict[str, Any]

APPEARS, VANISHES, CHANGES, SAME, UNKNOWN = "appears", "vanishes", "changes", "same", "unknown"
# The order of a report, and the title of each part.
TITLES = {
    VANISHES: "Vanishes",
    CHANGES: "Changes",
    APPEARS: "Appears",
    UNKNOWN: "In neither release",
    SAME: "Stays",
}
WORKS, REFUSED, NOTHING, NOT_SET = "works", "is refused", "does nothing", "is not set"

LEFT_OUT = "the recipe does not set it"

# Names of settings up to this width are not wrapped.
WHOLE = 52


@dataclass(frozen=True)
class Side:
    """One of the two releases: its options, and the variables that libraries below it read."""

    table: OptionTable
    foreign: Foreign

    @property
    def version(self) -> str:
        return self.table.version


def drift(uses: Iterable[Use], older: Side, newer: Side, replaced: Mapping[str, Any]) -> list[Row]:
    """Return one row for each setting: its state in both releases, its effect in the newer one, the replacement."""
    grouped: dict[Path, list[Use]] = {}
    for use in uses:
        for path, part in _parts(use, older, newer):
            grouped.setdefault(path, []).append(part)
    rows = [_row(path, found, older, newer, replaced) for path, found in grouped.items()]
    return _sorted(rows)


def table_drift(older: Side, newer: Side, replaced: Mapping[str, Any]) -> list[Row]:
    """Return the differences between two releases' own tables, a row for each flag, JSON key and variable."""
    rows = []
    paths = {**dict.fromkeys(paths_of(older.table)), **dict.fromkeys(paths_of(newer.table))}
    for path in sorted(paths):
        before, after = entry_of(older.table, path), entry_of(newer.table, path)
        if (before is None or after is None) and len(path) > 1 and _entry_gone(path, older, newer):
            continue  # the whole flag came or went: one row is enough
        details = differences_of(before, after) if before and after else []
        change = _change(before is not None, after is not None, bool(details))
        if change != SAME:
            texts = states_of(before, after, details)
            rows.append(_of_tables("--" + ".".join(path), change, texts, WORKS if after else REFUSED, replaced, newer))
    for name in sorted(set(older.table.env) ^ set(newer.table.env)):
        there = name in newer.table.env
        texts = ("not read", "read") if there else ("read", "not read")
        rows.append(
            _of_tables(name, APPEARS if there else VANISHES, texts, WORKS if there else NOTHING, replaced, newer)
        )
    return _sorted(rows)


def lost(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of settings that worked in the older release and are refused or ignored by the newer one."""
    return [row for row in rows if row["lost"]]


def drift_table(rows: Sequence[Row], older: str, newer: str, what: str = "", width: int = WIDTH) -> str:
    """Return rows as text: a summary, then a part for each kind of change, in at most ``width`` columns."""
    count = {change: sum(row["change"] == change for row in rows) for change in TITLES}
    summary = (
        f"{what or 'Options'}, vLLM {older} to {newer}: {count[VANISHES]} vanish, {count[CHANGES]} change, "
        f"{count[APPEARS]} appear, {count[UNKNOWN]} in neither, {count[SAME]} stay"
    )
    parts = [wrapped(summary, width, further="  ")]
    idle = [row for row in rows if row["effect"] in (REFUSED, NOTHING) and row["where"]]
    if idle:
        names = ", ".join(f"{row['setting']} {row['effect']}" for row in idle)
        parts.append(wrapped(f"No effect in {newer}: {names}", width, further="  "))
    for change, title in TITLES.items():
        found = [row for row in rows if row["change"] == change]
        if found and change == SAME:
            parts.append(wrapped(f"{title}: {', '.join(row['setting'] for row in found)}", width, further="  "))
        elif found:
            headers = ("setting", older, newer, "instead", "where")
            cells = [[row["setting"], row["older"], row["newer"], row["instead"], _places(row)] for row in found]
            parts.append(f"{title}\n{table(headers, cells, width, '  ', whole=WHOLE)}")
    return "\n\n".join(parts)


def _places(row: Row) -> str:
    """Return the places of a setting in the files; the lines of one file follow its name."""
    places: dict[str, list[str]] = {}
    for where in row["where"]:
        file, _colon, line = where.rpartition(":")
        places.setdefault(file or where, []).extend([line] if file else [])
    return "; ".join(f"{file}:{', '.join(lines)}" if lines else file for file, lines in places.items())


def _sorted(rows: Iterable[Row]) -> list[Row]:
    order = list(TITLES)
    return sorted(
        rows, key=lambda row: (order.index(row["change"]), not row["setting"].startswith("-"), row["setting"])
    )


def _parts(use: Use, older: Side, newer: Side) -> Iterator[tuple[Path, Use]]:
    """Yield the single settings of a use: each key of a JSON value, else the use itself."""
    if not use.name.startswith("-"):
        yield (use.name,), use
        return
    flag = newer.table.canonical(use.name) or older.table.canonical(use.name)
    if flag is None:
        yield (use.name.lstrip("-").replace("_", "-"),), use
        return
    side = newer if flag.name in newer.table.flags else older
    kind, value = side.table.flags[flag.name]["kind"], use.value
    if kind == "switch" and not isinstance(value, bool):
        value = True  # the word after a switch belongs to the command
    leaves = _leaves(decoded(value)) if kind == "json" else [((), value)]
    for keys, leaf in leaves:
        yield (flag.name, *flag.keys, *keys), use._replace(value=leaf)


def _leaves(value: Any) -> list[tuple[Path, Any]]:
    if not isinstance(value, Mapping) or not value:
        return [((), value)]
    return [((str(key), *path), leaf) for key, entry in value.items() for path, leaf in _leaves(entry)]


def _row(path: Path, uses: Sequence[Use], older: Side, newer: Side, replaced: Mapping[str, Any]) -> Row:
    is_flag = uses[0].name.startswith("-")
    judge = _judged_flag if is_flag else _judged_variable
    setting = "--" + ".".join(path) if is_flag else path[0]
    change, texts, effects = judge(path, uses, older, newer)
    effect = effects[1]
    before, after = _values(uses, "older"), _values(uses, "newer")
    instead = _instead(setting, replaced, newer) if effect != WORKS else ""
    if not after:
        because = f" ({texts[1]})" if effect != WORKS else ""
        change, effect, texts = VANISHES, NOT_SET, (texts[0], LEFT_OUT + because)
    elif not before:
        change, texts = APPEARS, (LEFT_OUT, texts[1])
    elif before != after and change == SAME:
        change, texts = CHANGES, (f"set to {', '.join(before)}", f"set to {', '.join(after)}")
    return {
        "setting": setting,
        "change": change,
        "older": texts[0],
        "newer": texts[1],
        "effect": effect,
        "instead": instead,
        "where": list(dict.fromkeys(use.where for use in uses)),
        "lost": bool(before and after) and effects[0] == WORKS and effect != WORKS,
    }


def _values(uses: Sequence[Use], side: str) -> list[str]:
    return sorted({format_value(use.value) for use in uses if getattr(use, side)})


def _judged_flag(
    path: Path, uses: Sequence[Use], older: Side, newer: Side
) -> tuple[str, tuple[str, str], tuple[str, str]]:
    """Return how a flag changes, its state on both sides, and its effect on both sides."""
    # A single spelling can appear or vanish: -cc is younger than --compilation-config.
    strange = [next((use.name for use in uses if not side.table.canonical(use.name)), None) for side in (older, newer)]
    entries = [
        None if unknown else entry_of(side.table, _known_path(side, uses[0].name, path))
        for side, unknown in zip((older, newer), strange)
    ]
    problems = [_problems(path, uses, side) if entry else [] for side, entry in zip((older, newer), entries)]
    before, after = entries
    details = differences_of(before, after) if before and after else []
    change = _change(before is not None, after is not None, bool(details) or problems[0] != problems[1])
    if change == UNKNOWN and len(path) > 1 and not _entry_gone(path, older, newer):
        texts = ("no such key", "no such key")
    else:
        texts = states_of(before, after, details)
        names = [_spelling(name, path) for name in strange]
        texts = (names[0] or texts[0], names[1] or texts[1])
    if problems[1]:
        texts = (texts[0], f"{texts[1]}; refused: {problems[1][0]}")
    effects = [WORKS if entry and not problem else REFUSED for entry, problem in zip(entries, problems)]
    return change, texts, (effects[0], effects[1])


def _spelling(unknown: str | None, path: Path) -> str:
    """Return the text that a release lacks this spelling; empty where it is the flag's own name."""
    head = unknown.partition("=")[0].partition(".")[0] if unknown else ""
    return f"{head} is not there" if head and head.lstrip("-").replace("_", "-") != path[0] else ""


def _known_path(side: Side, spelling: str, path: Path) -> Path:
    """Return the path under the release's own name of the flag."""
    flag = side.table.canonical(spelling)
    return (flag.name, *path[1:]) if flag else path


def _problems(path: Path, uses: Sequence[Use], side: Side) -> list[str]:
    """Return the values that a release would refuse; it may accept others for the same flag."""
    found: list[str] = []
    for use in uses:
        spelling = "--" + ".".join(path) if len(path) > 1 else use.name
        if use.value is not None:
            found += [text.partition(": ")[2] or text for text in side.table.check_args({spelling: use.value})]
    return list(dict.fromkeys(found))


def _judged_variable(
    path: Path, _uses: Sequence[Use], older: Side, newer: Side
) -> tuple[str, tuple[str, str], tuple[str, str]]:
    states = [_read_by(path[0], side) for side in (older, newer)]
    effects = [WORKS if state != "not read" else NOTHING for state in states]
    change = _change(effects[0] == WORKS, effects[1] == WORKS, states[0] != states[1])
    return change, (states[0], states[1]), (effects[0], effects[1])


def _read_by(name: str, side: Side) -> str:
    if name in side.table.env:
        return "read"
    # Names that start with VLLM_ are vLLM's own, even where a prefix of a library covers them.
    return "not read" if name[:5] == "VLLM_" or not side.foreign.covers(name, side.version) else "read by a library"


def _change(before: bool, after: bool, differs: bool) -> str:
    if before and after:
        return CHANGES if differs else SAME
    if before:
        return VANISHES
    return APPEARS if after else UNKNOWN


def _of_tables(
    setting: str, change: str, texts: tuple[str, str], effect: str, replaced: Mapping[str, Any], newer: Side
) -> Row:
    return {
        "setting": setting,
        "change": change,
        "older": texts[0],
        "newer": texts[1],
        "effect": effect,
        "instead": _instead(setting, replaced, newer) if effect != WORKS else "",
        "where": [],
        "lost": change == VANISHES,
    }


def _instead(setting: str, replaced: Mapping[str, Any], newer: Side) -> str:
    """Return the replacement of a setting by replaced.yml, else the nearest name; empty for none."""
    bare = setting.lstrip("-")
    entry = replaced.get(setting) or replaced.get(bare) or {}
    if not entry or sort_key(newer.version) < sort_key(str(entry.get("since", "0"))):
        known = [name.lstrip("-") for name in newer.table.spellings] if bare != setting else newer.table.env
        near = misspelt(bare, known)
        return f"perhaps {'--' if bare != setting else ''}{near}" if near else ""
    since = f" (since {entry['since']})" if entry.get("since") else ""
    because = f": {entry['because']}" if entry.get("because") else ""
    return f"{entry.get('instead') or 'nothing'}{since}{because}"


def _entry_gone(path: Path, older: Side, newer: Side) -> bool:
    """Return whether one of the releases lacks the entry that holds this key."""
    return any(entry_of(side.table, path[:-1]) is None for side in (older, newer))
