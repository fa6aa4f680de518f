# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what carried files say of themselves: licences of wheels, collections and images, digests of images."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zlib
from typing import Any, Callable

from ..common.files_host import open_regular
from ..common.foreign_json import load_json
from ..wheels import make_index_host
from .bill import Known, read_metadata
from .bundle import Holds, walk

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = "org.opencontainers.image.ref.name"
_LICENCES = "org.opencontainers.image.licenses"
_UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError, zlib.error,
    tarfile.TarError,
)  # fmt: skip
# A larger description is not read.
_MOST = 4 << 20


def read_knowledge(root: str, holds: Holds) -> dict[str, Known]:
    """Return what files and images say of themselves; one that cannot be read says nothing."""
    found: dict[str, Known] = {}
    for kind, item, files in walk(holds):
        if kind == "images" and ":" in item:
            found[item] = _tolerate(_read_image, os.path.join(root, "images"), item)
        for path in files:
            if path.endswith(".whl") and path not in found:
                found[path] = _tolerate(_read_wheel, root, path)
            elif path.startswith("controller/") and path.endswith(".tar.gz"):
                found[path] = _tolerate(_read_collection, root, path)
    return found


def _tolerate(read: Callable[[str, str], Known], root: str, name: str) -> Known:
    try:
        return read(root, name)
    except _UNREADABLE:
        return Known()


def _read_wheel(root: str, path: str) -> Known:
    whole = os.path.join(root, path)
    headers: dict[str, Any] = {}
    for key, value in make_index_host.read_fields(whole, make_index_host.read_metadata(whole)).items():
        headers.setdefault(key.lower(), []).append(str(value))
    return read_metadata(headers)


def _read_collection(root: str, path: str) -> Known:
    # Galaxy's client puts it first; what lies behind the beginning may unpack to anything.
    with open(os.path.join(root, path), "rb", opener=open_regular) as packed, gzip.open(packed) as unpacked:
        beginning = io.BytesIO(unpacked.read(_MOST))
    with tarfile.open(fileobj=beginning, mode="r:") as archive:
        entry = next((entry for entry in archive if entry.name == "MANIFEST.json"), None)
        member = archive.extractfile(entry) if entry else None
        licences = load_json(member.read(_MOST))["collection_info"]["license"] if member else []
    return Known(expression=str(licences[0])) if len(licences) == 1 else Known(licences=tuple(map(str, licences)))


def _read_image(images: str, item: str) -> Known:
    """Read REPOSITORY:TAG of its layout: the digest, and the licence label of the first platform."""
    repository, _colon, tag = item.partition(":")
    layout = os.path.join(images, repository)
    with open(os.path.join(layout, "index.json"), "rb", opener=open_regular) as file:
        entries = load_json(file.read(_MOST))["manifests"]
    tags = {(entry.get("annotations") or {}).get(_TAG): entry["digest"] for entry in entries}
    digest = tags[tag]
    manifest = _read_blob(layout, digest)
    if manifest.get("manifests"):
        manifest = _read_blob(layout, manifest["manifests"][0]["digest"])
    labels = (_read_blob(layout, manifest["config"]["digest"]).get("config") or {}).get("Labels") or {}
    return Known(expression=str(labels.get(_LICENCES) or ""), digest=digest)


def _read_blob(layout: str, digest: str) -> Any:
    if not _DIGEST.fullmatch(digest):
        raise ValueError(digest)
    with open(os.path.join(layout, "blobs", *digest.split(":")), "rb", opener=open_regular) as file:
        return load_json(file.read(_MOST))
