# SPDX-License-Identifier: GPL-3.0-or-later
"""A store of weights with two revisions, as the role publishes them."""

from __future__ import annotations

import hashlib
import os

from ansible_collections.baremetal.inference.plugins.module_utils.weights.files_host import stat_files, write_stamp
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import parse_manifest

A, B = "a" * 40, "b" * 40
# Neither a multiple of the disk's blocks nor of what is read at once.
FILES = {"config.json": b"{}", "model.safetensors": bytes(range(251)) * 9000, "sub/empty": b""}


def manifest(revision, files=None):
    entries = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in (files or FILES).items()
    }
    return parse_manifest({"repository": "example/tiny", "revision": revision, "files": entries})


def publish(root, revision, files=None):
    files = files or FILES
    directory = root / "example/tiny" / revision
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    pinned = manifest(revision, files)
    write_stamp(str(directory), pinned, stat_files(str(directory), pinned))


def flip(path, offset=1_000_000):
    """Change one byte and nothing that stat tells."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def open_to_others(path):
    """Let other users change the names in a directory: by its owner where root runs the tests, else by its mode."""
    if os.geteuid():
        path.chmod(0o777)
    else:
        os.chown(path, 65534, 65534)
