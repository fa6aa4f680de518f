# SPDX-License-Identifier: GPL-3.0-or-later
"""The recipes that a release of vLLM carries: their pins, and what is to be written into a site's directory of them.

The collection ships the pins only. The files stay vLLM's, under its licence, which is written beside them.
"""

import functools
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Collection, Mapping, Sequence

from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.spelling import misspelt, nearest
from ..common.places import CATALOG
from ..common.versions import sort_key
from ..common.yaml import read_yaml

PINS = CATALOG / "upstream"
MODELS = "recipes/models/"
LICENCE = "LICENSE"
# What a directory has from here, so that a later run knows its own files from those that people changed.
RECORD = "upstream.json"


class UpstreamError(ValueError):
    """The recipes cannot be fetched; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Archive:
    """A source distribution: its file name, its size in bytes and its sha256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Pins:
    """The sha256 of each file of a release, by its path in the archive."""

    vllm: str
    licence: str
    archive: Archive
    files: Mapping[str, str]

    @property
    def recipes(self) -> dict[str, str]:
        """The sha256 of each recipe by its name."""
        return {
            path[len(MODELS) :].rpartition(".")[0]: sha256
            for path, sha256 in self.files.items()
            if path.startswith(MODELS)
        }

    def wanted(self, names: Sequence[str], but: Collection[str] = ()) -> dict[str, str]:
        """Return path in a site's directory -> sha256 of the named recipes, and of the licence.

        Without names these are all recipes ``but`` those that only a name gets.
        Raises UpstreamError for a name that the release does not have.
        """
        recipes = self.recipes
        for name in names:
            if name not in recipes:
                raise UpstreamError(f"fetch_names: vLLM {self.vllm} has no recipe {name!r}; {nearest(name, recipes)}")
        chosen = {f"{name}.yaml": recipes[name] for name in names or recipes if names or name not in but}
        return {**chosen, LICENCE: self.files[LICENCE]}


def pinned_releases() -> list[str]:
    """Return the releases whose recipes are pinned, oldest first."""
    return sorted((path.stem for path in PINS.glob("*.yml")), key=sort_key)


@functools.lru_cache(maxsize=None)
def load_pins(version: str = "") -> Pins:
    """Return the pins of a release, of the newest one without a version. Raises UpstreamError."""
    known = pinned_releases()
    version = version or known[-1]
    if version not in known:
        raise UpstreamError(
            f"fetch_release: the recipes of vLLM {version} are not pinned; known: {', '.join(known)}; pin them with "
            f"tools/vllm/pin_recipes.py {version}"
        )
    data: Mapping[str, Any] = read_yaml(PINS / f"{version}.yml")
    return Pins(str(data["vllm"]), data["licence"], Archive(**data["archive"]), data["files"])


def has_recipe(name: str) -> str | None:
    """Return the newest release that carries a recipe of this name, None where none does."""
    return next((version for version in reversed(pinned_releases()) if name in load_pins(version).recipes), None)


def nearest_recipe(name: str) -> str | None:
    """Return the recipe of the newest release whose name is nearly this one, upper and lower case aside."""
    names = {known.lower(): known for known in load_pins().recipes}
    near = misspelt(name.lower(), names)
    return names[near] if near else None


def sha256_of(data: bytes) -> str:
    """Return the sha256 of data as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Directory:
    """A site's directory of recipes: the sha256 of each file there that is wanted, and what an earlier run wrote."""

    present: Mapping[str, str]
    recorded: Mapping[str, str] = field(default_factory=dict)

    def missing(self, wanted: Mapping[str, str]) -> list[str]:
        """Return the paths to write: those that are not there, and those that an earlier run wrote otherwise."""
        return [
            path
            for path, sha256 in wanted.items()
            if self.present.get(path) != sha256 and self.present.get(path) in (None, self.recorded.get(path))
        ]

    def kept(self, wanted: Mapping[str, str]) -> list[str]:
        """Return the paths whose content is the site's own, and stays."""
        missing = set(self.missing(wanted))
        return [path for path, sha256 in wanted.items() if self.present.get(path) != sha256 and path not in missing]


def read_directory(directory: Path, wanted: Mapping[str, str]) -> Directory:
    """Return the state of a directory, also of one that is not there. Raises UpstreamError."""
    present = {}
    try:
        for path in wanted:
            if (directory / path).exists():
                present[path] = sha256_of((directory / path).read_bytes())
        return Directory(present, _recorded(directory / RECORD))
    except OSError as exc:
        raise UpstreamError(f"fetch_dest: {exc.filename or directory}: {exc.strerror}") from exc


def describe_replaced(directory: Path, bundled: Sequence[str], fetched: Sequence[str]) -> list[str]:
    """Return a sentence for each recipe that this collection has too: which of the two an instance gets."""
    told = []
    for name in bundled:
        place = directory / f"{name}.yaml"
        if name in fetched or place.exists():
            told.append(
                f"{place} replaces the collection's own recipe {name}, with other sizes, presets and hardware; remove "
                "the file to keep that"
            )
        else:
            told.append(
                f"{name} was not fetched, because the collection has its own recipe for it; to replace that, name "
                "it in fetch_names"
            )
    return told


def _recorded(record: Path) -> Mapping[str, str]:
    """Return the sha256 of each file that an earlier run wrote. Raises UpstreamError for a damaged record."""
    try:
        files = load_json(record.read_bytes())["files"] if record.exists() else {}
    except (ValueError, KeyError, TypeError):
        files = None
    if not isinstance(files, dict) or not all(isinstance(sha256, str) for sha256 in files.values()):
        raise UpstreamError(
            f"fetch_dest: {record}: found no record of an earlier run; remove it, then files that differ from vLLM's "
            "count as changed on this site"
        )
    return files


def record_of(pins: Pins, directory: Directory, written: Sequence[str], wanted: Mapping[str, str]) -> str:
    """Return the text of the record: the source of the files, their licence, and the sha256 of each."""
    ours = {path: sha256 for path, sha256 in wanted.items() if path in written or directory.present.get(path) == sha256}
    document = {
        "about": f"Unchanged files of vLLM {pins.vllm}, under the licence {pins.licence} ({LICENCE}).",
        "archive": {"name": pins.archive.name, "sha256": pins.archive.sha256},
        "files": dict(sorted({**directory.recorded, **ours}.items())),
    }
    return json.dumps(document, indent=1) + "\n"
