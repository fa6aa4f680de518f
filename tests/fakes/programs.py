# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of hosts, laid out as roles install them: nothing of the checkout is on their path."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.baremetal.inference.plugins.plugin_utils.common.host_library import DIRECTORY, program_files


def installed(name: str, top: Path) -> Path:
    """Install a program with all that it imports below ``top`` instead of /usr/local/lib; return its path."""
    for entry in program_files(name):
        if entry.get("state") == "absent":
            continue
        path = top / Path(entry["path"]).relative_to(DIRECTORY)
        if entry.get("state") == "directory":
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Path(entry["src"]).read_text() if "src" in entry else entry["content"])
    return path
