# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the container engine that runs a host's instances, and how it gives devices to containers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ..common.versions import numbers_of, upstream_version

ENGINES = ("docker", "podman")
PACKAGES = {"docker": "docker.io (Debian) or docker-ce", "podman": "podman"}

# The first releases with these abilities.
QUADLET = (4, 4)
CDI = {"docker": (25,), "podman": (4, 1)}
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
NVIDIA = "nvidia.com/gpu"

# The origin of a device node or of a driver's file, by the beginning of its path.
ORIGINS = (
    ("/dev/kfd", "AMD's driver (package amdgpu-dkms, module amdgpu)"),
    ("/dev/dri", "AMD's or Intel's driver (package amdgpu-dkms, module amdgpu; module xe)"),
    ("/dev/davinci", "Huawei's driver (Ascend HDK)"),
    ("/dev/devmm_svm", "Huawei's driver (Ascend HDK)"),
    ("/dev/hisi_hdc", "Huawei's driver (Ascend HDK)"),
    ("/usr/local/Ascend", "Huawei's driver (Ascend HDK)"),
    ("/usr/local/dcmi", "Huawei's driver (Ascend HDK)"),
    ("/usr/local/bin/npu-smi", "Huawei's driver (Ascend HDK)"),
    ("/etc/ascend_install.info", "Huawei's driver (Ascend HDK)"),
)


class ContainerError(ValueError):
    """This host cannot run the requested containers; the message is the whole sentence."""


@dataclass(frozen=True)
class Found:
    """An engine's command on a host. ``version`` is the engine's own, empty where it does not answer (``why``)."""

    name: str
    command: str = ""
    version: str = ""
    why: str = ""
    cgroup_v2: bool = True
    generator: bool = True
    cdi_dirs: Sequence[str] = ()


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of an engine's version: ``20.10.24+dfsg1`` is (20, 10, 24). Empty where there is none."""
    return numbers_of(upstream_version(text))


def has_quadlet(found: Found) -> bool:
    """Return whether this podman makes units from quadlets: its release, its generator, and cgroups of version 2."""
    return found.name == "podman" and version_of(found.version) >= QUADLET and found.generator and found.cgroup_v2


def has_cdi(found: Found) -> bool:
    """Return whether this engine supports ``--device nvidia.com/gpu=0``.

    docker lists its CDI directories only if the feature is enabled, which is the default from 28.2.
    """
    return version_of(found.version) >= CDI[found.name] and bool(found.cdi_dirs)


def choose_engine(wanted: str, there: Sequence[Found]) -> Found:
    """Return the engine that runs this host's instances: the requested one, else docker, else podman.

    The installed engines decide, not the running ones: an engine that is down for a while must not hand its instances
    to the other. Raises ContainerError if there is none, or if it does not answer.
    """
    by_name = {found.name: found for found in there}
    names = [wanted] if wanted else [name for name in ENGINES if name in by_name]
    if not names or names[0] not in by_name:
        what = (
            f"vllm_engine is {wanted}, which is not"
            if wanted
            else "the runtime 'container' needs docker or podman: neither is"
        )
        packages = PACKAGES[wanted] if wanted else " or ".join(PACKAGES[name] for name in ENGINES)
        raise ContainerError(
            f"{what} on this host; install the package {packages} first, or let the role container_runtime do it"
        )
    found = by_name[names[0]]
    if not found.version:
        advice = "start it (systemctl start docker)" if found.name == "docker" else "run 'podman info' there"
        raise ContainerError(
            f"{found.name} is installed but does not answer ({found.why or 'no reason given'}); {advice}"
        )
    return found


def gpus_by(found: Found, devices: Iterable[str], kinds: Iterable[str], hook: bool) -> str:
    """Return how to request the host's CDI devices: ``cdi``, or docker's older ``flag`` (--gpus).

    ``kinds`` are those with a CDI specification on the host; ``hook`` is true if NVIDIA's hook for docker is
    installed. Raises ContainerError if neither way works.
    """
    needed = sorted({device.partition("=")[0] for device in devices if not device.startswith("/")})
    missing = [kind for kind in needed if kind not in set(kinds)]
    if not needed or (has_cdi(found) and not missing):
        return "cdi"
    if found.name == "docker" and hook and needed == [NVIDIA]:
        return "flag"
    raise ContainerError(f"{found.name} cannot give {', '.join(needed)} to a container: {_why_not(found, missing)}")


def _why_not(found: Found, missing: Sequence[str]) -> str:
    if has_cdi(found):
        return (
            f"no CDI specification of {', '.join(missing)} is in {' or '.join(found.cdi_dirs)}; install the package "
            "nvidia-container-toolkit and run nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
        )
    since = ".".join(str(number) for number in CDI[found.name])
    if found.name == "podman":
        return f"podman {found.version} does not support CDI devices; {since} and later do"
    return (
        f"docker {found.version} does not support CDI devices ({since} and later do, with the feature cdi in "
        "daemon.json), and its older method, NVIDIA's hook, is missing; install the package nvidia-container-toolkit"
    )


def cdi_kind(text: str) -> str:
    """Return the kind of a CDI specification, YAML or JSON; empty where it names none."""
    found = re.search(r"""^[ \t]*(?:\{\s*)?["']?kind["']?\s*:\s*["']?([\w.-]+/[\w.-]+)""", text, re.MULTILINE)
    if found is None:
        # A JSON document may stand on one line.
        found = re.search(r'"kind"\s*:\s*"([\w.-]+/[\w.-]+)"', text)
    return found.group(1) if found else ""


def needed_paths(containers: Iterable[Mapping[str, Any]], own: Sequence[str]) -> list[str]:
    """Return device nodes and sources of mounts that must be on the host before a start; ``own`` are the role's places.

    The run itself creates what lies below the role's own places: weights, encodings, caches and configuration.
    """
    paths: dict[str, None] = {}
    for container in containers:
        paths.update((device, None) for device in container["devices"] if device.startswith("/"))
        sources = [mount.split(":")[0] for mount in container["mounts"]]
        paths.update((path, None) for path in sources if not _below(path, own))
    return list(paths)


def origin(path: str) -> str:
    """Return the driver that provides a device node or a file."""
    return next((who for begin, who in ORIGINS if path.startswith(begin)), "the accelerator's driver")


def _below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)
