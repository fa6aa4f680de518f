# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of the engines' configuration: docker's daemon.json, podman's registries and storage."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import RuntimePlanError
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.names import DAEMON_JSON

MANAGED = "# Written by the role container_runtime; changes here are lost.\n"

# systemd finds a device by /dev/char/MAJOR:MINOR. NVIDIA's driver makes its nodes outside sysfs, so udev makes no such
# links, and the next `systemctl daemon-reload` would take the devices from running containers.
UDEV_TEXT = (
    MANAGED + 'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", '
    'RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"\n'
)
LINK_COMMAND = ("/usr/bin/nvidia-ctk", "system", "create-dev-char-symlinks", "--create-all")

# The flags of dockerd for each key; dockerd does not start with both.
FLAGS = {
    "data-root": ("--data-root", "--graph", "-g"),
    "registry-mirrors": ("--registry-mirror",),
    "insecure-registries": ("--insecure-registry",),
    "exec-opts": ("--exec-opt",),
    "runtimes": ("--add-runtime",),
    "features": ("--feature",),
}

_REGISTRY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?\Z")
CGROUP_DRIVER = "native.cgroupdriver"


def check_registries(variable: str, names: Sequence[str]) -> None:
    """Raise RuntimePlanError for names that are not ``host`` or ``host:port``."""
    for name in names:
        if not _REGISTRY.match(name):
            raise RuntimePlanError(
                f"{variable}: found {name!r}, expected a registry as host or host:port, as in mirror.example:5000"
            )


def read_daemon(text: str) -> dict[str, Any]:
    """Return the keys of daemon.json, none for an empty file. Raises RuntimePlanError where docker cannot read it."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise RuntimePlanError(
            f"{DAEMON_JSON} is not valid JSON: {exc}; repair or remove it, docker cannot start with it"
        ) from exc
    if not isinstance(found, dict):
        raise RuntimePlanError(f"{DAEMON_JSON}: found {type(found).__name__}, expected an object of settings")
    return found


# The kinds of docker's values. A value of an inventory is of a class of Ansible's that is derived from one of them.
_KINDS: tuple[tuple[type[Any], str], ...] = ((dict, "an object"), (list, "a list"), (str, "a text"))


def daemon_text(before: str, settings: Mapping[str, Any]) -> str:
    """Return daemon.json with the settings, and everything else unchanged; the same text where nothing changes.

    ``features`` and ``runtimes`` are merged by their keys, ``exec-opts`` by the part before ``=``. Raises
    RuntimePlanError for a file that cannot be read, or a value of another kind than docker's.
    """
    found = read_daemon(before)
    merged = dict(found)
    for key, value in settings.items():
        there: Any = found.get(key)
        kind, name = next(row for row in _KINDS if isinstance(value, row[0]))
        if there is not None and not isinstance(there, kind):
            raise RuntimePlanError(f"{DAEMON_JSON}: {key}: found {there!r}, expected {name}")
        if key in ("features", "runtimes"):
            merged[key] = {**(there or {}), **value}
        elif key == "exec-opts":
            merged[key] = _with_options(there or [], value)
        else:
            merged[key] = value
    return before if merged == found and before else json.dumps(merged, indent=2) + "\n"


def _with_options(there: Sequence[str], wanted: Sequence[str]) -> list[str]:
    names = {option.partition("=")[0] for option in wanted}
    return [*(option for option in there if option.partition("=")[0] not in names), *wanted]


def cgroup_driver_of(text: str) -> str:
    """Return the driver of cgroups that daemon.json names; empty where it names none."""
    options = read_daemon(text).get("exec-opts")
    pairs = [str(option).partition("=") for option in options] if isinstance(options, list) else []
    return next((value for name, _equals, value in pairs if name == CGROUP_DRIVER), "")


def check_flags(settings: Mapping[str, Any], flags: Sequence[str]) -> None:
    """Raise RuntimePlanError where docker's command line has a flag for a key that would be set."""
    given = {flag.partition("=")[0] for flag in flags}
    for key in settings:
        for flag in FLAGS.get(key, ()):
            if flag in given:
                raise RuntimePlanError(
                    f"docker is started with {flag}, and with {key} in {DAEMON_JSON} as well it would not start; "
                    "remove the flag from its unit (systemctl cat docker.service)"
                )


def mirror_urls(mirrors: Sequence[str], insecure: Sequence[str]) -> list[str]:
    """Return docker's addresses of mirrors, over HTTP for insecure ones."""
    return [f"{'http' if name in insecure else 'https'}://{name}" for name in mirrors]


def registries_text(mirrors: Sequence[str], insecure: Sequence[str]) -> str:
    """Return podman's file of registries: the mirrors of docker.io in their order, and the registries without TLS."""
    lines: list[str] = []
    if mirrors:
        lines += ["[[registry]]", 'prefix = "docker.io"', 'location = "docker.io"', ""]
        for name in mirrors:
            lines += ["[[registry.mirror]]", f'location = "{name}"']
            lines += [*(["insecure = true"] if name in insecure else []), ""]
    for name in insecure:
        lines += ["[[registry]]", f'location = "{name}"', "insecure = true", ""]
    return MANAGED + "\n".join(lines)


_SECTION = re.compile(r"^\s*\[(?P<name>[^\]]+)\]\s*(?:#.*)?$")
_GRAPHROOT = re.compile(r"^\s*graphroot\s*=")


def storage_text(text: str, root: str) -> str:
    """Return storage.conf with this directory of images and everything else unchanged; a minimal file for none."""
    line = f"graphroot = {json.dumps(root)}"
    if not text.strip():
        return f'{MANAGED}[storage]\ndriver = "overlay"\nrunroot = "/run/containers/storage"\n{line}\n'
    lines, section, after = text.splitlines(), "", -1
    for number, old in enumerate(lines):
        header = _SECTION.match(old)
        if header:
            section = header.group("name").strip()
            after = number if section == "storage" else after
        elif section == "storage" and _GRAPHROOT.match(old):
            lines[number] = line
            return "\n".join(lines) + "\n"
    if after < 0:
        return "\n".join([*lines, "[storage]", line]) + "\n"
    return "\n".join([*lines[: after + 1], line, *lines[after + 1 :]]) + "\n"
