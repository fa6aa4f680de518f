# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the images in the index of an OCI image layout, named as in a registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable

from ..common.foreign_json import load_json
from ..common.foreign_text import quote_foreign

# What the distribution specification allows; a registry refuses other names with a poorer reason.
REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TAG_ANNOTATION = "org.opencontainers.image.ref.name"

# All media types of a manifest; a registry returns only the requested types.
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


class OciError(ValueError):
    """A layout cannot be used; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Image:
    """One image of a layout at ``path``, by the name that a registry has for it."""

    path: str
    repository: str
    tag: str
    digest: str

    @property
    def name(self) -> str:
        return f"{self.repository}:{self.tag}"


def parse_index(text: str, path: str, repository: str) -> list[Image]:
    """Return the images of the layout at path from its index.json. Raises OciError."""
    where = f"{path}/index.json"
    if not REPOSITORY.fullmatch(repository):
        raise OciError(
            f"{path}: {repository!r} cannot be the name of a repository; "
            "expected lower-case letters, digits, '.', '_' and '-', parted by '/'"
        )
    try:
        manifests = load_json(text)["manifests"]
        return [_image(manifest, where, path, repository) for manifest in manifests]
    except OciError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as exc:
        raise OciError(
            f"{where}: not the index of an image layout ({quote_foreign(repr(exc))}); copy the image there again"
        ) from exc


def _image(manifest: dict[str, Any], where: str, path: str, repository: str) -> Image:
    tag, digest = (manifest.get("annotations") or {}).get(TAG_ANNOTATION, ""), manifest["digest"]
    if not TAG.fullmatch(tag):
        raise OciError(
            f"{where}: found the tag {str(tag)[:128]!r}, expected one like v0.33.0; "
            f"copy the image there again with its tag: skopeo copy ... oci:{path}:TAG"
        )
    if not DIGEST.fullmatch(digest):
        raise OciError(
            f"{where}: found the digest {str(digest)[:128]!r}, expected sha256:...; copy the image there again"
        )
    return Image(path, repository, tag, digest)


def listing(images: Iterable[Image], digests: dict[str, str | None]) -> str:
    """Return a line for each image that has a digest, as a diff shows it."""
    lines = [f"{image.name} {digests[image.name]}\n" for image in images if digests[image.name]]
    return "".join(sorted(lines))
