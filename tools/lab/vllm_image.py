#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make DIR/images/lab/vllm-cpu, a container image that serves on CPUs as the official one does, out of DIR/wheels.

It is an image layout of the Open Container Initiative, which skopeo and the role mirror read: Debian 12, Python and the
wheels of the lock, with `vllm serve` as its entry point. Nothing in it is compressed: it travels over no slow line, and
two processors pack two gigabytes for minutes. An existing image stays unchanged until its inputs change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP), str(TOP / ".collections")]

from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import sha256_of  # noqa: E402
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import parse_lock  # noqa: E402

from tools.lab.images import read_recipe, show_progress  # noqa: E402
from tools.lab.plan import LabError, digest  # noqa: E402
from tools.lab.podman import locked, say  # noqa: E402

NAME, TAG = "lab/vllm-cpu", "0.32.0"
LOCK = TOP / "catalog" / "releases" / "requirements" / "0.32.0-cpu-cp311-x86_64.txt"
HOOK = TOP / "tools" / "lab" / "vllm_image.sh"
# The lock's wheels are built for this release's Python.
DEBIAN = "bookworm"
# Python and the libraries that the release names. No apt, because nothing is installed into a running image.
OPTIONS = (
    "--variant=essential",
    "--include=python3,libnuma1,libtcmalloc-minimal4",
    # An incomplete image is discarded as a whole, so dpkg need not wait for the disk.
    "--dpkgopt=force-unsafe-io",
)
# A third of all bytes, for code on GPUs; vLLM checks whether it is installed.
LEFT_OUT = ("triton",)
CONFIG = {
    "Entrypoint": ["vllm", "serve"],
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
    "WorkingDir": "/",
}
# The time of every file and of the image, so that the same packages and wheels give the same digest.
EPOCH, CREATED = 1767225600, "2026-01-01T00:00:00Z"
MEDIA = "application/vnd.oci.image"
REFERENCE, INPUTS = "org.opencontainers.image.ref.name", "baremetal.inference.inputs"


class Blob(NamedTuple):
    """A reference from one part of an image to another."""

    media_type: str
    sha256: str
    size: int

    def descriptor(self, **more: Any) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": f"sha256:{self.sha256}", "size": self.size, **more}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path, metavar="DIR", help="the mirror's root, with the wheels of the lock in it")
    carried = parser.parse_args().dest.absolute()
    try:
        carried.joinpath("images").mkdir(exist_ok=True)
        with locked(carried / "images" / ".lock", "images of vLLM"):
            ensure(carried / "images" / NAME, carried / "wheels")
    except (OSError, LabError) as exc:
        print(f"ERROR: {exc}", file=sys.stderr)
        return 1
    return 0


def ensure(layout: Path, wheels: Path) -> None:
    """Create the layout from the current inputs."""
    recipe = read_recipe(DEBIAN)
    inputs = digest(LOCK.read_text(), HOOK.read_text(), Path(__file__).read_text(), *OPTIONS, *recipe.sources)
    if inputs_of(layout) == inputs:
        say(f"{layout}: up to date")
        return
    scratch = layout.with_name(f".{layout.name}.partial")
    for old in (scratch, layout):
        shutil.rmtree(old, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        apt = [f"--aptopt={option}" for option in recipe.apt_options]
        build_root(scratch, wheels, [*OPTIONS, *apt], recipe.sources)
        say("image of vLLM: taking its digest")
        write_layout(scratch, scratch / "root.tar", inputs)
        scratch.rename(layout)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"{layout}: made, {sum(file.stat().st_size for file in layout.rglob('*') if file.is_file()) / 1e6:.0f} MB")


def inputs_of(layout: Path) -> str | None:
    """Return the digest of a layout's inputs; None where the layout is missing or incomplete."""
    try:
        index = json.loads((layout / "index.json").read_text())
        return str(index["manifests"][0]["annotations"][INPUTS])
    except (OSError, ValueError, LookupError):
        return None


def build_root(scratch: Path, wheels: Path, options: Sequence[str], sources: Sequence[str]) -> None:
    """Create scratch/root.tar with mmdebstrap, which ends when this process is killed."""
    unpack_uv(wheels, scratch / "uv")
    (scratch / "requirements.txt").write_text(requirements(LOCK.read_text()))
    # Its mounts are in a separate namespace, which disappears with it, even when it is killed.
    command = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "mmdebstrap", *options]
    command += [f"--customize-hook={HOOK}", DEBIAN, str(scratch / "root.tar"), *sources]
    settings = {"UV": scratch / "uv", "LOCK": scratch / "requirements.txt", "WHEELS": wheels, "TMPDIR": scratch}
    environment = {**os.environ, **{key: str(path) for key, path in settings.items()}, "SOURCE_DATE_EPOCH": str(EPOCH)}
    show_progress("image of vLLM", command, environment)
    for used in ("uv", "requirements.txt"):
        (scratch / used).unlink()


def requirements(lock: str) -> str:
    """Return the pins of a lock that the image contains."""
    return "".join(f"{pin.text()}\n" for pin in parse_lock(lock).contents() if pin.name not in LEFT_OUT)


def unpack_uv(wheels: Path, program: Path) -> None:
    """Extract uv, a static program, from its wheel."""
    found = sorted(wheels.glob("uv-*-manylinux*x86_64*.whl"))
    if not found:
        raise LabError(f"{wheels} holds no wheel of uv. Run: {TOP / 'tools' / 'lab' / 'content.sh'}")
    with zipfile.ZipFile(found[-1]) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        program.write_bytes(archive.read(member))
    program.chmod(0o755)


def write_layout(directory: Path, layer: Path, inputs: str) -> None:
    """Turn a directory into the layout of an image with one layer, which is moved into it."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    files = Blob(f"{MEDIA}.layer.v1.tar", sha256_of(str(layer)), layer.stat().st_size)
    layer.rename(blobs / files.sha256)
    config = write_blob(blobs, f"{MEDIA}.config.v1+json", image_config(files))
    manifest = write_blob(blobs, f"{MEDIA}.manifest.v1+json", image_manifest(config, files))
    named = manifest.descriptor(annotations={REFERENCE: TAG, INPUTS: inputs})
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}, indent=1) + "\n")


def image_config(files: Blob) -> dict[str, Any]:
    """Return the configuration of an image with one layer."""
    layers = {"type": "layers", "diff_ids": [f"sha256:{files.sha256}"]}
    return {"created": CREATED, "architecture": "amd64", "os": "linux", "config": CONFIG, "rootfs": layers}


def image_manifest(config: Blob, files: Blob) -> dict[str, Any]:
    """Return the manifest of an image with one layer."""
    return {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": config.descriptor(),
        "layers": [files.descriptor()],
    }


def write_blob(blobs: Path, media_type: str, content: Any) -> Blob:
    """Write a JSON document under the name of its digest."""
    data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    blob = Blob(media_type, hashlib.sha256(data).hexdigest(), len(data))
    (blobs / blob.sha256).write_bytes(data)
    return blob


if __name__ == "__main__":
    sys.exit(main())
