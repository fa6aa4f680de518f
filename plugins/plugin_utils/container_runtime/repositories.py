# SPDX-License-Identifier: GPL-3.0-or-later
"""Package repositories of docker, NVIDIA's and AMD's container toolkits: entries, keys, packages."""

import re
from typing import Any, Mapping

from ...module_utils.common.credentials import redact_credentials
from ...module_utils.common.kinds import show_value
from ...module_utils.container_runtime.facts import HostState, RuntimePlanError
from ...module_utils.container_runtime.names import (
    AMD_HOST,
    DEB_KEYRINGS,
    DOCKER_HOST,
    DOCKER_VENDOR,
    NVIDIA_HOST,
    RPM_KEYRINGS,
)
from .model import Request

# Fingerprints of the vendors' signing keys. No other key is ever trusted.
DOCKER_DEB_KEY = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"
DOCKER_RPM_KEY = "060A61C51B558A7F742B77AAC52FEB6B621E9F35"
NVIDIA_KEY = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
AMD_KEY = "CA8BB4727A47B4D09B4EE8969386B48A1A693C5C"

# The vendor's packages with the engine's own version.
DOCKER_VERSIONED = ("docker-ce", "docker-ce-cli")
# Packages that conflict with a distribution's docker.
DOCKER_DISTRO_OTHERS = (*DOCKER_VENDOR, "docker-ce-rootless-extras", "podman-docker")

_FINGERPRINT = re.compile(r"[0-9A-F]{40}\Z")

# Debian's names of the processors.
_DEB_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def docker_repository(system: Mapping[str, Any], request: Request, host: HostState) -> dict[str, Any]:
    """Return Docker's repository for this system."""
    place = system["docker"]["vendor"]
    if system["packager"] == "deb":
        return _deb(
            "docker",
            request,
            uri=(DOCKER_HOST, place),
            suite=system["codename"],
            component="stable",
            architecture=deb_architecture(host),
            key=(DOCKER_HOST, f"{place}/gpg", DOCKER_DEB_KEY),
        )
    return _rpm(
        "docker-ce",
        "docker-ce-stable",
        "Docker CE Stable",
        request,
        # Not $releasever: a host pinned to a minor release has no directory there.
        uri=(DOCKER_HOST, f"{place}/{system['major']}/$basearch/stable"),
        key=(DOCKER_HOST, f"{place}/gpg", DOCKER_RPM_KEY),
        more=["gpgcheck=1", *(["# Kept from upgrades: a new docker stops every container."] if request.hold else [])],
        enabled=not request.hold,
    )


def nvidia_repository(system: Mapping[str, Any], request: Request, host: HostState) -> dict[str, Any]:
    """Return the repository of NVIDIA's container toolkit, the same for every release of an operating system."""
    key = (NVIDIA_HOST, "libnvidia-container/gpgkey", NVIDIA_KEY)
    if system["packager"] == "deb":
        place = f"libnvidia-container/stable/deb/{deb_architecture(host)}"
        return _deb("nvidia-container-toolkit", request, uri=(NVIDIA_HOST, place), suite="/", key=key)
    return _rpm(
        "nvidia-container-toolkit",
        "nvidia-container-toolkit",
        "NVIDIA container toolkit",
        request,
        uri=(NVIDIA_HOST, "libnvidia-container/stable/rpm/$basearch"),
        key=key,
        # Its packages are not signed; the list with their checksums is.
        more=["gpgcheck=0", "repo_gpgcheck=1"],
    )


def amd_repository(system: Mapping[str, Any], request: Request, host: HostState) -> dict[str, Any]:
    """Return the repository of AMD's container toolkit; raises RuntimePlanError where AMD has none for the system."""
    place = system.get("amd_toolkit")
    if not place or host.architecture != "x86_64":
        raise RuntimePlanError(
            f"container_runtime_toolkit is vendor, and AMD has no container toolkit for {system['title']} on "
            f"{host.architecture}; with auto, containers get the plain devices, which is all that vLLM needs"
        )
    key = (AMD_HOST, "rocm/rocm.gpg.key", AMD_KEY)
    if system["packager"] == "deb":
        return _deb(
            "amd-container-toolkit",
            request,
            uri=(AMD_HOST, "amd-container-toolkit/apt"),
            suite=place,
            component="main",
            architecture="amd64",
            key=key,
        )
    return _rpm(
        "amd-container-toolkit",
        "amd-container-toolkit",
        "AMD container toolkit",
        request,
        uri=(AMD_HOST, f"amd-container-toolkit/{place}/main"),
        key=key,
        more=["gpgcheck=1"],
    )


def deb_architecture(host: HostState) -> str:
    """Return Debian's name of the processor; raises RuntimePlanError for one without packages of the vendors."""
    if host.architecture not in _DEB_ARCHITECTURES:
        raise RuntimePlanError(
            f"the vendors' repositories have no packages for {host.architecture}; they have some for "
            f"{', '.join(sorted(_DEB_ARCHITECTURES))}"
        )
    return _DEB_ARCHITECTURES[host.architecture]


def _url(request: Request, host: str, path: str) -> str:
    """Return the vendor's address, or that of the same path in the site's mirror."""
    base = f"{request.mirror_url.rstrip('/')}/{host}" if request.source == "mirror" else f"https://{host}"
    return f"{base}/{path}"


def _signers(request: Request, vendors: str) -> list[str]:
    """Return the fingerprints of accepted keys: the vendor's, or the site's if its mirror signs itself."""
    own = sorted(name.replace(" ", "").upper() for name in request.mirror_fingerprints)
    for name in own:
        if not _FINGERPRINT.match(name):
            raise RuntimePlanError(
                f"container_runtime_mirror_fingerprints: found {show_value(name)}, expected 40 hexadecimal digits as "
                "gpg --fingerprint shows them"
            )
    return own if own and request.source == "mirror" else [vendors]


def _deb(
    name: str,
    request: Request,
    uri: tuple[str, str],
    suite: str,
    key: tuple[str, str, str],
    component: str = "",
    architecture: str = "",
) -> dict[str, Any]:
    keyring = f"{DEB_KEYRINGS}/{name}.asc"
    lines = ["Types: deb", f"URIs: {_url(request, *uri)}", f"Suites: {suite}"]
    lines += [f"Components: {component}"] if component else []
    lines += [f"Architectures: {architecture}"] if architecture else []
    return {
        "name": name,
        "path": f"/etc/apt/sources.list.d/{name}.sources",
        "content": "\n".join([*lines, f"Signed-By: {keyring}", ""]),
        "key": {"path": keyring, "url": _url(request, key[0], key[1]), "fingerprints": _signers(request, key[2])},
        "host": uri[0],
        "enable": "",
    }


def _rpm(
    name: str,
    section: str,
    title: str,
    request: Request,
    uri: tuple[str, str],
    key: tuple[str, str, str],
    more: list[str],
    enabled: bool = True,
) -> dict[str, Any]:
    keyring = f"{RPM_KEYRINGS}/RPM-GPG-KEY-{name}"
    lines = [f"[{section}]", f"name={title}", f"baseurl={_url(request, *uri)}", f"enabled={int(enabled)}", *more]
    return {
        "name": name,
        "path": f"/etc/yum.repos.d/{name}.repo",
        "content": "\n".join([*lines, f"gpgkey=file://{keyring}", ""]),
        "key": {"path": keyring, "url": _url(request, key[0], key[1]), "fingerprints": _signers(request, key[2])},
        "host": uri[0],
        # The package manager must enable a disabled repository explicitly.
        "enable": "" if enabled else section,
    }


_UNSIGNED = re.compile(r"\[[^\]]*trusted=yes|^\s*Trusted:\s*yes", re.IGNORECASE | re.MULTILINE)


def elsewhere(repository: Mapping[str, Any], host: HostState) -> str:
    """Return a file, not written by the role, that names this vendor's repository; empty if there is none.

    apt fails on two entries with different keys. Raises RuntimePlanError for an entry that checks no signatures.
    """
    content = redact_credentials(repository["content"])
    where = re.search(r"^(?:URIs: |baseurl=)https?://(?P<url>\S+)", content, re.MULTILINE)
    # Without the processor and the release, because other entries may use variables for them.
    place = re.split(r"/(?:amd64|arm64|\d+/\$basearch|\$basearch)", where.group("url") if where else "")[0]
    for path, text in sorted(host.sources.items()):
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        if path == repository["path"] or not any(place in line for line in lines):
            continue
        if _UNSIGNED.search("\n".join(lines)):
            raise RuntimePlanError(
                f"{path} installs packages of {place} without checking their signature; remove trusted=yes "
                "there, or remove the file and the role writes its own"
            )
        return path
    return ""
