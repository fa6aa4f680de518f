# SPDX-License-Identifier: GPL-3.0-or-later
"""A source distribution with two recipes, and the pins of one."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

VERSION = "9.1.0"
TINY = b"model: {model_id: org/tiny}\n"
CONTENTS = {
    "LICENSE": b"Apache License\n",
    "recipes/manifest.yaml": b"schema_version: 1\n",
    "recipes/models/org/tiny.yaml": TINY,
    "recipes/models/org/big.yaml": b"model: {model_id: org/big}\n",
    "vllm/__init__.py": b"",
}


def write_archive(path: Path, contents: dict[str, bytes] | None = None, version: str = VERSION) -> Path:
    """Write a source distribution."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in (CONTENTS if contents is None else contents).items():
            member = tarfile.TarInfo(f"vllm-{version}/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path
