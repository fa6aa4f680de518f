# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy images from registries into layouts, with skopeo."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Iterable

from ..common.files_host import make_directories
from ..common.module import Module
from .layouts import Blob, Wanted, blobs, wanted
from .layouts_host import Layout
from .oci_index import OciError


def run(module: Module) -> dict[str, Any]:
    """Ask all registries, then copy what is missing. Raises OciError or OSError."""
    images = settled(wanted(image, module.params["sources"]) for image in dict.fromkeys(module.params["images"]))
    missing = {image: lacking(module, image) for image in images}
    todo = [image for image in images if missing[image]]
    if not module.check_mode:
        for image in todo:
            copy(module, image, missing[image])
    holds: dict[str, Any] = {}
    for image in images:
        if not (module.check_mode and missing[image]):
            holds.update(layout_of(module, image).holds(image))
    sizes = {blob.digest: blob.size for image in todo for blob in missing[image]}
    fetched = [image.name for image in todo]
    return {"changed": bool(todo), "fetched": fetched, "missing_bytes": sum(sizes.values()), "holds": holds}


def settled(images: Iterable[Wanted]) -> list[Wanted]:
    """Return one image for each name on the mirror; an image with a digest decides which one its tag means.

    Raises OciError where two would have one name, or one directory lies in another: the second would replace the first.
    """
    names: dict[str, Wanted] = {}
    for image in images:
        other = names.setdefault(image.name, image)
        if _place(other.source) != _place(image.source) or (other.digest or image.digest) != (
            image.digest or other.digest
        ):
            raise OciError(
                f"{other.image} and {image.image} are both {image.name} on the mirror; let all hosts name the same "
                "one, or give one of them another tag"
            )
        if image.digest:
            names[image.name] = image
    places = sorted({image.repository for image in names.values()})
    for place in places:
        above = next((other for other in places if place.startswith(f"{other}/")), "")
        if above:
            raise OciError(
                f"images of {above} and of {place} cannot lie in one directory; mirror one of them elsewhere"
            )
    return list(names.values())


def _place(source: str) -> str:
    """Return an address without its tag or digest."""
    before, slash, last = source.partition("@")[0].rpartition("/")
    return f"{before}{slash}{last.partition(':')[0]}"


def layout_of(module: Module, image: Wanted) -> Layout:
    """Return the layout that an image belongs to."""
    root, full = module.params["root"], module.params["verify"] == "full"
    return Layout(os.path.join(root, "images", image.repository), full)


def lacking(module: Module, image: Wanted) -> list[Blob]:
    """Return the blobs that a layout lacks of an image as its registry has it. Raises OciError."""
    layout = layout_of(module, image)
    there = layout.top(image)
    complete = there is not None and not layout.lacks(there)
    if complete and there and there.digest == image.digest:
        return []
    try:
        raw = inspect(module, image.source)
    except OciError as exc:
        if complete and not image.digest:
            module.warn(f"{image.name} stays unchanged: {exc}")
            return []
        raise
    top = Blob(f"sha256:{hashlib.sha256(raw).hexdigest()}", len(raw), True)
    if image.digest and top.digest != image.digest:
        raise OciError(f"{image.source}: found {top.digest}, expected {image.digest}")
    if complete and there == top:
        return []
    every = list(blobs(top, lambda digest: raw if digest == top.digest else inspect(module, image.source, digest)))
    # Blobs of an interrupted copy count.
    places = [layout, layout.partial()]
    return [blob for blob in every if not any(place.has(blob) for place in places)] or [top]


def inspect(module: Module, source: str, digest: str = "") -> bytes:
    """Return a manifest of an image as its registry has it. Raises OciError."""
    if digest:
        source = by_digest(source, digest)
    return skopeo(module, ["inspect", "--raw", source], f"cannot read {source}")


def by_digest(source: str, digest: str) -> str:
    """Return the address of another manifest of the same repository. Raises OciError where there is none."""
    if not source.startswith("docker://"):
        raise OciError(f"{source}: it holds several platforms; expected one, or a registry (docker://...)")
    place, slash, last = source.partition("@")[0].rpartition("/")
    return f"{place}{slash}{last.partition(':')[0]}@{digest}"


def copy(module: Module, image: Wanted, missing: list[Blob]) -> None:
    """Copy an image with skopeo; a layout gets its final name when its first image is complete. Raises OciError."""
    layout = layout_of(module, image)
    place = layout if layout.is_there else layout.partial()
    make_directories(place.directory)
    place.discard(missing)
    words = ["copy", "--quiet", "--all", "--preserve-digests", image.source, f"oci:{place.directory}:{image.tag}"]
    skopeo(module, words, f"could not copy {image.image}; run again to continue")
    top = place.top(image)
    if top is None or place.lacks(top):
        raise OciError(f"{place.directory}: skopeo copied {image.image}, but it is incomplete; run again")
    place.sweep()
    if place is not layout:
        os.rename(place.directory, layout.directory)


def skopeo(module: Module, words: list[str], trouble: str) -> bytes:
    """Run skopeo and return its output. Raises OciError with its error output."""
    program = module.get_bin_path("skopeo")
    if program is None:
        raise OciError(f"{trouble}: skopeo is not installed here; install it (Debian: apt-get install skopeo)")
    rc, out, err = module.run_command([program, *words], encoding=None)
    if rc:
        output = " ".join((err or out).decode("utf-8", "replace").split())[-600:]
        raise OciError(f"{trouble}: {re.sub('://[^/@ ]+@', '://', output)}")
    return bytes(out)
