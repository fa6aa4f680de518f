#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write two wheels without content into a directory."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

directory = Path(sys.argv[1])
directory.mkdir(parents=True, exist_ok=True)
for name, version in (("tiny_one", "1.0"), ("other", "2.0")):
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.8\n"
        archive.writestr(f"{name}-{version}.dist-info/METADATA", metadata)
