# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the option tables of vLLM's releases from catalog/options/ on the controller."""

import functools
import re
from pathlib import Path
from typing import Any, Mapping, Sequence

import yaml

from ..common.places import CATALOG
from ..common.versions import sort_key
from ..options.restricted import Restrictions
from ..options.table import Foreign, OptionTable, OptionTableError

BUNDLED = CATALOG / "options"
# The C parser reads a table in 0.05 s, the other one in 0.5 s.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
RELEASE = re.compile(r"[0-9]+(\.[0-9]+)+\Z")
# Limits of numbers whose entry in a release has none: before 0.13.0 vLLM compares them in code (_verify_args of
# vllm/config/cache.py of 0.11.0) that tools/vllm/limits.py does not read, or not at all. The fit believes them.
LIMITS: Mapping[str, Mapping[str, int]] = {
    "gpu-memory-utilization": {"gt": 0, "le": 1},
    "max-model-len": {"ge": 1},
    "max-num-batched-tokens": {"ge": 1},
    "max-num-seqs": {"ge": 1},
}


def releases(directory: Path = BUNDLED) -> list[str]:
    """Return the releases that have a table, oldest first."""
    names = [path.stem for path in directory.glob("*.yml") if RELEASE.match(path.stem)]
    return sorted(names, key=sort_key)


@functools.lru_cache(maxsize=None)
def load_table(version: str, directory: Path = BUNDLED) -> OptionTable:
    """Return the table of one release; read once per process.

    Raises OptionTableError for a release without a table and for an invalid file.
    """
    path = directory / f"{version}.yml"
    if version not in releases(directory):
        raise OptionTableError(
            f"no option table for vLLM {version} in {directory}; there are {', '.join(releases(directory)) or 'none'}; "
            f"make it with: tools/vllm/read_options.py {version} > catalog/options/{version}.yml"
        )
    data = _read(path)
    table = OptionTable.from_data(data, str(path))
    for name, limits in LIMITS.items():
        entry = data["flags"].get(name, {})
        if not {"gt", "ge"} & set(entry):
            entry.update(limits)
    if table.version != version:
        raise OptionTableError(f"{path}: holds the table of vLLM {table.version}, expected {version}")
    return table


def other_tables(version: str, directory: Path = BUNDLED) -> tuple[OptionTable, ...]:
    """Return the tables of all other releases, which show since and until when a flag exists."""
    return tuple(load_table(name, directory) for name in releases(directory) if name != version)


@functools.lru_cache(maxsize=None)
def load_foreign(stack: str | None = None, directory: Path = BUNDLED) -> Foreign:
    """Return the variables that libraries below vLLM read on ``stack`` (None: on any); read once per process."""
    path = directory / "foreign.yml"
    data = _read(path)
    if not isinstance(data, dict) or not all(isinstance(part, dict) for part in data.values()):
        raise OptionTableError(f"{path}: expected a mapping of stacks, each with names and prefixes")
    return Foreign.from_data(data, stack)


@functools.lru_cache(maxsize=None)
def load_replaced(directory: Path = BUNDLED) -> Mapping[str, Mapping[str, str]]:
    """Return the replacements of removed flags, keys and variables, by their names."""
    path = directory / "replaced.yml"
    data = _read(path)
    if not isinstance(data, dict) or not all(isinstance(entry, dict) and "instead" in entry for entry in data.values()):
        raise OptionTableError(f"{path}: expected a mapping of names, each with instead")
    return data


@functools.lru_cache(maxsize=None)
def load_exclusive(directory: Path = BUNDLED) -> Sequence[Mapping[str, Any]]:
    """Return the groups of settings that exclude each other, each with the reason."""
    path = directory / "exclusive.yml"
    data = _read(path)
    if not isinstance(data, list) or not all(isinstance(entry, dict) and "settings" in entry for entry in data):
        raise OptionTableError(f"{path}: expected a list of groups, each with settings and because")
    # A backend of attention has two spellings.
    named = [(entry, entry["settings"]) for entry in data if isinstance(entry["settings"], dict)]
    other = [(entry, found["attention-backend"]) for entry, found in named if "attention-backend" in found]
    return [*data, *({**entry, "settings": {"attention-config.backend": kernels}} for entry, kernels in other)]


@functools.lru_cache(maxsize=None)
def load_restrictions(directory: Path = BUNDLED) -> Restrictions:
    """Return the settings that a recipe cannot make alone, each with the reason, and those that it can."""
    path, listed = directory / "permissions.yml", directory / "recipe_settings.yml"
    return Restrictions.from_data(_read(path), str(path), Restrictions.allowing(_read(listed), str(listed)))


def _read(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)  # noqa: S506 (a safe loader)
    except OSError as exc:
        raise OptionTableError(f"{path}: {exc.strerror}") from exc
    except yaml.YAMLError as exc:
        raise OptionTableError(f"{path}: not YAML: {exc}") from exc
