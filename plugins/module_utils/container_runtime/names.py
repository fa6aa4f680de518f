# SPDX-License-Identifier: GPL-3.0-or-later
"""Files, units, packages and repository hosts whose state on a host decides on its container engine."""

from __future__ import annotations

DAEMON_JSON = "/etc/docker/daemon.json"
REGISTRIES = "/etc/containers/registries.conf.d/50-container-runtime.conf"
STORAGE_CONF = "/etc/containers/storage.conf"
# The distribution's file, for hosts without one of their own.
STORAGE_SHIPPED = "/usr/share/containers/storage.conf"
UDEV_RULES = "/etc/udev/rules.d/71-nvidia-dev-char.rules"
# Where users of older releases of NVIDIA's toolkit wrote the CDI specification.
STATIC_CDI = "/etc/cdi/nvidia.yaml"
AMD_CDI = "/etc/cdi/amd.json"
# Files whose text decides the plan, and files of which only the existence matters. The former cannot hold credentials.
TEXT_FILES = (REGISTRIES, STORAGE_CONF, STORAGE_SHIPPED, UDEV_RULES)
MARKER_FILES = (STATIC_CDI, AMD_CDI)

DOCKER_UNIT = "docker.service"
REFRESH_PATH, REFRESH_SERVICE = "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"
UNITS = (DOCKER_UNIT, REFRESH_PATH)

DEB_KEYRINGS = "/etc/apt/keyrings"
RPM_KEYRINGS = "/etc/pki/rpm-gpg"

DOCKER_HOST = "download.docker.com"
NVIDIA_HOST = "nvidia.github.io"
AMD_HOST = "repo.radeon.com"
# A mirror of the site has them in its paths.
REPOSITORY_HOSTS = (DOCKER_HOST, NVIDIA_HOST, AMD_HOST)

DOCKER_VENDOR = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
# Packages that Docker's instructions remove first.
DOCKER_OTHERS = {
    "deb": ("docker.io", "docker-cli", "docker-compose", "docker-compose-v2", "docker-doc", "podman-docker",
            "containerd", "runc"),
    "rpm": ("docker", "docker-client", "docker-common", "docker-engine", "moby-engine", "podman-docker", "containerd",
            "runc"),
}  # fmt: skip
TOOLKIT_PACKAGES = ("nvidia-container-toolkit-base", "nvidia-container-toolkit", "amd-container-toolkit")


def relevant_packages(packager: str) -> list[str]:
    """Return every package whose presence matters to a plan."""
    more = ("docker-ce-rootless-extras", "podman", "crun", "apparmor")
    return sorted({*DOCKER_VENDOR, *DOCKER_OTHERS[packager], *TOOLKIT_PACKAGES, *more})
