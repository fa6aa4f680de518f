# SPDX-License-Identifier: GPL-3.0-or-later
"""Systems, engines and hosts that the tests of the role container_runtime's planning have in common."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import EngineState, HostState
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.names import DAEMON_JSON
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.model import Request
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.plan import plan_engine

VARS = Path(__file__).resolve().parents[2] / "roles/container_runtime/vars/main.yml"
SYSTEMS = yaml.safe_load(VARS.read_text())["__container_runtime_systems"]
FRESH = HostState()
DOCKER_CE = ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"]


def system(name):
    return SYSTEMS[name]


def decide(request, name="Debian_12", host=FRESH):
    """Return the plan as the role's tasks receive it: plain data with lists."""
    found = plan_engine(request, system(name), host)
    return SimpleNamespace(**found.as_dict(), changes=found.changes, installs=found.installs)


def docker_file(found):
    """Return the settings that the plan merges into docker's file; None where it does not touch the file."""
    entries = [entry for entry in found.settings_files if entry["path"] == DAEMON_JSON]
    return entries[0]["settings"] if entries else None


def deb_docker(place, codename, architecture="amd64"):
    return (
        f"Types: deb\nURIs: https://download.docker.com/{place}\nSuites: {codename}\nComponents: stable\n"
        f"Architectures: {architecture}\nSigned-By: /etc/apt/keyrings/docker.asc\n"
    )


def rpm_docker(place, major):
    return (
        f"[docker-ce-stable]\nname=Docker CE Stable\nbaseurl=https://download.docker.com/{place}/{major}/$basearch/stable\n"
        "enabled=0\ngpgcheck=1\n# Kept from upgrades: a new docker stops every container.\n"
        "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-docker-ce\n"
    )


DEB_KEY, RPM_KEY = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88", "060A61C51B558A7F742B77AAC52FEB6B621E9F35"
VENDOR = [
    ("Debian_12", "linux/debian", "bookworm"),
    ("Debian_13", "linux/debian", "trixie"),
    ("Ubuntu_22", "linux/ubuntu", "jammy"),
    ("Ubuntu_24", "linux/ubuntu", "noble"),
    ("Ubuntu_26", "linux/ubuntu", "resolute"),
    ("RedHat_9", "linux/rhel", 9),
    ("RedHat_10", "linux/rhel", 10),
    ("Rocky_9", "linux/centos", 9),
    ("Rocky_10", "linux/centos", 10),
    ("AlmaLinux_9", "linux/centos", 9),
    ("AlmaLinux_10", "linux/centos", 10),
    ("CentOS_9", "linux/centos", 9),
    ("CentOS_10", "linux/centos", 10),
    ("OracleLinux_9", "linux/centos", 9),
    ("OracleLinux_10", "linux/centos", 10),
]

DISTRO = [
    ("Debian_12", "docker", ["docker.io"]),
    ("Debian_13", "docker", ["docker.io", "docker-cli"]),
    ("Ubuntu_22", "docker", ["docker.io"]),
    ("Ubuntu_24", "docker", ["docker.io"]),
    ("Ubuntu_26", "docker", ["docker.io"]),
    ("Debian_12", "podman", ["podman", "catatonit", "netavark", "aardvark-dns"]),
    ("Debian_13", "podman", ["podman", "catatonit", "netavark", "aardvark-dns"]),
    ("Ubuntu_22", "podman", ["podman", "catatonit", "containernetworking-plugins"]),
    ("Ubuntu_24", "podman", ["podman", "catatonit", "netavark", "aardvark-dns"]),
    ("Ubuntu_26", "podman", ["podman", "catatonit", "netavark", "aardvark-dns"]),
    ("RedHat_9", "podman", ["podman"]),
    ("RedHat_10", "podman", ["podman"]),
    ("Rocky_9", "podman", ["podman"]),
    ("Rocky_10", "podman", ["podman"]),
]
DISTRO_DOCKER = Request(source="distro")

# How a docker before 25 is told of NVIDIA's chips.
HOOK = {
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}},
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
}


def docker_host(version="26.1.5", packages=("docker.io", "docker-cli"), daemon_json=None, **state):
    given = {"root": "/var/lib/docker", "cgroup_driver": "systemd", "runtimes": ["runc"], **state}
    return HostState(
        engines={"docker": EngineState("docker", "/usr/bin/docker", version=version, **given)},
        packages=dict.fromkeys(packages, version),
        held=list(packages),
        daemon_json=daemon_json or {},
        active=["docker.service"],
    )


def podman_host(**more):
    state = {"root": "/var/lib/containers/storage", **more}
    return HostState(
        engines={"podman": EngineState("podman", "/usr/bin/podman", version="5.4.2", **state)},
        packages={"podman": "5.4.2"},
    )


# Answers of a docker that is as the role installs it. $FAKE is the directory of the commands.
INFO = {
    "ServerVersion": "26.1.5+dfsg1",
    "DockerRootDir": "/var/lib/docker",
    "CgroupDriver": "systemd",
    "Runtimes": {"runc": {}},
    "RegistryConfig": {"Mirrors": [], "IndexConfigs": {}},
}
COMMANDS = {
    "docker": 'case "$1" in --version) echo Docker;; info) cat "$FAKE/info";; ps) cat "$FAKE/names";; esac',
    "dockerd": "exit 0",
    "dpkg-query": 'case "$*" in *Want*) echo docker.io 26 hold installed; echo docker-cli 26 hold installed;; esac',
    "systemctl": "exit 0",
}


def write_engine(directory: Path) -> None:
    """Write the commands of a host with Debian 13's docker into a directory, with the files that hold their answers."""
    for name, line in COMMANDS.items():
        (directory / name).write_text(f"#!/bin/sh\n{line}\n")
        (directory / name).chmod(0o755)
    (directory / "info").write_text(json.dumps(INFO))
    (directory / "names").write_text("")
