# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the images of layouts, and push them into a registry with skopeo."""

from __future__ import annotations

import os

from ..common.module import Module
from .oci_index import Image, OciError, parse_index


def find_images(root: str) -> list[Image]:
    """Return the images of all layouts below a directory, sorted by name."""
    images = []
    for directory, below, files in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".")]
        if "oci-layout" in files:
            below.clear()
            with open(os.path.join(directory, "index.json"), encoding="utf-8") as file:
                images += parse_index(file.read(), directory, os.path.relpath(directory, root))
    return sorted(images, key=lambda image: image.name)


def push(module: Module, image: Image, registry: str) -> None:
    """Push an image with skopeo, all its platforms, byte for byte."""
    skopeo = module.get_bin_path("skopeo", required=True)
    command = [skopeo, "copy", "--quiet", "--all", "--preserve-digests", "--dest-tls-verify=false"]
    rc, out, err = module.run_command([*command, f"oci:{image.path}:{image.tag}", f"docker://{registry}/{image.name}"])
    if rc:
        raise OciError(f"{image.path}: skopeo could not push {image.name} to {registry}: {(err or out).strip()[-600:]}")
