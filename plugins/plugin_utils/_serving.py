# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read recipes and releases for the plan: files on the controller, the site's own before the bundled ones."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any, Mapping, Sequence

import yaml
from ansible_collections.baremetal.inference.plugins.module_utils._names import nearest
from ansible_collections.baremetal.inference.plugins.module_utils._plan import PlanError

CATALOG = Path(__file__).resolve().parents[2] / "catalog"

# What one file of each part of the catalogue is called in an error.
WORDS = {"recipes": "recipe", "releases": "release", "weights": "manifest of weights"}

# What upstream's schema knows, by section. A key outside of it would be dropped in silence, so it is an error.
RECIPE_KEYS = {
    "": (
        "meta", "model", "dependencies", "features", "opt_in_features", "variants", "presets",
        "compatible_strategies", "hardware_overrides", "strategy_overrides", "guide",
    ),
    "model": (
        "model_id", "min_vllm_version", "docker_image", "nightly_required", "install", "architecture",
        "parameter_count", "active_parameters", "context_length", "base_args", "base_env",
    ),
}  # fmt: skip

# Keys of upstream's schema that change the command in ways that the plan does not follow yet.
NOT_COMPOSED = {"features": ("modes", "hardware_overrides"), "variants": ("tp", "hardware_overrides", "default_modes")}


def find(kind: str, name: str, suffixes: Sequence[str], directories: Sequence[str]) -> Path:
    """Return the file of ``name`` in the first directory that has it; ``catalog/<kind>`` is searched last."""
    places = [*(Path(directory) for directory in directories), CATALOG / kind]
    for place in places:
        for suffix in suffixes:
            path = place / f"{name}{suffix}"
            if path.is_file():
                return path
    known = {
        str(path.relative_to(place).with_suffix("")) if "/" in name or kind == "recipes" else path.stem
        for place in places
        for suffix in suffixes
        for path in place.rglob(f"*{suffix}")
    }
    raise PlanError(f"no {WORDS[kind]} {name!r} in {', '.join(str(place) for place in places)}; {nearest(name, known)}")


@functools.lru_cache(maxsize=None)
def read(path: Path) -> Mapping[str, Any]:
    """Return the mapping in a YAML file; read once for all hosts of a run. Raises PlanError naming the file."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as exc:
        raise PlanError(f"{path}: cannot be read: {exc}") from exc
    if not isinstance(data, dict):
        raise PlanError(f"{path}: found {type(data).__name__}, expected a mapping")
    return data


def load_recipe(name: str, directories: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return the recipe ``<org>/<model>`` as it is written, checked for keys that nothing would read."""
    path = find("recipes", name, (".yaml", ".yml"), directories)
    recipe = read(path)
    for section, known in RECIPE_KEYS.items():
        for key in (recipe.get(section) or {}) if section else recipe:
            if key not in known:
                raise PlanError(
                    f"{path}: unknown key {f'{section}.{key}' if section else key!r}; {nearest(key, known)}"
                )
    if not (recipe.get("model") or {}).get("model_id"):
        raise PlanError(f"{path}: 'model.model_id' is missing")
    for key in not_composed(recipe):
        raise PlanError(f"{path}: {key} is known, but this version does not compose it yet; leave it out of a copy")
    return recipe


def not_composed(recipe: Mapping[str, Any]) -> list[str]:
    """Return the keys of a recipe that the plan would pass over, as paths."""
    found = ["strategy_overrides"] if recipe.get("strategy_overrides") else []
    for section, keys in NOT_COMPOSED.items():
        for name, entry in (recipe.get(section) or {}).items():
            found += [f"{section}.{name}.{key}" for key in keys if key in entry]
    return found


def load_release(name: str, directories: Sequence[str] = ()) -> dict[str, Any]:
    """Return the release ``name`` with the text and the hash of each stack's lock beside the lock's name."""
    path = find("releases", name, (".yml", ".yaml"), directories)
    release = dict(read(path))
    for key in ("vllm", "stacks"):
        if key not in release:
            raise PlanError(f"{path}: {key!r} is missing")
    release["stacks"] = {
        stack: _with_lock(path, dict(entry)) if "requirements" in entry else entry
        for stack, entry in release["stacks"].items()
    }
    return release


def _with_lock(path: Path, entry: dict[str, Any]) -> dict[str, Any]:
    lock, text = lock_text(path.parent / "requirements" / entry["requirements"])
    entry["requirements"] = lock
    entry["requirements_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return entry


@functools.lru_cache(maxsize=None)
def lock_text(path: Path) -> tuple[str, str]:
    """Return path and text of a requirements lock."""
    try:
        return str(path), path.read_text(encoding="utf-8")
    except OSError as exc:
        raise PlanError(f"{path}: the release names this lock of requirements, but it cannot be read: {exc}") from exc
