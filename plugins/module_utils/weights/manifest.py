# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest of a model: one revision of a repository, each of its files pinned by size and sha256. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import nearest

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# No segment starts with a dot: no "..", and nothing that could be taken for a stamp or a partial file.
_FILE_NAME = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)


# The form of a manifest; a later one may have keys that this code does not know.
SCHEMA_VERSION = 1
_KEYS = ("schema_version", "repository", "revision", "precision", "files", "modelscope")
_PRECISION = re.compile(r"[a-z0-9_]+")
_MODELSCOPE_REVISION = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class WeightsError(ValueError):
    """Weights cannot be had or a manifest is wrong; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class ManifestFile:
    """A file of a manifest: its path below the revision's directory, its bytes, its sha256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """One revision of a repository and its files, sorted by name."""

    repository: str
    revision: str
    files: tuple[ManifestFile, ...]
    # What ModelScope calls the repository and the revision that has these very files.
    modelscope_repository: str = ""
    modelscope_revision: str = "master"

    @property
    def path(self) -> str:
        """The directory below a root of weights, on a host as on a mirror."""
        return f"{self.repository}/{self.revision}"


def parse_manifest(data: Any) -> Manifest:
    """Return the manifest that ``data`` describes. Raises WeightsError naming the repository and the key."""
    if not isinstance(data, Mapping):
        raise WeightsError(
            f"manifest: found {type(data).__name__}, expected a mapping with repository, revision, files"
        )
    for key in ("repository", "revision", "files"):
        if key not in data:
            raise WeightsError(f"manifest of {data.get('repository', 'an unnamed model')}: {key!r} is missing")
    unknown = sorted(set(data) - set(_KEYS), key=str)
    if unknown:
        raise WeightsError(
            f"manifest of {data['repository']}: unknown key {unknown[0]!r}; {nearest(unknown[0], _KEYS)}"
        )
    version = data.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise WeightsError(
            f"manifest of {data['repository']}: schema_version: found {version!r}, expected {SCHEMA_VERSION}, the "
            "only one that this version of the collection reads"
        )
    repository = _text(data["repository"], _REPOSITORY, "manifest: repository", "<organisation>/<name>")
    where = f"manifest of {repository}"
    revision = _text(data["revision"], _REVISION, f"{where}: revision", "40 hexadecimal digits (a branch may move)")
    if not isinstance(data["files"], Mapping) or not data["files"]:
        raise WeightsError(f"{where}: files: found {data['files']!r}, expected a mapping of at least one file")
    if "precision" in data:
        _text(data["precision"], _PRECISION, f"{where}: precision", "a number format such as mxfp4")
    files = tuple(
        _file(name, entry, where) for name, entry in sorted(data["files"].items(), key=lambda item: str(item[0]))
    )
    _check_tree(files, where)
    return Manifest(repository, revision, files, *_modelscope(data.get("modelscope"), repository, where))


def _check_tree(files: tuple[ManifestFile, ...], where: str) -> None:
    """Raise WeightsError where a file would have to be a directory too."""
    names = {file.name for file in files}
    for name in sorted(names):
        parent = name.rpartition("/")[0]
        while parent:
            if parent in names:
                raise WeightsError(
                    f"{where}: files.{name}: {parent!r} is a file of this manifest too; drop one of them"
                )
            parent = parent.rpartition("/")[0]


def _modelscope(entry: Any, repository: str, where: str) -> tuple[str, str]:
    """Return repository and revision on ModelScope; its hashes are those of the files, so a branch will do there."""
    if entry is None:
        return repository, "master"
    if not isinstance(entry, Mapping) or not {"repository"} <= set(entry) <= {"repository", "revision"}:
        raise WeightsError(f"{where}: modelscope: found {entry!r}, expected repository and, if wanted, revision")
    name = _text(entry["repository"], _REPOSITORY, f"{where}: modelscope.repository", "<organisation>/<name>")
    revision = entry.get("revision", "master")
    return name, _text(revision, _MODELSCOPE_REVISION, f"{where}: modelscope.revision", "a branch, tag or commit")


def _file(name: Any, entry: Any, where: str) -> ManifestFile:
    name = _text(name, _FILE_NAME, f"{where}: files", "a relative path without '..' or leading dots")
    if not isinstance(entry, Mapping) or set(entry) != {"size", "sha256"}:
        raise WeightsError(f"{where}: files.{name}: found {entry!r}, expected the keys size and sha256")
    size = entry["size"]
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise WeightsError(f"{where}: files.{name}.size: found {size!r}, expected a number of bytes")
    return ManifestFile(
        name, size, _text(entry["sha256"], _SHA256, f"{where}: files.{name}.sha256", "64 hexadecimal digits")
    )


def _text(value: Any, pattern: re.Pattern[str], where: str, expected: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise WeightsError(f"{where}: found {value!r}, expected {expected}")
    return value


def check_unique(manifests: Iterable[Manifest]) -> None:
    """Raise WeightsError when one revision is described twice."""
    seen: dict[str, Manifest] = {}
    for manifest in manifests:
        if seen.setdefault(manifest.path, manifest) != manifest:
            raise WeightsError(f"{manifest.repository}: two manifests of revision {manifest.revision} differ; drop one")
