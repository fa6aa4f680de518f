# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the images of the layouts on a carried disk, and push them into a mirror's registry."""

from __future__ import annotations

import hashlib
import os

from ..common.foreign_trees_host import walk_tree
from .layouts import Blob, blobs, media_type
from .layouts_host import MARK, Layout
from .oci_index import Image, OciError
from .registry_socket_host import Registry


def find_images(root: str) -> list[Image]:
    """Return the images of all layouts below a directory, sorted by name. Raises OciError."""
    images: list[Image] = []
    for directory, below, files in walk_tree(root):
        below[:] = [name for name in below if not name.startswith(".")]
        if MARK in files:
            below.clear()
            images += Layout(directory).images(os.path.relpath(directory, root))
    return sorted(images, key=lambda image: image.name)


def push(image: Image, registry: Registry) -> None:
    """Push an image, all its platforms, byte for byte; its tag comes last. Raises OciError and OSError."""
    layout = Layout(image.path)
    top = layout.top(image)
    if top is None:
        raise OciError(f"{image.path}: {image.name} is not there any longer; copy the image there again")
    for blob in blobs(top, layout.read):
        if blob.manifest:
            content = _manifest(layout, blob)
            name = image.tag if blob == top else blob.digest
            registry.put_manifest(image.repository, name, content, media_type(content))
        else:
            _push_blob(layout, blob, image, registry)


def _push_blob(layout: Layout, blob: Blob, image: Image, registry: Registry) -> None:
    try:
        with layout.opened(blob) as file:
            if os.fstat(file.fileno()).st_size != blob.size:
                raise OciError(f"{layout.directory}: {blob.digest} is damaged; copy the image there again")
            registry.put_blob(image.repository, blob.digest, file, blob.size)
    except OSError as exc:
        raise OciError(f"{layout.directory}: {blob.digest}: {exc.strerror}; copy the image there again") from exc


def _manifest(layout: Layout, blob: Blob) -> bytes:
    """Return a manifest as its digest names it: for a tag the registry takes any other one too."""
    content = layout.read(blob.digest)
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != blob.digest:
        raise OciError(f"{layout.directory}: {blob.digest} is damaged; copy the image there again")
    return content
