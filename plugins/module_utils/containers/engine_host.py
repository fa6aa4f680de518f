# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the container engines of a host, and the CDI specifications there. Changes nothing."""

from __future__ import annotations

import glob
import os
from typing import Any, Callable, List, Sequence, Tuple

from ..common.files_host import text_of
from ..common.foreign_json import load_json
from .engine import CDI_DIRS, Found, cdi_kind

# NVIDIA's hook for docker, by its names.
HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
GENERATOR = "/usr/lib/systemd/system-generators/podman-system-generator"

# A command's exit status, standard output and error output; and the path of a command, None where it is missing.
Run = Callable[[List[str]], Tuple[int, str, str]]
Find = Callable[[str], "str | None"]


def read_docker(run: Run, find: Find) -> tuple[Found, dict[str, Any]] | None:
    """Return docker and its own information, None without docker; podman under docker's name does not count."""
    command = find("docker")
    if command is None or "podman" in run([command, "--version"])[1]:
        return None
    rc, out, err = run([command, "info", "--format", "{{json .}}"])
    info = _json(out)
    why = "; ".join(info.get("ServerErrors") or []) or err.strip() or f"exit status {rc}"
    found = Found("docker", command, info.get("ServerVersion") or "", why, cdi_dirs=info.get("CDISpecDirs") or [])
    return found, info


def read_podman(run: Run, find: Find) -> tuple[Found, dict[str, Any]] | None:
    """Return podman and its own information, None without podman."""
    command = find("podman")
    if command is None:
        return None
    rc, out, err = run([command, "info", "--format", "json"])
    info = _json(out)
    found = Found(
        "podman",
        command,
        (info.get("version") or {}).get("Version") or "",
        err.strip() or f"exit status {rc}",
        cgroup_v2=(info.get("host") or {}).get("cgroupVersion") == "v2",
        generator=os.path.exists(GENERATOR),
        cdi_dirs=CDI_DIRS,
    )
    return found, info


def cdi_files(directories: Sequence[str]) -> list[str]:
    """Return the paths of the CDI specifications in these directories."""
    files = [path for top in directories for path in sorted(glob.glob(f"{top}/*"))]
    return [path for path in files if path.endswith((".yaml", ".yml", ".json"))]


def cdi_kinds(directories: Sequence[str]) -> list[str]:
    """Return the kinds of devices that have a CDI specification in these directories."""
    return [kind for kind in (cdi_kind(text_of(path)) for path in cdi_files(directories)) if kind]


def _json(text: str) -> dict[str, Any]:
    try:
        found = load_json(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
