# SPDX-License-Identifier: GPL-3.0-or-later
"""Check arguments and variables against what one vLLM release accepts, before any host is contacted.

Every problem is one sentence for the user. The tables come from catalog/options/; see docs/reference/options.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

from ...module_utils.common.spelling import misspelt, nearest, slip
from ..common.versions import satisfies, sort_key
from .values import (
    JSON_LISTS,
    WORDS,
    Entry,
    decoded,
    described,
    expected,
    fits,
    is_added,
    is_port,
    is_unlisted,
    key_problems,
    near_value,
    reads,
)

SHORT_LEVEL = re.compile(r"-O=?\w+\Z")

FLAG_KINDS = ("switch", "integer", "number", "text", "choice", "list", "json")
VARIABLE_KINDS = ("boolean", "choice", "integer", "json", "level", "number", "one", "stream", "switch", "text")

# What a variable of a kind is to be, where it is not what a flag of the kind takes.
_READ_AS = {kind: "one of " + ", ".join(WORDS[kind]) for kind in ("level", "stream")}
_READ_AS |= {**dict.fromkeys(("boolean", "one", "switch"), "0 or 1"), "json": "JSON"}

# The flag whose keys a plugin of vLLM defines.
ADDITIONAL = "additional-config"
# The releases of vllm-ascend that refuse keys which they do not know.
EXACT = ">=0.30.0rc0"
# The flag and the key that name a connector, and the key that names its module.
CONNECTOR = ("kv-transfer-config", "kv_connector", "kv_connector_module_path")

# What libraries read, in `listed` of foreign.yml.
VARIABLES = "environment"
# For a name that no longer exists: its replacement ("instead") and the release of the change ("since").
Replaced = Mapping[str, Mapping[str, str]]


class OptionTableError(ValueError):
    """A table of options is malformed; the message is the whole sentence."""


class Unknown(str):
    """A problem with a name that no table has; a nightly build may have it."""


class Doubt(str):
    """A possible problem: vLLM's types list some values, but other code of vLLM may accept more."""


class Flag(NamedTuple):
    """One flag of a table: ``-cc.pass_config.x`` is compilation-config with the keys (pass_config, x)."""

    name: str
    keys: tuple[str, ...] = ()
    off: bool = False


class Foreign(NamedTuple):
    """Variables of libraries below vLLM (names, prefixes, what some are read as), and what a plugin of vLLM adds.

    That are the values that it registers, and the prefix of its own variables. ``listed`` are names of vLLM's own by
    the flag, keys of --additional-config, and variables of libraries: the releases that have them, and their names by
    their common beginning. ``until`` are the releases that read a variable of the plugin.
    """

    names: frozenset[str]
    prefixes: tuple[str, ...]
    values: frozenset[str] = frozenset()
    plugin: str = ""
    env: Mapping[str, Entry] = {}
    listed: Mapping[str, Sequence[tuple[str, Mapping[str, Sequence[str]]]]] = {}
    until: Mapping[str, str] = {}

    @classmethod
    def from_data(cls, data: Mapping[str, Mapping[str, Any]], stack: str | None = None) -> Foreign:
        """Return the variables of every stack and of ``stack`` (None: of all stacks) from the content of foreign.yml.

        Raises OptionTableError for an unknown stack.
        """
        if stack is not None and stack not in data:
            raise OptionTableError(f"no foreign variables for the stack {stack!r}; {nearest(stack, data)}")
        parts = [part for name, part in data.items() if stack is None or name in ("all", stack)]
        env = {name: entry for part in parts for name, entry in _variables(part.get("env") or {}, "foreign.yml")}
        names = frozenset(env) | {name for part in parts for name in part.get("names", ())}
        values = frozenset(value for part in parts for value in part.get("values", ()))
        plugin = next((str(part["plugin"]) for part in parts if part.get("plugin")), "")
        prefixes = tuple(sorted({prefix for part in parts for prefix in part.get("prefixes", ())}))
        specs = [pair for part in parts for pair in (part.get("listed") or {}).items()]
        listed = {flag: [pair for name, one in specs if name == flag for pair in one.items()] for flag, _one in specs}
        until = {name: spec for part in parts for spec, gone in (part.get("until") or {}).items() for name in gone}
        return cls(names, prefixes, values, plugin, env, listed, until)

    def names_of(self, flag: str, version: str | None = None) -> set[str]:
        """Return what a release of vLLM (None: any) has for a flag (chat templates, connectors), or VARIABLES."""
        parts = [part for spec, part in self.listed.get(flag, ()) if version is None or satisfies(version, spec)]
        return {f"{begin}{name}" for part in parts for begin, names in part.items() for name in names}

    def of_plugin(self, name: str) -> bool:
        """Return whether a variable belongs to a plugin of vLLM."""
        return bool(self.plugin) and name.startswith(self.plugin)

    def check_keys(self, args: Mapping[str, Any], version: str) -> Iterator[str]:
        """Yield a problem for a connector that the release does not have, and for odd keys of --additional-config.

        Odd are those that no known release of the plugin reads.
        """
        yield from self._check_connector(decoded(args.get(CONNECTOR[0])), version)
        config = decoded(args.get(ADDITIONAL))
        read, known = self.names_of(ADDITIONAL, version), self.names_of(ADDITIONAL)
        for key in config if known and isinstance(config, Mapping) else ():
            text = f"--{ADDITIONAL}.{key}: vLLM's plugin on this stack has no such key"
            near = misspelt(str(key), known)
            if key in known - read:
                refuses = "; it refuses keys that it does not know" if satisfies(version, EXACT) else ""
                yield Doubt(f"{text} in release {version}{refuses}")
            elif key not in known:
                yield f"{text}; nearest: {near!r}" if near else Doubt(f"{text} in any release that is known here")

    def _check_connector(self, config: Any, version: str) -> Iterator[str]:
        flag, module = ".".join(CONNECTOR[:2]), CONNECTOR[2]
        name = config.get(CONNECTOR[1]) if isinstance(config, Mapping) and not config.get(module) else None
        known = self.names_of(flag, version)
        if isinstance(name, str) and known and name not in known and not self.plugin:
            yield Unknown(
                f"--{flag}: vLLM {version} has no connector {name!r}; {nearest(str(name), known)}; one of your own "
                f"needs {module}"
            )

    def covers(self, name: str, version: str) -> bool:
        """Return whether a library is known to read the variable ``name`` in a release of vLLM."""
        return name in self.names or name.startswith(self.prefixes) or name in self.names_of(VARIABLES, version)


@dataclass(frozen=True)
class OptionTable:
    """What one release accepts: flags by name without dashes, and its variables with what vLLM reads them as."""

    version: str
    flags: Mapping[str, Entry]
    env: Mapping[str, Entry]
    # Every spelling with its dashes -> the flag; computed from the flags.
    spellings: Mapping[str, Flag] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_data(cls, data: Any, where: str = "options") -> OptionTable:
        """Return the table of plain data (version, flags, env); ``where`` names it in errors.

        Raises OptionTableError where a part is missing or a kind is unknown.
        """
        if not isinstance(data, Mapping) or not {"version", "flags", "env"} <= set(data):
            raise OptionTableError(f"{where}: expected a mapping with version, flags and env")
        flags = data["flags"]
        if not isinstance(flags, Mapping) or not isinstance(data["env"], (Mapping, list)):
            raise OptionTableError(f"{where}: expected flags to be a mapping and env to be one or a list")
        for name, entry in flags.items():
            if not isinstance(entry, Mapping) or entry.get("kind") not in FLAG_KINDS:
                raise OptionTableError(f"{where}: flags.{name} needs a kind, one of {', '.join(FLAG_KINDS)}")
        return cls(str(data["version"]), flags, dict(_variables(data["env"], where)), dict(_spellings(flags)))

    def canonical(self, flag: str) -> Flag | None:
        """Return the flag behind a spelling, None where this release has none.

        Accepts ``--name``, ``name``, an alias (``-tp``), underscores, ``--no-name``, and dotted forms that set one key
        of a JSON flag (``-cc.pass_config.x=True``); the part after ``=`` is ignored.
        """
        word = flag if flag.startswith("-") else "--" + flag
        if SHORT_LEVEL.match(word):
            return self._level()
        head, *keys = word.partition("=")[0].split(".")
        found = self.spellings.get(head.replace("_", "-") if head.startswith("--") else head)
        if found is None:
            return None
        # --x.list+ adds to a list
        return found._replace(keys=tuple(key[:-1] if key.endswith("+") else key for key in keys))

    def _level(self) -> Flag | None:
        # -O3: its own flag since 0.13, before that a key of the compilation config.
        if "optimization-level" in self.flags:
            return Flag("optimization-level")
        short = self.spellings.get("-O")
        return short._replace(keys=("level",)) if short else None

    def check_args(
        self,
        args: Mapping[str, Any],
        others: Iterable[OptionTable] = (),
        replaced: Replaced | None = None,
        added: Collection[str] = (),
    ) -> list[str]:
        """Return what this release would refuse or ignore of ``args`` (flag, dashes or not: value), in their order.

        ``others`` are the tables of other releases: the message on an unknown flag names those that have it.
        ``replaced`` holds the replacements of removed names, ``added`` the values that plugins register. The value None
        means that the flag is not passed. Problems with unknown names are of the class Unknown.
        """
        others = tuple(others)
        problems: list[str] = []
        seen: dict[tuple[str, tuple[str, ...]], str] = {}
        for spelling, value in args.items():
            if value is None:
                continue
            flag = self.canonical(spelling)
            if flag is None:
                problems.append(Unknown(self._unknown_flag(spelling, others, replaced or {})))
                continue
            first = seen.setdefault((flag.name, flag.keys), spelling)
            if first != spelling:
                problems.append(f"{_dashed(spelling)} and {_dashed(first)} set the same flag of vLLM; keep one of them")
            problems.extend(self._check_flag(spelling, flag, value, others, replaced or {}, added))
            problems.extend(self._check_registered(spelling, flag, value, args, others))
        return problems

    def _check_registered(
        self, spelling: str, flag: Flag, value: Any, args: Mapping[str, Any], others: Sequence[OptionTable]
    ) -> Iterator[str]:
        """Yield a problem for a name that the release does not register, unless a plugin of the site's may."""
        entry = self.flags[flag.name]
        known, plugin = entry.get("known") or (), entry.get("plugin")
        if not plugin or flag.keys or str(value) in known or value == "" or value is False:
            return
        if any(self.canonical(name) == Flag(plugin) and args[name] for name in args):
            return
        having = [table for table in others if str(value) in (table.flags.get(flag.name, {}).get("known") or ())]
        yield Unknown(
            f"{_dashed(spelling)}: vLLM {self.version} has no parser {value!r}{_history(self.version, having)}; "
            f"{nearest(str(value), known)}; one of your own needs --{plugin}"
        )

    def check_env(
        self,
        names: Iterable[str],
        foreign: Foreign,
        others: Iterable[OptionTable] = (),
        replaced: Replaced | None = None,
    ) -> list[str]:
        """Return a problem for each variable that neither this release nor a library of ``foreign`` reads."""
        others = tuple(others)
        problems: list[str] = []
        for name in names:
            if not satisfies(self.version, foreign.until.get(name, ">=0")):
                problems.append(
                    Doubt(f"{name}: vLLM's plugin on this stack does not read it in release {self.version}")
                )
                continue
            if name in self.env or foreign.covers(name, self.version):
                continue
            if foreign.of_plugin(name):
                problems.append(_of_plugin(name, foreign))
                continue
            if name.startswith("VLLM_"):
                history = _history(self.version, [table for table in others if name in table.env])
                hint = (
                    nearest(name, self.env)
                    if misspelt(name, self.env)
                    else "no variable of this release has a similar name"
                )
                hint = _instead(name, self.version, replaced or {}) or hint
                problems.append(Unknown(f"{name}: vLLM {self.version} does not read this variable{history}; {hint}"))
            else:
                # Another name may do harm: NCCL_IB_DISABLE for a plugin's NCCL_IBEXT_DISABLE switches InfiniBand off.
                near = slip(name, {*self.env, *foreign.names, *foreign.names_of(VARIABLES, self.version)})
                hint = f"nearest: {near!r}" if near else "it may have no effect"
                hint = "that of another release does" if name in foreign.names_of(VARIABLES) else hint
                problems.append(
                    f"{name}: neither vLLM {self.version} nor a library on this stack is known to read it; {hint}"
                )
        return problems

    def check_values(self, env: Mapping[str, Any], foreign: Mapping[str, Entry] | None = None) -> Iterator[str]:
        """Yield a problem for each variable whose value this release or a library (``foreign``) cannot read."""
        for name, value in env.items():
            entry = self.env.get(name) or (foreign or {}).get(name, {"kind": "text"})
            port = is_port(name, entry)
            if value is not None and not (reads(entry, str(value)) and (not port or 0 <= int(value) < 65536)):
                right = "the number of a port" if port else _READ_AS.get(entry["kind"]) or expected(entry)
                yield f"{name}: expected {right}, found {described(value)}{near_value(entry, value)}"

    def _unknown_flag(self, spelling: str, others: Sequence[OptionTable], replaced: Replaced) -> str:
        history = _history(self.version, [table for table in others if table.canonical(spelling)])
        name = spelling.partition("=")[0].split(".")[0].lstrip("-").replace("_", "-")
        short = self.spellings.get(f"-{name}")
        # A short alias is not a valid name in a file.
        hint = (
            f"nearest: {short.name!r}"
            if short
            else nearest(name, [text[2:] for text in self.spellings if text[1] == "-"])
        )
        hint = hint if hint.startswith("nearest") else "no flag has a similar name"
        hint = _instead(name, self.version, replaced) or hint
        return f"{_dashed(spelling)}: vLLM {self.version} has no such flag{history}; {hint}"

    def _check_flag(
        self,
        spelling: str,
        flag: Flag,
        value: Any,
        others: Sequence[OptionTable],
        replaced: Replaced,
        added: Collection[str],
    ) -> Iterator[str]:
        entry = self.flags[flag.name]
        if "deprecated" in entry:
            yield Doubt(f"{_dashed(spelling)}: deprecated in vLLM {self.version}, which says: {entry['deprecated']}")
        if "=" in spelling:
            value = decoded(spelling.partition("=")[2])
        if flag.keys and entry["kind"] != "json":
            yield f"{_dashed(spelling)}: --{flag.name} takes {expected(entry)}, it has no keys to set"
        elif flag.keys:
            for key in reversed(flag.keys):
                value = {key: decoded(value)}
            yield from self._check_json(flag.name, entry, value, others, replaced, added)
        elif entry["kind"] == "json":
            yield from self._check_json(flag.name, entry, value, others, replaced, added)
        elif value is False and (flag.off or not entry.get("negatable")):
            way_out = f"write --{flag.name}: true" if flag.off else "leave it out"
            yield f"{_dashed(spelling)}: vLLM {self.version} has no --no-{_dashed(spelling)[2:]}; {way_out}"
        elif not fits(entry, value) and not is_added(entry, value, added):
            yield f"{_dashed(spelling)}: expected {expected(entry)}, found {described(value)}{near_value(entry, value)}"
        elif is_unlisted(entry, value, added):
            hint = nearest(str(value), entry["known"])
            yield Unknown(f"{_dashed(spelling)}: vLLM {self.version} has no {value!r}; {hint}")
        elif (
            "known" in entry
            and not entry.get("closed")
            and "plugin" not in entry
            and str(value) not in entry["known"]
            and misspelt(str(value), entry["known"])
        ):
            hint = nearest(str(value), entry["known"])
            yield Doubt(f"{_dashed(spelling)}: the types of vLLM {self.version} do not name {value!r}; {hint}")

    def _check_json(
        self,
        name: str,
        entry: Entry,
        value: Any,
        others: Sequence[OptionTable],
        replaced: Replaced,
        added: Collection[str],
    ) -> Iterator[str]:
        value = decoded(value)
        if isinstance(value, Mapping) and name not in JSON_LISTS:
            for path, problem in key_problems(entry, value, (), added):
                history = ""
                if problem.startswith("no such key"):
                    history = _history(self.version, [table for table in others if table.has_key((name, *path))])
                    history += _clause(_instead(".".join((name, *path)), self.version, replaced))
                text = f"--{name}.{'.'.join(path)}: " + problem.format(version=f"vLLM {self.version}", history=history)
                yield Unknown(text) if problem.startswith("no such") else text
        elif not _can_be_json(name, entry, value):
            right = "a list (JSON)" if name in JSON_LISTS else expected(entry)
            yield f"--{name}: expected {right}, found {described(value)}"

    def has_key(self, path: Sequence[str]) -> bool:
        """Return whether this release types the JSON key ``path``: the flag's name, then the keys."""
        entry: Any = self.flags.get(path[0], {})
        for key in path[1:]:
            entry = entry.get("keys", {}).get(key) if isinstance(entry, Mapping) else None
            if entry is None:
                return False
        return bool(entry)


def _can_be_json(name: str, entry: Entry, value: Any) -> bool:
    """Return whether a flag of JSON may have a value that is no mapping: a list, or a text such as a path."""
    if isinstance(value, str):
        return bool(entry.get("text")) and "keys" not in entry and value.lstrip()[:1] != "{"
    return name in JSON_LISTS and isinstance(value, (list, tuple))


def _variables(env: Mapping[str, Any] | Sequence[str], where: str) -> Iterator[tuple[str, Entry]]:
    """Yield each variable with its entry, from the names of each kind, or from a list of names alone."""
    for kind, names in env.items() if isinstance(env, Mapping) else [("text", env)]:
        if kind not in VARIABLE_KINDS:
            raise OptionTableError(f"{where}: env.{kind}: no such kind; {nearest(str(kind), VARIABLE_KINDS)}")
        for name in names:
            yield str(name), {**(names[name] if isinstance(names, Mapping) else {}), "kind": kind}


def _spellings(flags: Mapping[str, Entry]) -> Iterator[tuple[str, Flag]]:
    for name, entry in flags.items():
        words = ["--" + name, *entry.get("aliases", ())]
        for word in words:
            yield word, Flag(name)
            if entry.get("negatable") and word.startswith("--"):
                yield "--no-" + word[2:], Flag(name, off=True)
        for word in entry.get("inverse", ()):
            yield word, Flag(name, off=True)
            yield "--no-" + word[2:], Flag(name)


def _instead(name: str, version: str, replaced: Replaced) -> str:
    """Return the replacement of a name in this release, empty where none is recorded."""
    entry = replaced.get(name) or {}
    since = str(entry.get("since") or "0")
    return f"instead: {entry['instead']}" if "instead" in entry and sort_key(version) >= sort_key(since) else ""


def _of_plugin(name: str, foreign: Foreign) -> str:
    """Return the problem of a plugin's variable that no known release reads; a newer one may, unless it is misspelt."""
    # The common beginning would make all of them alike.
    begin = len(foreign.plugin)
    near = misspelt(name[begin:], [known[begin:] for known in foreign.names if foreign.of_plugin(known)])
    if near:
        return f"{name}: vLLM's plugin on this stack does not read this variable; nearest: '{foreign.plugin}{near}'"
    return Doubt(
        f"{name}: no release of vLLM's plugin that is known here reads this variable, so it may have no effect"
    )


def _clause(text: str) -> str:
    return f", {text}" if text else ""


def _dashed(flag: str) -> str:
    return flag if flag.startswith("-") else "--" + flag


def _history(version: str, having: Sequence[OptionTable]) -> str:
    """Return since or until when a name exists, as a clause that starts with a comma; ``having`` are its releases."""
    known = sorted((table.version for table in having), key=sort_key)
    older = [name for name in known if sort_key(name) < sort_key(version)]
    newer = [name for name in known if sort_key(name) > sort_key(version)]
    if older:
        return f", the last release here that has it is {older[-1]}"
    return f", the first release here that has it is {newer[0]}" if newer else ""
