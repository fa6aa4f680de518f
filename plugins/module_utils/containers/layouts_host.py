# SPDX-License-Identifier: GPL-3.0-or-later
"""An OCI layout on the disk: which blobs of an image it has."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import IO, Any, ContextManager

from ..common.files_host import sha256_of
from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json
from ..common.foreign_numbers import read_count
from .layouts import Blob, Wanted, blobs, children, walk
from .oci_index import Image, OciError, parse_index

INDEX = "index.json"
MARK = "oci-layout"
# Of an index or a manifest.
MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Layout:
    """A layout that may not exist yet; with ``full`` every blob is read, else manifests only."""

    directory: str
    full: bool = False

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return os.path.exists(os.path.join(self.directory, MARK))

    def partial(self) -> Layout:
        """Return the hidden layout beside this one in which the first image of a repository is copied."""
        parent, name = os.path.split(self.directory)
        return Layout(os.path.join(parent, f".{name}.partial"), self.full)

    def images(self, repository: str) -> list[Image]:
        """Return the images that its index names. Raises OciError and OSError."""
        return parse_index(self._index(), self.directory, repository)

    def _index(self) -> str:
        content = self._bounded(ForeignDirectory(self.directory).read(INDEX, MOST_BYTES + 1), INDEX)
        return content.decode("utf-8", "replace")

    def top(self, image: Wanted | Image) -> Blob | None:
        """Return the manifest that is there under an image's tag, None for nothing. Raises OciError."""
        try:
            text = self._index()
        except FileNotFoundError:
            return None
        found = {one.tag: one.digest for one in parse_index(text, self.directory, image.repository)}
        sizes = {entry["digest"]: read_count(entry.get("size")) for entry in load_json(text)["manifests"]}
        digest = found.get(image.tag)
        if not digest:
            return None
        size = sizes[digest]
        if size is None:
            raise OciError(f"{self.directory}/{INDEX}: no valid size of {digest}; copy the image there again")
        return Blob(digest, size, True)

    def has(self, blob: Blob) -> bool:
        """Whether a blob is there, by its size; a manifest by its sha256."""
        path = os.path.join(self.directory, blob.path)
        if not os.path.isfile(path) or os.path.getsize(path) != blob.size:
            return False
        return not (self.full or blob.manifest) or f"sha256:{sha256_of(path)}" == blob.digest

    def lacks(self, top: Blob) -> list[Blob]:
        """Return the blobs of an image that are not there, as far as its manifests are. Raises OciError."""
        has = functools.lru_cache(maxsize=None)(self.has)
        every = walk(top, lambda blob: children(self.read(blob.digest), blob.digest) if has(blob) else [])
        return [blob for blob in every if not has(blob)]

    def read(self, digest: str) -> bytes:
        """Return the bytes of a manifest."""
        directory, name = self._place(digest)
        return self._bounded(directory.read(name, MOST_BYTES + 1), digest)

    def opened(self, blob: Blob) -> ContextManager[IO[bytes]]:
        """Open a blob."""
        directory, name = self._place(blob.digest)
        return directory.opened(name)

    def _place(self, digest: str) -> tuple[ForeignDirectory, str]:
        *names, name = Blob(digest, 0, True).path.split("/")
        return ForeignDirectory(self.directory, *names), name

    def _bounded(self, content: bytes, name: str) -> bytes:
        if len(content) > MOST_BYTES:
            raise OciError(f"{self.directory}: {name} has more than {MOST_BYTES >> 20} MiB; copy the image there again")
        return content

    def discard(self, wrong: list[Blob]) -> None:
        """Remove damaged blobs, which skopeo would reuse."""
        for blob in wrong:
            path = os.path.join(self.directory, blob.path)
            if os.path.lexists(path) and not self.has(blob):
                os.unlink(path)

    def sweep(self) -> None:
        """Remove the files of a killed copy."""
        for name in os.listdir(self.directory):
            if name.startswith("oci-put-blob"):
                os.unlink(os.path.join(self.directory, name))

    def holds(self, image: Wanted) -> dict[str, dict[str, Any]]:
        """Return the files of an image, and beside it those that all tags of its repository share, as items."""
        top = self.top(image)
        if top is None:
            raise OciError(f"{self.directory}: {image.name} is not there")
        place, shared = f"images/{image.repository}", {}
        for name in (INDEX, MARK):
            path = os.path.join(self.directory, name)
            shared[f"{place}/{name}"] = {"size": os.path.getsize(path), "sha256": sha256_of(path)}
        own = {
            f"{place}/{blob.path}": {"size": blob.size, "sha256": blob.digest.partition(":")[2]}
            for blob in blobs(top, self.read)
        }
        return {image.repository: shared, image.name: own}
