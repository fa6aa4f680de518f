# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines' configuration: keys of docker's daemon.json, texts of podman's registries and storage."""

import json
import re
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.container_runtime.facts import RuntimePlanError
from ...module_utils.container_runtime.names import DAEMON_JSON

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
                f"{variable}: found {show_value(name)}, expected a registry as host or host:port, as in "
                "mirror.example:5000"
            )


def cgroup_driver_of(found: Mapping[str, Any]) -> str:
    """Return the driver of cgroups that the keys of daemon.json name; empty where they name none."""
    options = found.get("exec-opts")
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
