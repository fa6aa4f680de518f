#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read every flag and every environment variable of a vLLM release from its wheel.

    tools/vllm/read_options.py 0.33.0 > catalog/options/0.33.0.yml
    tools/vllm/read_options.py 0.33.0 --wheel FILE | --site-packages DIR

Needs neither torch nor the release's other requirements, only Python 3.10. vLLM is never imported: its sources are
read with ``ast``, and the few functions that build the command line (``make_arg_parser``, ``add_cli_args``,
``get_kwargs`` and what they call in the argument modules) are run as they stand, on the release's own parser class.
The config classes that they ask for are rebuilt from the annotations in the sources, and every other name is a
stand-in. So the rules that turn a type into a flag are the release's own. Only --real imports vLLM and builds its
real parser, in an environment that has one (a CPU build); the tests compare the two.

Only wheels that you trust: the argument modules' code runs here.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import json
import re
import subprocess
import sys
import tempfile
import types
import typing
import zipfile
from pathlib import Path
from typing import Any, Mapping, Sequence

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from tools.vllm.limits import Alias, Limits  # noqa: E402
from tools.vllm.modules import Sources, registered  # noqa: E402
from tools.vllm.variables import Getters, getters_of, kinds_of, lines_of  # noqa: E402

# Where a release builds the command line of `vllm serve`: newest first.
CLI_MODULES = (
    "vllm.entrypoints.common.cli_args",  # 0.33
    "vllm.entrypoints.launchers.cli_args",  # 0.32
    "vllm.entrypoints.openai.cli_args",  # 0.25 and older
)
HEADS = {"int": "integer", "float": "number", "str": "text"}
SUFFIXED = {"human_readable_int", "human_readable_int_or_auto"}
# Depth of JSON keys: compilation-config.pass_config.x is the deepest in use; one more for safety.
DEPTH = 3
# The kinds of which a list of JSON is known to consist; the items of others are not checked.
ITEMS = ("choice", "integer", "number", "text")


class ReadError(Exception):
    """A release cannot be read; the message is the whole sentence."""


# --- the parser ------------------------------------------------------------------------------------------------------


def source_parser(root: Path) -> tuple[argparse.ArgumentParser, Any]:
    """Return the parser and the class VllmConfig of the release whose packages lie in ``root``."""
    sources = Sources(root)
    name = next((name for name in CLI_MODULES if sources.module(name)), None)
    if name is None:
        raise ReadError(f"{root}: no vLLM with a known command line; expected one of {', '.join(CLI_MODULES)}")
    home = "vllm.utils.argparse_utils" if sources.module("vllm.utils.argparse_utils") else "vllm.utils"
    flexible = sources.get(home, "FlexibleArgumentParser")
    parser = sources.get(name, "make_arg_parser")(flexible(add_help=False))
    return parser, sources.get("vllm.config", "VllmConfig")


def real_parser() -> tuple[argparse.ArgumentParser, Any]:
    """Return the real parser of the vLLM that this Python can import, and its class VllmConfig."""
    for name in CLI_MODULES:
        try:
            make = importlib.import_module(name).make_arg_parser
            break
        except ModuleNotFoundError as exc:
            if not name.startswith(str(exc.name)):
                raise
    else:
        raise ReadError(f"no vLLM with a known command line; expected one of {', '.join(CLI_MODULES)}")
    try:
        flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    except ModuleNotFoundError:
        flexible = importlib.import_module("vllm.utils").FlexibleArgumentParser
    return make(flexible(add_help=False)), importlib.import_module("vllm.config").VllmConfig


# --- what an argument takes ------------------------------------------------------------------------------------------


def flags(parser: argparse.ArgumentParser, config: Any) -> dict[str, dict[str, Any]]:
    """Return each flag's entry by its name without dashes: kind, aliases, values, keys."""
    found: dict[str, dict[str, Any]] = {}
    for action in parser._actions:
        # Not action.option_strings: 0.33 leaves names out there that parse.
        names = [name for name, owner in parser._option_string_actions.items() if owner is action]
        opposites = _opposites(action, names)
        names = [name for name in names if name not in opposites]
        if not names:
            continue
        main = next(name for name in names if name.startswith("--"))
        entry = describe(action)
        inverse = sorted(name for name in opposites if not name.startswith("--no-"))
        if inverse:
            entry["inverse"] = inverse
        if entry["kind"] == "json" and "keys" not in entry:
            # Read as plain JSON here, and as this class a moment later (--speculative-config). Its inner classes are
            # complete model and parallel configs that vLLM fills in: users set only the first level.
            entry.update(_keys(_field_class(config, action.dest), DEPTH - 1))
        aliases = sorted(name for name in names if name != main)
        found[main[2:]] = {**entry, **({"aliases": aliases} if aliases else {})}
    return found


def _opposites(action: argparse.Action, names: Sequence[str]) -> set[str]:
    """Return the names that negate the others: ``--no-x``, in 0.33 ``--disable-x`` too."""
    if not isinstance(action, argparse.BooleanOptionalAction):
        return set()
    return {name for name in names if name.startswith("--no-")} | set(getattr(action, "negative_option_strings", ()))


def _field_class(config: Any, name: str) -> Any:
    for field in dataclasses.fields(config) if dataclasses.is_dataclass(config) else ():
        if field.name == name:
            return next((hint for hint in _members_of(_hints(config)[name]) if dataclasses.is_dataclass(hint)), None)
    return None


# Where a release registers its parsers: the flag, the folders that may hold them (newest first), the name of the
# dictionary in the folder's __init__.py, the class whose decorator did it until 0.11, and the flag that adds parsers of
# one's own.
PARSERS = (
    (
        "tool-call-parser",
        ("vllm/tool_parsers", "vllm/entrypoints/openai/tool_parsers"),
        "_TOOL_PARSERS_TO_REGISTER",
        "ToolParserManager",
        "tool-parser-plugin",
    ),
    (
        "reasoning-parser",
        ("vllm/reasoning",),
        "_REASONING_PARSERS_TO_REGISTER",
        "ReasoningParserManager",
        "reasoning-parser-plugin",
    ),
)


def with_parsers(found: Mapping[str, dict[str, Any]], root: Path) -> dict[str, dict[str, Any]]:
    """Return the flags with the names of the parsers that the release in ``root`` registers, which are a text to it."""
    whole = dict(found)
    for flag, folders, variable, manager, plugin in PARSERS:
        names: list[str] = []
        for folder in folders:
            names = names or _keys_of(root / folder / "__init__.py", variable) or registered(root / folder, manager)
        # Where the parsers are the flag's choices, it has them already.
        if names and whole.get(flag, {}).get("kind") == "text":
            extension = {"plugin": plugin} if plugin in whole else {}
            whole[flag] = {**whole[flag], "known": sorted(names), **extension}
    return whole


def _keys_of(path: Path, variable: str) -> list[str]:
    """Return the keys of a dictionary that a file assigns to a variable, empty without it."""
    if not path.is_file():
        return []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if any(isinstance(one, ast.Name) and one.id == variable for one in targets) and isinstance(value, ast.Dict):
            return [str(key.value) for key in value.keys if isinstance(key, ast.Constant)]
    return []


def describe(action: argparse.Action) -> dict[str, Any]:
    """Return the values that an argument accepts, in the terms of the option tables."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return {"kind": "switch", "negatable": True}
    if action.nargs == 0:
        return {"kind": "switch"}
    entry = _value_kind(action)
    if action.nargs == "?":
        entry["bare"] = True
    elif action.nargs is not None:
        entry = {"kind": "list", "of": entry.pop("kind"), **entry}
    elif isinstance(action, argparse._AppendAction):
        entry["repeat"] = True
    return entry


def _value_kind(action: argparse.Action) -> dict[str, Any]:
    kind = _unwrapped(action.type)
    name = getattr(kind, "__name__", "str")
    if action.choices:
        values = [value for value in action.choices if value not in (None, "None")]
        entry: dict[str, Any] = {"kind": "choice", "values": sorted(values)}
        if name == "<lambda>" and kind("A-B") == "a_b":
            entry.update(any_case=True, dashes=True)
        return {**entry, "none": True} if len(values) < len(list(action.choices)) else entry
    if name in SUFFIXED:
        return {"kind": "integer", "suffix": True, **({"words": ["auto"]} if name.endswith("auto") else {})}
    if kind is json.loads:
        return {"kind": "json"}
    if name == "parse_dataclass":
        return {"kind": "json", **_keys(kind.__defaults__[0], 0)}
    if name == "union_dict_and_str":
        return {"kind": "json", "text": True}
    entry = {"kind": HEADS.get(name, "text")}
    # Literal | str: vLLM's own values, and those that a plugin registers.
    return {**entry, "known": sorted(action.metavar)} if isinstance(action.metavar, (list, tuple)) else entry


def _unwrapped(kind: Any) -> Any:
    """Return the type inside vLLM's ``optional_type(parse_type(X))``."""
    while getattr(kind, "__name__", "") in ("_optional_type", "_parse_type"):
        cells = dict(zip(kind.__code__.co_freevars, kind.__closure__))
        kind = cells["return_type"].cell_contents
    return kind


# --- the keys of a JSON argument -------------------------------------------------------------------------------------


def _keys(cls: Any, depth: int) -> dict[str, Any]:
    """Return ``{"keys": ...}`` for a config class, an empty mapping for any other type."""
    if not dataclasses.is_dataclass(cls) or depth == DEPTH:
        return {}
    hints = _hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if _settable(field)]
    return {"keys": {name: _key(hints[name], depth) for name in names}}


def _settable(field: Any) -> bool:
    # A leading underscore marks fields that vLLM fills in itself; pydantic's own Field() carries init in the default.
    return not field.name.startswith("_") and bool(field.init) and getattr(field.default, "init", None) is not False


def _hints(cls: Any) -> dict[str, Any]:
    if hasattr(cls, "__meant__"):
        return dict(cls.__meant__)
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError):  # a name that only type checkers see
        return {field.name: field.type for field in dataclasses.fields(cls)}


def _members_of(hint: Any) -> list[Any]:
    """Return the types of a union, without None."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _members_of(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return [inner for member in typing.get_args(hint) for inner in _members_of(member)]
    return [] if hint is type(None) else [hint]


def _key(hint: Any, depth: int) -> Any:
    """Return the entry of one JSON key: a kind, or a mapping with further properties."""
    members = _members_of(hint)
    cls = next((member for member in members if dataclasses.is_dataclass(member)), None)
    if cls is not None:
        return {"kind": "json", **({"text": True} if len(members) > 1 else {}), **_keys(cls, depth + 1)}
    if members and all(typing.get_origin(member) is typing.Literal for member in members):
        values = [value for member in members for value in typing.get_args(member)]
        return {"kind": "choice", "values": sorted(values, key=str)}
    if members and all(member is str or typing.get_origin(member) is typing.Literal for member in members):
        return "text"
    return _one(members[0]) if len(members) == 1 else "any"


def _one(member: Any) -> Any:
    origin = typing.get_origin(member) or member
    if origin in (list, tuple, set, frozenset):
        items = {arg for arg in typing.get_args(member) if arg is not ...}
        of = _key(items.pop(), DEPTH) if len(items) == 1 else "any"
        of = {"kind": of} if isinstance(of, str) else of
        return {**of, "kind": "list", "of": of["kind"]} if of["kind"] in ITEMS else "list"
    if origin is dict:
        return "json"
    return {bool: "boolean", int: "integer", float: "number", str: "text"}.get(origin, "any")


# --- the file --------------------------------------------------------------------------------------------------------

HEAD = """\
# What vLLM {version} accepts. Made by tools/vllm/read_options.py from the release's own sources; do not edit.
# How it was read: {how}
---
version: {version}
"""
PLAIN = re.compile(r"-{0,2}[A-Za-z_][A-Za-z0-9_.+-]*$")
WIDTH = 120
RESERVED = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def flow(value: Any) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, Alias):
        return f"*{value}"
    if isinstance(value, str) and PLAIN.match(value) and value.lower() not in RESERVED:
        return value
    return json.dumps(value)


def table(version: str, how: str, entries: Mapping[str, dict[str, Any]], env: Getters, root: Path) -> str:
    """Return the file's text, sorted: a line for each flag or for each key of a long one, and variables by kind."""
    limits = Limits(root)
    entries = limits.apply(with_parsers(entries, root))
    flags_ = [line for name in sorted(entries) for line in block(name, _sorted(entries[name]), "  ")]
    used = [name for name in sorted(limits.types) if any(f"*{name}" in line for line in flags_)]
    types_ = [line for name in used for line in _type(name, limits.types[name])]
    lines = [*(["types:", *types_] if types_ else []), "flags:", *flags_]
    lines += ["env:", *lines_of(kinds_of(env), flow)]
    return HEAD.format(version=version, how=how) + "".join(line + "\n" for line in lines)


def _type(name: str, values: Sequence[str]) -> list[str]:
    """Return the lines of a list of values, with the anchor that flags refer to."""
    return [f"  {name}: &{name}", *(f"    - {flow(value)}" for value in values)]


def block(key: str, value: Any, indent: str) -> list[str]:
    """Return ``key: value`` as lines of YAML: one where it fits, else one for each part."""
    line = f"{indent}{flow(key)}: {flow(value)}"
    if len(line) <= WIDTH or not isinstance(value, (Mapping, list)):
        return [line]
    if isinstance(value, list):
        return [f"{indent}{flow(key)}:", *(f"{indent}  - {flow(item)}" for item in value)]
    parts = [line for name in value for line in block(name, value[name], indent + "  ")]
    return [f"{indent}{flow(key)}:", *parts]


def _sorted(entry: Any) -> Any:
    """Return an entry with its kind first and JSON keys in order."""
    if not isinstance(entry, Mapping):
        return entry
    order = sorted(entry, key=lambda name: (name != "kind", name == "keys", name))
    return {
        name: {key: _sorted(entry[name][key]) for key in sorted(entry[name])} if name == "keys" else entry[name]
        for name in order
    }


def unpack(wheel: Path, target: Path) -> None:
    """Unpack the Python sources of a wheel, without its kernels, which have hundreds of MB."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target, [name for name in archive.namelist() if name.endswith((".py", "/METADATA"))])


def download(version: str, target: Path) -> Path:
    """Return the wheel of ``version``, downloaded by pip with this machine's configuration."""
    platforms = [f"manylinux{tag}_x86_64" for tag in ("1", "_2_28", "_2_31", "_2_34", "_2_35")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", "3.12", *(word for tag in platforms for word in ("--platform", tag))]
    done = subprocess.run([*command, "--dest", str(target), f"vllm=={version}"], check=False)
    wheels = sorted(target.glob("vllm-*.whl"))
    if done.returncode or not wheels:
        raise ReadError(f"pip cannot fetch vllm=={version} (its words are above); hand it over with --wheel FILE")
    return wheels[0]


def check_version(root: Path, wanted: str) -> None:
    """Raise ReadError where ``root`` holds another release than ``wanted``."""
    for path in sorted(root.glob("vllm*.dist-info/METADATA")):
        found = re.search(r"^Version: ([^+\s]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if found and found.group(1) != wanted:
            raise ReadError(f"{path} is vLLM {found.group(1)}, expected {wanted}")


def read(version: str, root: Path) -> str:
    """Return the table of the release whose packages lie in ``root``."""
    path = root / "vllm" / "envs.py"
    if not path.is_file():
        raise ReadError(f"{root}: no vLLM there (vllm/envs.py is missing); name the directory that holds vllm/")
    check_version(root, version)
    how = "its own argument code, run on classes rebuilt from its sources (no import of vLLM)"
    env = getters_of(path)
    if env is None:
        raise ReadError(f"{path}: no environment_variables there; this release keeps its variables in another place")
    return table(version, how, flags(*source_parser(root)), env, root)


def real() -> str:
    """Return the table of the vLLM that this Python imports, from its real parser and its real dict of variables."""
    package = importlib.import_module("vllm")
    version, root = package.__version__.partition("+")[0], Path(str(package.__file__)).parents[1]
    env = importlib.import_module("vllm.envs").environment_variables
    return table(version, "the real parser, built by an imported vLLM", flags(*real_parser()), env, root)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="release, like 0.33.0")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--wheel", type=Path, help="wheel of that release (else pip downloads it)")
    source.add_argument("--site-packages", type=Path, help="directory that holds vllm/, installed or unpacked")
    source.add_argument("--real", action="store_true", help="import vLLM and build its real parser (needs a CPU build)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Print the table of a release."""
    options = arguments(words)
    # The argument code looks for --help and serve among the words of the command line: ours must not reach it.
    sys.argv = sys.argv[:1]
    try:
        if options.real:
            print(real(), end="")
        elif options.site_packages:
            print(read(options.version, options.site_packages), end="")
        else:
            with tempfile.TemporaryDirectory() as scratch:
                wheel = options.wheel or download(options.version, Path(scratch))
                unpack(wheel, Path(scratch) / "site")
                print(read(options.version, Path(scratch) / "site"), end="")
    except (ReadError, OSError, zipfile.BadZipFile) as exc:
        print(f"read_options: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
