# SPDX-License-Identifier: GPL-3.0-or-later
"""Find where a mirror keeps the layouts of container images, and which blobs belong to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping

from ..common.foreign_json import load_json
from ..common.foreign_numbers import read_count
from ..common.foreign_text import quote_foreign
from ..common.kinds import show_value
from .image_names import reference
from .oci_index import DIGEST, MANIFESTS, REPOSITORY, TAG, OciError

# No index nests deeper: an index of platforms, their manifests.
DEEPEST = 3
# An image of vLLM has some hundred blobs for all its platforms.
MOST_BLOBS = 10_000


@dataclass(frozen=True)
class Wanted:
    """An image: as plans name it, where skopeo finds it, its repository and tag in a layout, its digest if pinned."""

    image: str
    source: str
    repository: str
    tag: str
    digest: str

    @property
    def name(self) -> str:
        """The name that the site's registry has for it."""
        return f"{self.repository}:{self.tag}"


def wanted(image: str, sources: Mapping[str, str]) -> Wanted:
    """Return what to fetch for an image. Raises OciError for a name that no registry accepts.

    ``sources`` names the source for skopeo of images that are not in their registry.
    """
    full = reference(image)
    registry, _slash, rest = full.partition("/")
    name, at, digest = rest.partition("@")
    repository, _colon, tag = name.partition(":")
    if at:
        # The tag beside a digest; a layout needs a tag even without one.
        given = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        tag = given or digest.replace(":", "-")[:19]
    if not REPOSITORY.fullmatch(repository) or not TAG.fullmatch(tag) or (at and not DIGEST.fullmatch(digest)):
        raise OciError(f"image {image!r}: expected REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:...")
    source = sources.get(image) or f"docker://{registry}/{rest}"
    return Wanted(image, source, repository, tag, digest)


@dataclass(frozen=True)
class Blob:
    """A blob by its digest, its bytes, and whether it is a manifest, which names others."""

    digest: str
    size: int
    manifest: bool

    @property
    def path(self) -> str:
        """Its path in a layout."""
        return f"blobs/{self.digest.replace(':', '/')}"


def blobs(top: Blob, read: Callable[[str], bytes]) -> Iterator[Blob]:
    """Yield all that belongs to a manifest, each blob once and before what names it, the manifest itself last.

    ``read`` returns the bytes of a manifest by its digest. Raises OciError for anything that is not a manifest, and
    for more than an image has.
    """
    return walk(top, lambda blob: children(read(blob.digest), blob.digest))


def walk(top: Blob, below: Callable[[Blob], Iterable[Blob]]) -> Iterator[Blob]:
    """Yield as ``blobs`` does; ``below`` returns what a manifest names."""
    return _walk(top, below, DEEPEST, set())


def _walk(top: Blob, below: Callable[[Blob], Iterable[Blob]], depth: int, seen: set[Blob]) -> Iterator[Blob]:
    if top in seen:
        return
    seen.add(top)
    if len(seen) > MOST_BLOBS:
        raise OciError(f"{top.digest}: its image has more than {MOST_BLOBS} blobs")
    if top.manifest:
        if depth == 0:
            raise OciError(f"{top.digest}: its manifests nest deeper than {DEEPEST}")
        for blob in below(top):
            yield from _walk(blob, below, depth - 1, seen)
    yield top


def media_type(manifest: bytes) -> str:
    """Return the media type of a manifest; those of OCI need not name it."""
    data = load_json(manifest)
    index, image = MANIFESTS[:2]
    named = data.get("mediaType")
    return named if named in MANIFESTS else index if "manifests" in data else image


def children(manifest: bytes, digest: str) -> list[Blob]:
    """Return what a manifest or an index names. Raises OciError where it is neither."""
    try:
        data = load_json(manifest)
        below = [_blob(entry, True) for entry in data.get("manifests") or ()]
        config = [data["config"]] if "config" in data else []
        return below + [_blob(entry, False) for entry in [*config, *(data.get("layers") or ())]]
    except (ValueError, LookupError, TypeError, AttributeError) as exc:
        raise OciError(f"{digest}: not the manifest of an image ({quote_foreign(repr(exc))})") from exc


def _blob(entry: Mapping[str, Any], manifest: bool) -> Blob:
    digest = str(entry["digest"])
    if not DIGEST.fullmatch(digest):
        raise ValueError(digest)
    size = read_count(entry["size"])
    if size is None:
        raise ValueError(f"size of {digest}: found {show_value(entry['size'])}, expected a number of bytes")
    return Blob(digest, size, manifest)
