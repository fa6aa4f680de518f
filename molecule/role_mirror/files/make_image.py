#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the OCI layout of an image of one empty layer into a directory."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

directory = Path(sys.argv[1])
MEDIA = "application/vnd.oci.image"


def blob(data: bytes, kind: str) -> dict:
    """Write a blob and return its descriptor."""
    sha256 = hashlib.sha256(data).hexdigest()
    path = directory / "blobs" / "sha256" / sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{sha256}", "size": len(data)}


buffer = io.BytesIO()
tarfile.open(fileobj=buffer, mode="w").close()
layer = blob(buffer.getvalue(), "layer.v1.tar")
rootfs = {"type": "layers", "diff_ids": [layer["digest"]]}
config = blob(json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode(), "config.v1+json")
content = {"schemaVersion": 2, "mediaType": f"{MEDIA}.manifest.v1+json", "config": config, "layers": [layer]}
manifest = blob(json.dumps(content).encode(), "manifest.v1+json")
manifest["annotations"] = {"org.opencontainers.image.ref.name": "1.0"}
(directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
(directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
