# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a recipe or of a guide's command appears, changes or vanishes between two releases of vLLM. No I/O."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, Mapping, NamedTuple, Sequence, Tuple

from ansible_collections.baremetal.inference.plugins.module_utils._conditions import holds, version_key
from ansible_collections.baremetal.inference.plugins.module_utils._explain import WIDTH, shown
from ansible_collections.baremetal.inference.plugins.module_utils._hardware import (
    Accelerator,
    exact_blocks,
    generation_blocks,
)
from ansible_collections.baremetal.inference.plugins.module_utils._names import misspelt
from ansible_collections.baremetal.inference.plugins.module_utils._options import (
    Entry,
    Foreign,
    OptionTable,
    decoded,
)
from ansible_collections.baremetal.inference.plugins.module_utils._table import table, wrapped

Row = Dict[str, Any]
Path = Tuple[str, ...]

APPEARS, VANISHES, CHANGES, SAME, UNKNOWN = "appears", "vanishes", "changes", "same", "unknown"
# The order of a report, and what stands above each part.
TITLES = {
    VANISHES: "Vanishes",
    CHANGES: "Changes",
    APPEARS: "Appears",
    UNKNOWN: "In neither release",
    SAME: "Stays",
}
WORKS, REFUSED, NOTHING, NOT_SET = "works", "is refused", "does nothing", "is not set"

LEFT_OUT = "the recipe does not set it"

# Keys of a recipe that hold words of a command and variables, and the parts that hold neither.
ARGS = ("base_args", "extra_args", "vllm_args", "args")
ENV = ("base_env", "extra_env", "env")
NOT_COMPOSED = ("meta", "dependencies", "guide", "guards", "known_issues", "when", "unless", "install")

_SERVE = r"(?:vllm\s+serve|python3?\s+-m\s+vllm\.entrypoints\.openai\.api_server)(?=\s|$)"
_COMMAND = re.compile(r"(?:[$>]\s+)?((?:(?:sudo|exec|nohup|env)\s+)*(?:[A-Za-z_]\w*=\S*\s+)*" + _SERVE + ".*)", re.S)
_EXPORT = re.compile(r"(?:[$>]\s+)?(export\s+[A-Za-z_]\w*=.*)", re.S)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_FLAG = re.compile(r"--?[A-Za-z]")
# Names of settings are not wrapped up to this width.
WHOLE = 52
# More values of a choice than these are counted where only a few of them change.
FEW = 6
# A word of these ends a command.
_ENDS = ";&|<>"


class DriftError(ValueError):
    """What was given cannot be read; the message is the whole sentence for the user."""


class Use(NamedTuple):
    """One setting as somebody writes it: ``name`` is a flag with its dashes or a variable."""

    name: str
    value: Any
    where: str
    older: bool = True
    newer: bool = True


@dataclass(frozen=True)
class Side:
    """One of the two releases: its options, and the variables that libraries below it read."""

    table: OptionTable
    foreign: Foreign

    @property
    def version(self) -> str:
        return self.table.version


def command_uses(text: str, file: str) -> list[Use]:
    """Return what a guide's shell text sets: ``export NAME=..`` lines and the words of ``vllm serve``.

    Everything else is passed over, so a whole page can be given. Raises DriftError naming the line.
    """
    uses: list[Use] = []
    for number, line in _joined(text):
        where = f"{file}:{number}"
        for pattern, read in ((_EXPORT, _exports), (_COMMAND, _serves)):
            found = pattern.match(line)
            if found:
                try:
                    words = list(_shell_words(found.group(1)))
                except ValueError as exc:
                    raise DriftError(f"{where}: {exc}; expected words of a shell, found {line!r}") from exc
                uses += read(words, where)
    return uses


def config_uses(config: Mapping[str, Any], file: str) -> list[Use]:
    """Return what the keys of a ``--config`` file set."""
    return [Use(f"--{name}", value, file) for name, value in config.items()]


def recipe_uses(recipe: Mapping[str, Any], older: str, newer: str, accelerator: Accelerator | None = None) -> list[Use]:
    """Return what the blocks of a recipe set for two releases, for one accelerator or for all.

    Rules are followed as far as release and hardware decide them; what else they ask for is taken as given.
    """
    found: dict[str, Use] = {}
    for version in dict.fromkeys((older, newer)):
        facts: dict[str, Any] = {"vllm": version}
        if accelerator is not None:
            facts.update(accelerator=accelerator.ids, generation=accelerator.generations, stack=accelerator.stack)
        for use in _walk(recipe, (), facts, accelerator):
            key = json.dumps([use.name, use.value, use.where], default=str)
            before = found.get(key, use._replace(older=False, newer=False))
            found[key] = before._replace(older=before.older or version == older, newer=before.newer or version == newer)
    return list(found.values())


def drift(uses: Iterable[Use], older: Side, newer: Side, replaced: Mapping[str, Any]) -> list[Row]:
    """Return one row for each setting: what it is in either release, what it does in the newer one, what to write."""
    grouped: dict[Path, list[Use]] = {}
    for use in uses:
        for path, part in _parts(use, older, newer):
            grouped.setdefault(path, []).append(part)
    rows = [_row(path, found, older, newer, replaced) for path, found in grouped.items()]
    return _sorted(rows)


def table_drift(older: Side, newer: Side, replaced: Mapping[str, Any]) -> list[Row]:
    """Return what differs between two releases' own tables, a row for each flag, JSON key and variable."""
    rows = []
    paths = {**dict.fromkeys(_paths(older.table)), **dict.fromkeys(_paths(newer.table))}
    for path in sorted(paths):
        before, after = _entry(older.table, path), _entry(newer.table, path)
        if (before is None or after is None) and len(path) > 1 and _entry_gone(path, older, newer):
            continue  # the whole flag came or went: one row is enough
        details = _differences(before, after) if before and after else []
        change = _change(before is not None, after is not None, bool(details))
        if change != SAME:
            texts = _states(before, after, details)
            rows.append(_of_tables("--" + ".".join(path), change, texts, WORKS if after else REFUSED, replaced, newer))
    for name in sorted(older.table.env ^ newer.table.env):
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
        parts.append(wrapped(f"Of no use in {newer}: {names}", width, further="  "))
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
    """Return where a setting stands; the lines of one file after its name."""
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


# What is set: guides


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a shell text with the number of their first line: a backslash at the end joins lines."""
    start, held = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        start = start if held else number
        body = line.strip()
        if body.endswith("\\"):
            held += body[:-1] + " "
            continue
        if held + body:
            yield start, (held + body).strip()
        held = ""


def _shell_words(line: str) -> Iterator[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_ENDS)
    lexer.whitespace_split = True
    lexer.commenters = ""
    for word in lexer:
        if word.startswith("#") or set(word) <= set(_ENDS):
            return
        yield word


def _exports(words: Sequence[str], where: str) -> list[Use]:
    found = [_ASSIGNMENT.fullmatch(word) for word in words[1:]]
    return [Use(match.group(1), match.group(2), where) for match in found if match]


def _serves(words: Sequence[str], where: str) -> list[Use]:
    """Return the variables before the command and the flags after it."""
    uses: list[Use] = []
    command = next(index for index, word in enumerate(words) if word == "vllm" or word.startswith("python"))
    for word in words[:command]:
        found = _ASSIGNMENT.fullmatch(word)
        if found:
            uses.append(Use(found.group(1), found.group(2), where))
    # `serve MODEL` or `-m MODULE`: what no flag takes as its value is no setting.
    return uses + _flags(words[command + (2 if words[command] == "vllm" else 3) :], where)


def _flags(words: Sequence[Any], where: str) -> list[Use]:
    uses: list[Use] = []
    for word in (str(word) for word in words):
        if _FLAG.match(word):
            short = re.fullmatch(r"(-O)=?(\w+)", word)
            name, found, value = word.partition("=")
            uses.append(Use(word, short.group(2), where) if short else Use(name, value if found else True, where))
        elif uses:
            before = uses[-1].value
            words_before = before if isinstance(before, list) else [before]
            uses[-1] = uses[-1]._replace(value=word if before is True else [*words_before, word])
    return uses


# What is set: recipes


def _walk(node: Any, path: Path, facts: Mapping[str, Any], accelerator: Accelerator | None) -> Iterator[Use]:
    if isinstance(node, list):
        for number, entry in enumerate(node):
            if isinstance(entry, Mapping) and _may_apply(entry, facts):
                yield from _walk(entry, (*path[:-1], f"{path[-1]}[{number}]"), facts, accelerator)
        return
    if accelerator is not None and not _meant_for(node, accelerator):
        return
    where = ".".join(path)
    for key, entry in node.items():
        if key in ARGS and isinstance(entry, list):
            yield from _flags(entry, where)
        elif key in ENV and isinstance(entry, Mapping):
            yield from (Use(name, None if value is None else str(value), where) for name, value in entry.items())
        elif key == "hardware_overrides" and isinstance(entry, Mapping):
            for name, block in _blocks(entry, accelerator):
                yield from _walk(block or {}, (*path, key, name), facts, accelerator)
        elif key not in NOT_COMPOSED and isinstance(entry, (Mapping, list)):
            yield from _walk(entry, (*path, str(key)), facts, accelerator)


def _meant_for(block: Mapping[str, Any], accelerator: Accelerator) -> bool:
    """Return whether a variant, feature or mode of a recipe can be on for this hardware."""
    supported = block.get("supported_hardware")
    if supported and not {str(name) for name in supported} & set(accelerator.names):
        return False
    gates = block.get("hardware")
    return not isinstance(gates, Mapping) or accelerator.pick(gates) != "unsupported"


def _blocks(overrides: Mapping[str, Any], accelerator: Accelerator | None) -> list[tuple[str, Any]]:
    if accelerator is None:
        return list(overrides.items())
    return [*generation_blocks(accelerator, overrides), *exact_blocks(accelerator, overrides)]


def _may_apply(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return whether a rule can be in force, given what is known: release and perhaps hardware."""
    if any(holds(name, wanted, facts) is False for name, wanted in (rule.get("when") or {}).items()):
        return False
    exception = rule.get("unless") or {}
    return not (exception and all(holds(name, wanted, facts) for name, wanted in exception.items()))


# What becomes of it


def _parts(use: Use, older: Side, newer: Side) -> Iterator[tuple[Path, Use]]:
    """Yield a use as the settings that it is made of: of a JSON value each key."""
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
        value = True  # a word after a switch is the command's own
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
    return sorted({shown(use.value) for use in uses if getattr(use, side)})


def _judged_flag(
    path: Path, uses: Sequence[Use], older: Side, newer: Side
) -> tuple[str, tuple[str, str], tuple[str, str]]:
    """Return how a flag changes, its state on both sides, and its effect on both sides."""
    # A spelling of its own can come and go: -cc is younger than --compilation-config.
    strange = [next((use.name for use in uses if not side.table.canonical(use.name)), None) for side in (older, newer)]
    entries = [
        None if unknown else _entry(side.table, _known_path(side, uses[0].name, path))
        for side, unknown in zip((older, newer), strange)
    ]
    problems = [_problems(path, uses, side) if entry else [] for side, entry in zip((older, newer), entries)]
    before, after = entries
    details = _differences(before, after) if before and after else []
    change = _change(before is not None, after is not None, bool(details) or problems[0] != problems[1])
    if change == UNKNOWN and len(path) > 1 and not _entry_gone(path, older, newer):
        texts = ("no such key", "no such key")
    else:
        texts = _states(before, after, details)
        names = [_spelling(name, path) for name in strange]
        texts = (names[0] or texts[0], names[1] or texts[1])
    if problems[1]:
        texts = (texts[0], f"{texts[1]}; refused: {problems[1][0]}")
    effects = [WORKS if entry and not problem else REFUSED for entry, problem in zip(entries, problems)]
    return change, texts, (effects[0], effects[1])


def _spelling(unknown: str | None, path: Path) -> str:
    """Return that a release does not have a spelling, where it is not the flag's own name."""
    head = unknown.partition("=")[0].partition(".")[0] if unknown else ""
    return f"{head} is not there" if head and head.lstrip("-").replace("_", "-") != path[0] else ""


def _known_path(side: Side, spelling: str, path: Path) -> Path:
    """Return the path under the release's own name of the flag."""
    flag = side.table.canonical(spelling)
    return (flag.name, *path[1:]) if flag else path


def _problems(path: Path, uses: Sequence[Use], side: Side) -> list[str]:
    """Return what a release would refuse of the values; a flag that is there may take other ones."""
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
    # What starts with VLLM_ is vLLM's own, whatever a prefix covers.
    return "read by a library" if not name.startswith("VLLM_") and side.foreign.covers(name) else "not read"


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
    """Return what replaced a setting, from replaced.yml; else the name that was probably meant, if there is one."""
    bare = setting.lstrip("-")
    entry = replaced.get(setting) or replaced.get(bare) or {}
    if not entry or version_key(newer.version) < version_key(str(entry.get("since", "0"))):
        known = [name.lstrip("-") for name in newer.table.spellings] if bare != setting else newer.table.env
        near = misspelt(bare, known)
        return f"perhaps {'--' if bare != setting else ''}{near}" if near else ""
    since = f" (since {entry['since']})" if entry.get("since") else ""
    because = f": {entry['because']}" if entry.get("because") else ""
    return f"{entry.get('instead') or 'nothing'}{since}{because}"


# What a table says


def _entry(options: OptionTable, path: Path) -> Entry | None:
    """Return what a table says of a flag or of a key inside a JSON flag; an untyped key is ``any``."""
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


def _entry_gone(path: Path, older: Side, newer: Side) -> bool:
    """Return whether what a key lies in is missing in one of the releases."""
    return any(_entry(side.table, path[:-1]) is None for side in (older, newer))


def _paths(options: OptionTable) -> Iterator[Path]:
    for name, entry in options.flags.items():
        yield from _paths_below((name,), entry)


def _paths_below(path: Path, entry: Any) -> Iterator[Path]:
    yield path
    for key, inner in (entry.get("keys") or {}).items() if isinstance(entry, Mapping) else ():
        yield from _paths_below((*path, str(key)), inner)


def _state(entry: Entry | None) -> str:
    return "not there" if entry is None else _takes(entry)


def _states(before: Entry | None, after: Entry | None, details: Sequence[str]) -> tuple[str, str]:
    if before and after and details and before["kind"] == after["kind"] == "choice" and len(before["values"]) > FEW:
        return f"one of {len(before['values'])} values", "; ".join(details)
    return _state(before), "; ".join(details) or _state(after)


def _differences(before: Entry, after: Entry) -> list[str]:
    """Return in words what a flag takes now that it did not, and the other way round; keys have rows of their own."""
    if before["kind"] == after["kind"] == "choice":
        old, new = [str(value) for value in before["values"]], [str(value) for value in after["values"]]
        gone, came = [value for value in old if value not in new], [value for value in new if value not in old]
        return _listed("no longer takes", gone) + _listed("takes", came)
    found = [f"now takes {_takes(after)}"] if _takes(before) != _takes(after) else []
    if before.get("negatable") and not after.get("negatable"):
        found.append("cannot be switched off any more")
    gone_names = [name for name in before.get("aliases", ()) if name not in after.get("aliases", ())]
    return found + _listed("no longer called", gone_names)


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
