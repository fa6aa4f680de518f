# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest of a model: one revision of a repository, each of its files pinned by size and sha256."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from ..common.foreign_text import escape_controls, quote_foreign
from ..common.kinds import name_kind, show_value
from ..common.spelling import nearest

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# The suffix of a file while it is downloaded, and the longest name in bytes that file systems accept with it.
PARTIAL_SUFFIX = ".partial"
_MAX_NAME_BYTES = 255 - len(PARTIAL_SUFFIX)
_MAX_PATH = 1000
_MAX_TEXT = 200
_MAX_SIZE = 2**63 - 1
# A leading dot could be "..", a stamp or a partial file; the other characters have a meaning for rsync or a shell.
_NO_FIRST_CHARACTER = " .-~#;"
_NAME_EXPECTED = (
    "a relative path without '..', leading dots (nor a blank, '-', '~', '#' or ';' there), backslashes or unprintable "
    f"characters, and with at most {_MAX_NAME_BYTES} bytes between two slashes"
)

# The version of the format; a later one may have keys that this code does not know.
SCHEMA_VERSION = 1
_KEYS = ("schema_version", "repository", "revision", "precision", "config", "files", "modelscope")
_PRECISION = re.compile(r"[a-z0-9_]+")
_MODELSCOPE_REVISION = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class WeightsError(ValueError):
    """Weights cannot be downloaded or a manifest is wrong; the message is the whole sentence for the user."""

    def __init__(self, message: str) -> None:
        # The message may quote text from a server or a file.
        super().__init__(escape_controls(message))


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
    # The repository and the revision on ModelScope that have the same files.
    modelscope_repository: str = ""
    modelscope_revision: str = "master"

    @property
    def path(self) -> str:
        """The directory below a root of weights, on a host or a mirror."""
        return f"{self.repository}/{self.revision}"


def partial_directory(directory: str) -> str:
    """Return the directory beside that of a revision where its files come in."""
    parent, revision = os.path.split(directory)
    return os.path.join(parent, f".{revision}{PARTIAL_SUFFIX}")


def parse_manifest(data: Any) -> Manifest:
    """Return the manifest that ``data`` describes. Raises WeightsError naming the repository and the key."""
    if not isinstance(data, Mapping):
        raise WeightsError(f"manifest: found {name_kind(data)}, expected a mapping with repository, revision, files")
    for key in ("repository", "revision", "files"):
        if key not in data:
            raise WeightsError(
                f"manifest of {quote_foreign(data.get('repository', 'an unnamed model'))}: {key!r} is missing"
            )
    unknown = sorted(set(data) - set(_KEYS), key=str)
    if unknown:
        raise WeightsError(
            f"manifest of {quote_foreign(data['repository'])}: unknown key {_quote(unknown[0])}; "
            f"{nearest(str(unknown[0]), _KEYS)}"
        )
    version = data.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise WeightsError(
            f"manifest of {quote_foreign(data['repository'])}: schema_version: found {_quote(version)}, "
            f"expected {SCHEMA_VERSION}, the only one that this release of the collection reads"
        )
    repository = _text(data["repository"], _REPOSITORY, "manifest: repository", "<organisation>/<name>")
    where = f"manifest of {repository}"
    revision = _text(data["revision"], _REVISION, f"{where}: revision", "40 hexadecimal digits (a branch may move)")
    if not isinstance(data["files"], Mapping) or not data["files"]:
        raise WeightsError(f"{where}: files: found {_quote(data['files'])}, expected a mapping of at least one file")
    if "precision" in data:
        _text(data["precision"], _PRECISION, f"{where}: precision", "a number format such as mxfp4")
    if not isinstance(data.get("config", {}), Mapping):
        raise WeightsError(
            f"{where}: config: found {_quote(data['config'])}, expected a mapping of keys of the model's config.json"
        )
    files = tuple(
        parse_file(name, entry, where) for name, entry in sorted(data["files"].items(), key=lambda item: str(item[0]))
    )
    _check_tree(files, where)
    return Manifest(repository, revision, files, *_modelscope(data.get("modelscope"), repository, where))


def _check_tree(files: tuple[ManifestFile, ...], where: str) -> None:
    """Raise WeightsError if a name is a file and a directory, or also the partial download of another file."""
    names = {file.name for file in files}
    taken = {os.path.join(*name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 2)}
    for name in sorted(names):
        if name + PARTIAL_SUFFIX in taken:
            raise WeightsError(
                f"{where}: files.{name}: {name + PARTIAL_SUFFIX!r} is a name of this manifest too, and that of the "
                "file's partial download; drop one of them"
            )
    for name in sorted(names):
        parent = name.rpartition("/")[0]
        while parent:
            if parent in names:
                raise WeightsError(
                    f"{where}: files.{name}: {parent!r} is a file of this manifest too; drop one of them"
                )
            parent = parent.rpartition("/")[0]


def _modelscope(entry: Any, repository: str, where: str) -> tuple[str, str]:
    """Return repository and revision on ModelScope. A branch is enough there, because the hashes pin the files."""
    if entry is None:
        return repository, "master"
    if not isinstance(entry, Mapping) or not {"repository"} <= set(entry) <= {"repository", "revision"}:
        raise WeightsError(f"{where}: modelscope: found {_quote(entry)}, expected repository and, if wanted, revision")
    name = _text(entry["repository"], _REPOSITORY, f"{where}: modelscope.repository", "<organisation>/<name>")
    revision = entry.get("revision", "master")
    return name, _text(revision, _MODELSCOPE_REVISION, f"{where}: modelscope.revision", "a branch, tag or commit")


def parse_file(name: Any, entry: Any, where: str) -> ManifestFile:
    """Return a file from its name and its mapping. Raises WeightsError, which begins with ``where``."""
    if not isinstance(name, str) or len(name) > _MAX_PATH or not all(map(_is_name, name.split("/"))):
        raise WeightsError(f"{where}: files: found {_quote(name)}, expected {_NAME_EXPECTED}")
    if not isinstance(entry, Mapping) or set(entry) != {"size", "sha256"}:
        raise WeightsError(f"{where}: files.{name}: found {_quote(entry)}, expected the keys size and sha256")
    size = entry["size"]
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_SIZE:
        found = _quote(size) if not isinstance(size, int) or abs(size) <= _MAX_SIZE else "a number beyond 64 bits"
        raise WeightsError(f"{where}: files.{name}.size: found {found}, expected a number of bytes")
    return ManifestFile(
        name, size, _text(entry["sha256"], _SHA256, f"{where}: files.{name}.sha256", "64 hexadecimal digits")
    )


def _is_name(part: str) -> bool:
    """Whether a part of a path can be the name of a file, also while it is downloaded."""
    return (
        part.isprintable()
        and part[:1] not in ("", *_NO_FIRST_CHARACTER)
        and not part.endswith(" ")
        and "\\" not in part
        and len(part.encode()) <= _MAX_NAME_BYTES
    )


def _text(value: Any, pattern: re.Pattern[str], where: str, expected: str) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT or not pattern.fullmatch(value):
        raise WeightsError(f"{where}: found {_quote(value)}, expected {expected}")
    return value


def _quote(value: Any) -> str:
    """Return a value for a message."""
    return quote_foreign(show_value(value))


def check_unique(manifests: Iterable[Manifest]) -> None:
    """Raise WeightsError when one revision is described twice."""
    seen: dict[str, Manifest] = {}
    for manifest in manifests:
        if seen.setdefault(manifest.path, manifest) != manifest:
            raise WeightsError(f"{manifest.repository}: two manifests of revision {manifest.revision} differ; drop one")
