# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the catalogue of faults: files on the controller, a site's own merged over the bundled ones."""

import functools
import re
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.vendor_stack.faults import ACTIONS, BACKS, DEFAULT_BACK, REPORTED, SCHEMA, SCOPES
from ..common.checks import A_NAME, ANY_TEXT, MAPPING, NAME, Check, problem_of, text_check
from ..common.overlay import overlay
from ..common.places import CATALOG
from ..common.yaml import UnreadableError, read_yaml

BUNDLED = CATALOG / "faults"
OPTION = "health_fault_path"
# The file whose faults concern every host.


class FaultsError(ValueError):
    """A file of the catalogue is wrong; the message names the file and the key and is the whole sentence."""


def _is_regex(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(value) and re.compile(value) is not None
    except re.error:
        return False


def _one_of(values: Sequence[str]) -> Check:
    return lambda value: value in values, f"one of {', '.join(values)}"


TRUE_OR_FALSE: Check = (lambda value: isinstance(value, bool), "true or false")
REGEX: Check = (_is_regex, "a regular expression of Python")
FILE_KEYS: dict[str, Check] = {"vendor": A_NAME, "stack": A_NAME, "sources": MAPPING, "kinds": MAPPING}
KIND_KEYS: dict[str, Check] = {
    "what": ANY_TEXT,
    "source": A_NAME,
    "scope": _one_of(SCOPES),
    "needle": text_check(r".{3,}", "a text of three characters or more"),
    "pattern": REGEX,
    "prefix": REGEX,
    "suffixes": MAPPING,
    "faults": MAPPING,
}
FAULT_KEYS: dict[str, Check] = {
    "meaning": ANY_TEXT,
    "action": _one_of(ACTIONS),
    "back": _one_of(BACKS),
    "application": TRUE_OR_FALSE,
    "clears": TRUE_OR_FALSE,
    "source": A_NAME,
    "pattern": REGEX,
}
REQUIRED = {"file": ("sources", "kinds"), "kind": ("what", "source", "faults"), "fault": ("meaning", "action")}


def load_faults(directories: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return the bundled catalogue by vendor, with the files of ``directories`` over it; the first directory wins.

    Read once per process. Raises FaultsError.
    """
    return _load(tuple(str(directory) for directory in directories))


def faults_of_host(stack: str, directories: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a host of a stack has to know, as the service there reads it (``FaultBook.from_document``)."""
    kinds = {}
    for data in load_faults(directories).values():
        if data.get("stack", stack) == stack:
            kinds.update({name: _for_host(kind) for name, kind in data["kinds"].items()})
    return {"schema": SCHEMA, "kinds": kinds}


def _for_host(kind: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("scope", "needle", "pattern", "prefix", "suffixes")
    faults = {
        code: {
            "meaning": fault["meaning"],
            "action": fault["action"],
            "back": fault.get("back") or DEFAULT_BACK.get(fault["action"], ""),
            **{key: fault[key] for key in ("pattern", "clears") if key in fault},
        }
        for code, fault in kind["faults"].items()
    }
    return {**{key: kind[key] for key in keys if key in kind}, "faults": faults}


@functools.lru_cache(maxsize=None)
def _load(directories: tuple[str, ...]) -> Mapping[str, Any]:
    vendors: dict[str, dict[str, Any]] = {}
    for directory in (BUNDLED, *(Path(name) for name in reversed(directories))):
        for path in _files(directory):
            data = _read(path)
            merged = overlay(vendors.get(path.stem, {}), data)
            _check_whole(path, merged)
            vendors[path.stem] = merged
    return vendors


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise FaultsError(f"{OPTION}: {directory} is not a directory on the controller")
    files = sorted(path for path in directory.iterdir() if path.suffix == ".yml")
    if not files:
        raise FaultsError(f"{OPTION}: {directory} has no *.yml file")
    return files


@functools.lru_cache(maxsize=None)
def _read(path: Path) -> Mapping[str, Any]:
    """Return one file, every key of it checked."""
    try:
        data = read_yaml(path)
    except UnreadableError as exc:
        raise FaultsError(str(exc)) from exc
    _check(path, "", data, FILE_KEYS)
    if data.get("vendor") != path.stem:
        raise FaultsError(
            f"{path}: vendor: found {show_value(data.get('vendor'))}, expected the name of the file, {path.stem!r}"
        )
    for name, kind in _entries(path, data, "kinds", NAME):
        _check(path, f"kinds.{name}", kind, KIND_KEYS)
        for suffix, pattern in kind.get("suffixes", {}).items():
            if not A_NAME[0](suffix) or not _is_regex(pattern):
                raise FaultsError(f"{path}: kinds.{name}.suffixes.{suffix}: expected a name and {REGEX[1]}")
        for code, fault in _entries(path, kind, "faults", r".+", f"kinds.{name}."):
            _check(path, f"kinds.{name}.faults.{code}", fault, FAULT_KEYS)
    return dict(data)


def _entries(
    path: Path, data: Mapping[str, Any], section: str, pattern: str, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for key, entry in data.get(section, {}).items():
        if not isinstance(key, str) or not re.fullmatch(pattern, key):
            raise FaultsError(f"{path}: {prefix}{section}: found the key {show_value(key)}, expected a text in quotes")
        yield key, entry


def _check(path: Path, where: str, value: Any, known: Mapping[str, Check], required: Sequence[str] = ()) -> None:
    problem = problem_of(value, known, where, required)
    if problem:
        raise FaultsError(f"{path}: {problem}")


def _check_whole(path: Path, data: Mapping[str, Any]) -> None:
    """Check what holds for a file together with those below it."""
    _check(path, "", data, FILE_KEYS, REQUIRED["file"])
    for name, kind in data["kinds"].items():
        where = f"kinds.{name}"
        _check(path, where, kind, KIND_KEYS, REQUIRED["kind"])
        _check_source(path, where, kind, data["sources"])
        if "code" not in _groups(kind.get("pattern", "(?P<code>)")):
            raise FaultsError(f"{path}: {where}.pattern: has no group (?P<code>...)")
        for code, fault in kind["faults"].items():
            place = f"{where}.faults.{code}"
            _check(path, place, fault, FAULT_KEYS, REQUIRED["fault"])
            _check_source(path, place, fault, data["sources"])
            _check_action(path, place, fault)
            base, _dot, suffix = code.rpartition(".")
            if base in kind["faults"] and suffix not in kind.get("suffixes", {}):
                near = nearest(suffix, kind.get("suffixes", {}))
                raise FaultsError(f"{path}: {place}: no suffix {suffix!r} in {where}.suffixes; {near}")


def _groups(pattern: str) -> Mapping[str, int]:
    return re.compile(pattern).groupindex


def _check_source(path: Path, where: str, entry: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    source = entry.get("source")
    if source is not None and source not in sources:
        raise FaultsError(f"{path}: {where}.source: found {show_value(source)}; {nearest(source, sources)}")


def _check_action(path: Path, where: str, fault: Mapping[str, Any]) -> None:
    action = fault["action"]
    if fault.get("application") and action not in REPORTED:
        raise FaultsError(
            f"{path}: {where}.action: found {action}, expected {' or '.join(REPORTED)}: a program caused this fault, "
            "so it takes no chip out of service"
        )
    if "back" in fault and action in REPORTED:
        raise FaultsError(f"{path}: {where}.back: {action} takes nothing out of service, so nothing comes back")
