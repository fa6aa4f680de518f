# SPDX-License-Identifier: GPL-3.0-or-later
"""Read recipes, releases and manifests on the controller; the site's own files take precedence."""

import contextlib
import errno
import functools
import hashlib
import re
from pathlib import Path
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import name_kind, show_value
from ...module_utils.common.spelling import misspelt, nearest
from ...module_utils.common.versions import version_key
from ...module_utils.weights.manifest import WeightsError, parse_manifest
from ..common.places import CATALOG
from ..common.yaml import UnreadableError, read_yaml
from ..planning.inputs import PlanError, UnknownNameError, how_to_pin
from ..planning.instances import RUNTIMES
from .recipe_schema import (
    BY_HARDWARE,
    ENV,
    IMAGE,
    MODELS_BY_NAME,
    NAMES,
    NUMBER,
    TEXT,
    check_families,
    check_recipe,
    either,
    unread_keys,
)
from .upstream_recipes import has_recipe, nearest_recipe

# The beginning of the error if a part of the catalogue has no file of a name.
MISSING = {"recipes": "no recipe", "releases": "no release", "weights": "no manifest of weights"}
ENTRYPOINTS = ("image", "module")
ROUTER_VERSION = "0.1.17"
# The endings of a recipe's file.
RECIPES = (".yaml", ".yml")

RELEASE_KEYS = ("vllm", "supports", "stacks")
# The keys of a release's stack that the plan reads.
STACK_KEYS = {
    **dict.fromkeys(("digest", "minimum_driver", "python", "runtime"), TEXT),
    **dict.fromkeys(("container_env", "env"), ENV),
    **dict.fromkeys(("images", "wheels"), BY_HARDWARE),
    "env_not_on": MODELS_BY_NAME,
    "entrypoint": either(list, NAMES, TEXT),
    "image": IMAGE,
    "libraries": NAMES,
    "requirements": either(dict, BY_HARDWARE, TEXT),
    "venv_size_gib": NUMBER,
}

# The variables that name the directories of each part.
VARIABLES = {
    "recipes": "vllm_recipe_path",
    "releases": "vllm_release_path",
    "weights": "weights_manifest_path",
}


def lookup(kind: str, name: str, suffixes: Sequence[str], directories: Sequence[str]) -> Path | None:
    """Return the file of ``name`` in the first directory that has it, None where none has.

    Weights may be named with their revision, ORGANISATION/NAME@REVISION: a manifest of that name, or one of
    ORGANISATION/NAME that pins it. Raises PlanError for a manifest that pins another revision than its name.
    """
    # A name that leads out of the directories is invalid. Recipes may name models by path, which have no manifest.
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    for place in _places(kind, directories):
        for suffix in suffixes:
            path = place / f"{name}{suffix}"
            if _is_file(path):
                return _of_revision(path, name) if kind == "weights" else path
    model, at, revision = name.partition("@")
    plain = lookup(kind, model, suffixes, directories) if kind == "weights" and at else None
    return plain if plain and _revision(plain) == revision else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as exc:
        if exc.errno == errno.ENAMETOOLONG:
            return False
        raise


def _of_revision(path: Path, name: str) -> Path:
    """Return the path of a manifest. Raises PlanError where its name has another revision than its content."""
    _model, at, revision = name.partition("@")
    if at and _revision(path) != revision:
        raise PlanError(
            f"{path}: revision: found {show_value(_revision(path))}, expected {revision} as in the file's name; make "
            "the manifest again with -e pin_beside=true"
        )
    return path


def _revision(path: Path) -> Any:
    return read(path).get("revision")


def find(kind: str, name: str, suffixes: Sequence[str], directories: Sequence[str]) -> Path:
    """Return the file of ``name`` in the first directory that has it; ``catalog/<kind>`` is searched last.

    Raises UnknownNameError with the nearest name where none has it; for releases, which are few, also with all names.
    """
    path = lookup(kind, name, suffixes, directories)
    if path is not None:
        return path
    known = known_names(kind, suffixes, directories)
    way_out = {"weights": f"; {how_to_pin(name)}", "recipes": _from_upstream(name, known)}.get(kind, "")
    where = ", ".join(str(place) for place in _places(kind, directories))
    near = nearest(name, known)
    if kind == "releases" and near.startswith("nearest"):
        near = f"{near}; known: {', '.join(sorted(known, key=lambda each: (version_key(each), each)))}"
    raise UnknownNameError(f"{MISSING[kind]} {show_value(name)} in {where}; {near}{way_out}")


def known_names(kind: str, suffixes: Sequence[str], directories: Sequence[str]) -> list[str]:
    """Return the names of a part of the catalogue and of a site's directories, sorted."""
    places = _places(kind, directories)
    # A release lies beside its locks; the others lie in a directory for each organisation.
    pattern = "*" if kind == "releases" else "*/*"
    return sorted(
        {
            str(path.relative_to(place))[: -len(suffix)]
            for place in places
            for suffix in suffixes
            for path in place.glob(f"{pattern}{suffix}")
        }
    )


def _from_upstream(name: str, known: Sequence[str]) -> str:
    """Return how to get a recipe that a release of vLLM carries, as the end of a message.

    For a name that no release knows it is the nearest one, unless that is among the ``known``, which the message has.
    """
    version = has_recipe(name)
    if version is None:
        near = nearest_recipe(name)
        return f"; nearest of vLLM's own: {near!r}" if near and near not in known else ""
    return (
        f"; vLLM {version} carries it: set vllm_recipe_path: [DIR], then ansible-playbook -i INVENTORY "
        "playbooks/import_models.yml"
    )


def _places(kind: str, directories: Sequence[str]) -> list[Path]:
    for directory in directories:
        if not Path(directory).is_dir():
            way_out = "" if kind == "releases" else "; playbooks/import_models.yml makes and fills it"
            raise PlanError(f"{VARIABLES[kind]}: {directory} is not a directory on the controller{way_out}")
    return [*(Path(directory) for directory in directories), CATALOG / kind]


@functools.lru_cache(maxsize=None)
def read(path: Path) -> Mapping[str, Any]:
    """Return the mapping in a YAML file; read once for all hosts of a run. Raises PlanError naming the file."""
    try:
        data = read_yaml(path)
    except UnreadableError as exc:
        raise PlanError(str(exc)) from exc
    if not isinstance(data, dict):
        raise PlanError(f"{path}: found {name_kind(data)}, expected a mapping")
    return data


@functools.lru_cache(maxsize=None)
def _recipe(path: Path) -> Mapping[str, Any]:
    recipe = read(path)
    check_recipe(recipe, str(path))
    return recipe


def load_recipe(name: str, directories: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return the recipe ``<org>/<model>`` as it is written, checked for unknown keys."""
    return _recipe(find("recipes", name, RECIPES, directories))


def file_notes(kind: str, name: str, directories: Sequence[str] = ()) -> list[str]:
    """Return a sentence for a site's file that replaces another one of this collection, and for keys without effect."""
    path, own = (lookup(kind, name, RECIPES, places) for places in (directories, ()))
    if path is None:
        return []
    notes = unread_keys(_recipe(path), str(path)) if kind == "recipes" else []
    if own and read(own) != read(path):
        # The role vllm takes that of the role weights.
        variable = VARIABLES[kind].replace("vllm_weights", "weights")
        notes.append(f"{variable}: {path} replaces the collection's own file for {name}")
    return notes


@functools.lru_cache(maxsize=None)
def load_families(path: Path = CATALOG / "families.yml") -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return release fixes, guards and known issues of families of models. Raises PlanError."""
    families = read(path)
    check_families(families, str(path))
    return families


def load_manifest(name: str, directories: Sequence[str] = ()) -> Mapping[str, Any] | None:
    """Return the manifest that pins the weights of a repository, None where there is none."""
    path = lookup("weights", name, (".yml", ".yaml"), directories)
    return _manifest(path) if path else None


@functools.lru_cache(maxsize=None)
def _manifest(path: Path) -> Mapping[str, Any]:
    manifest = read(path)
    try:
        parse_manifest(manifest)
    except WeightsError as exc:
        raise PlanError(f"{path}: {exc}") from exc
    return manifest


def load_release(name: str, directories: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return the release ``name`` with the text and the hash of each stack's lock beside the lock's name."""
    return _release(find("releases", name, (".yml", ".yaml"), directories))


@functools.lru_cache(maxsize=None)
def _release(path: Path) -> Mapping[str, Any]:
    release = dict(read(path))
    for key in ("vllm", "stacks"):
        if key not in release:
            raise PlanError(f"{path}: {key!r} is missing")
    for key in release:
        if key not in RELEASE_KEYS:
            raise PlanError(f"{path}: unknown key {show_value(key)}; {nearest(str(key), RELEASE_KEYS)}")
    if not isinstance(release["stacks"], dict):
        raise PlanError(f"{path}: stacks: found {show_value(release['stacks'])}, expected a mapping of stacks")
    for key, expected in (("vllm", TEXT), ("supports", NAMES)):
        for problem in expected(release.get(key), key):
            raise PlanError(f"{path}: {problem}")
    release["stacks"] = {stack: _stack(path, stack, entry) for stack, entry in release["stacks"].items()}
    return release


def _stack(path: Path, stack: Any, entry: Any) -> dict[str, Any]:
    if not isinstance(stack, str):
        raise PlanError(f"{path}: stacks: found the key {show_value(stack)}, expected the name of a stack")
    if not isinstance(entry, dict) or "runtime" not in entry:
        raise PlanError(f"{path}: stacks.{stack}: 'runtime' is missing; expected container or venv")
    if entry["runtime"] not in RUNTIMES:
        near = nearest(str(entry["runtime"]), RUNTIMES)
        raise PlanError(f"{path}: stacks.{stack}.runtime: found {show_value(entry['runtime'])}; {near}")
    if not isinstance(entry.get("entrypoint", []), list) and entry["entrypoint"] not in ENTRYPOINTS:
        raise PlanError(
            f"{path}: stacks.{stack}.entrypoint: found {show_value(entry['entrypoint'])}, expected image, module or a "
            "list of words"
        )
    _check_keys(path, stack, entry)
    if "requirements" not in entry:
        return entry
    directory, named = path.parent / "requirements", entry["requirements"]
    for name in named.values() if isinstance(named, dict) else (named,):
        if not str(name).strip(" ./"):
            raise PlanError(
                f"{path}: stacks.{stack}.requirements: found {show_value(name)}, expected the name of a file"
            )
    if not isinstance(named, dict):
        return {**entry, **_lock(directory, named)}
    for python in named:
        if not re.fullmatch(r"3\.\d+", str(python)) or not isinstance(python, str):
            raise PlanError(
                f"{path}: stacks.{stack}.requirements: found the key {show_value(python)}, expected a version of "
                "Python in quotes, such as '3.12'"
            )
    return {**entry, "requirements": {python: _lock(directory, str(name)) for python, name in named.items()}}


def _lock(directory: Path, file: str) -> dict[str, str]:
    """Return path, hash and text of a lock, under the keys of a stack.

    A site's copy of a bundled release names bundled locks, so a lock that is not in ``directory`` is read from there.
    """
    bundled = CATALOG / "releases" / "requirements" / file
    own = directory / file
    # Where the name is too long for a file, reading it tells.
    with contextlib.suppress(OSError):
        own = bundled if bundled.is_file() and not own.exists() else own
    name, text = lock_text(own)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"requirements": name, "requirements_sha256": digest, "requirements_text": text}


def load_router() -> dict[str, Any]:
    """Return the lock of vllm-router, one for every Python and machine, and the ``locks`` with the wheels of each."""
    directory, name = CATALOG / "router", f"vllm-router-{ROUTER_VERSION}"
    locks = [str(directory / f"{name}-{machine}.txt") for machine in ("x86_64", "aarch64")]
    return {"name": name, "locks": locks, **_lock(directory, f"{name}.txt")}


def locks_of(stack: Mapping[str, Any]) -> list[str]:
    """Return the paths of all locks of a stack that load_release has read."""
    found = stack.get("requirements")
    if isinstance(found, Mapping):
        return [entry["requirements"] for entry in found.values()]
    return [found] if found else []


def _check_keys(path: Path, stack: str, entry: dict[str, Any]) -> None:
    """Raise PlanError for a wrong value and a misspelt key; other keys are versions that belong together, as texts."""
    for key, value in entry.items():
        if key in STACK_KEYS:
            for problem in STACK_KEYS[key](value, f"stacks.{stack}.{key}"):
                raise PlanError(f"{path}: {problem}")
            continue
        near = misspelt(str(key), STACK_KEYS)
        if near or not isinstance(value, str):
            hint = f"nearest: {near!r}" if near else "expected a version as a text in quotes"
            raise PlanError(f"{path}: stacks.{stack}: unknown key {show_value(key)}; {hint}")


@functools.lru_cache(maxsize=None)
def lock_text(path: Path) -> tuple[str, str]:
    """Return path and text of a requirements lock."""
    try:
        return str(path), path.read_text(encoding="utf-8")
    except OSError as exc:
        raise PlanError(f"{path}: cannot read this requirements lock, which the release names: {exc}") from exc
