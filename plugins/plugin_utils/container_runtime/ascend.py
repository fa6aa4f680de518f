# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the Ascend Docker Runtime, Huawei's runtime for docker: whether its installer runs, and with which arguments."""

import re
from dataclasses import dataclass
from typing import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from ...module_utils.common.kinds import show_value
from ...module_utils.common.run_file import Installer
from ...module_utils.container_runtime.ascend import LOG, PROGRAM, TITLE
from ...module_utils.container_runtime.facts import HostState, RuntimePlanError
from .model import PlanPart, Request

# Writable by root only, as the installer requires of every directory above the file that it changes.
CACHE = "/var/cache/ascend-docker-runtime"
# The installer would change docker's own file (the runtime for every container, mode 0600). It gets this one instead,
# and the role writes docker's settings to daemon.json.
SCRATCH = f"{CACHE}/daemon.json"
RUNTIME = {"ascend": {"path": PROGRAM, "runtimeArgs": []}}
SINCE = (18, 9)

_VARIABLE = "container_runtime_ascend_file"
# The installer searches for `uname -m` in its own name.
_NAME = re.compile(r"Ascend-docker-runtime_v?(?P<version>\d[\w.+-]*)_linux-(?P<machine>[\w-]+)\.run\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_PLAIN = "set container_runtime_toolkit: auto, with which containers get the plain devices"


@dataclass(frozen=True)
class RuntimeInstaller(Installer):
    """An installer that changes the file ``scratch`` instead of docker's own."""

    scratch: str = ""


def plan_ascend(request: Request, host: HostState, version: Sequence[int]) -> PlanPart:
    """Plan the runtime for a host whose docker has this version. Raises RuntimePlanError where it cannot be used."""
    if request.engine != "docker":
        raise RuntimePlanError(
            f"container_runtime_toolkit is vendor, and the {TITLE} is for docker only; with podman {_PLAIN}"
        )
    if tuple(version) < SINCE:
        number = ".".join(str(part) for part in version)
        raise RuntimePlanError(f"the {TITLE} needs docker 18.09 or later, and this is {number}; {_PLAIN}")
    wanted = _wanted(request, host)
    if host.ascend and (wanted is None or wanted["version"] == host.ascend):
        return PlanPart()
    if host.ascend and wanted is not None and _is_retained(request, host.ascend, wanted["version"]):
        difference = _difference(host.ascend, wanted["version"])
        return PlanPart(
            notes=(f"{difference}; it works and stays unchanged (container_runtime_policy: {request.policy})",)
        )
    if request.source == "none":
        raise RuntimePlanError(
            f"the {TITLE} is not on this host, and container_runtime_source is none; install it, or {_PLAIN}"
        )
    if wanted is None:
        raise RuntimePlanError(
            f"{_VARIABLE} is empty, and the {TITLE} is not on this host; give url and sha256 of "
            f"Ascend-docker-runtime_VERSION_linux-{host.architecture}.run, or {_PLAIN}"
        )
    if not request.ascend_licence_accepted:
        raise RuntimePlanError(
            f"Huawei's licence is not accepted, without which the {TITLE} is not installed; read it at "
            "https://www.hiascend.com and set cann_licence_accepted: true"
        )
    return PlanPart(installers=(_installer(wanted),))


def _wanted(request: Request, host: HostState) -> dict[str, str] | None:
    """Return url, sha256, name and version of the file that is requested; None if there is none."""
    given = {key: str(value) for key, value in (request.ascend_file or {}).items() if value}
    if not given:
        return None
    url, sha256 = given.get("url", ""), given.get("sha256", "").lower()
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise RuntimePlanError(
            f"{_VARIABLE}.url: found {show_value(url)}, expected an address with http, https or file://"
        )
    if not _SHA256.match(sha256):
        raise RuntimePlanError(
            f"{_VARIABLE}.sha256: found {show_value(sha256)}, expected 64 hexadecimal digits as sha256sum prints them; "
            "a file without a known checksum is not run"
        )
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    parts = _NAME.match(name)
    if parts is None or parts.group("machine") != host.architecture:
        raise RuntimePlanError(
            f"{_VARIABLE}.url: found {show_value(name)}, expected "
            f"Ascend-docker-runtime_VERSION_linux-{host.architecture}.run: the installer depends on its file name"
        )
    return {"url": url, "sha256": sha256, "name": name, "version": parts.group("version")}


def _difference(found: str, wanted: str) -> str:
    return f"the {TITLE} is {found}, and {_VARIABLE} is {wanted}"


def _is_retained(request: Request, found: str, wanted: str) -> bool:
    """Return whether container_runtime_policy keeps another version; raises RuntimePlanError for ``halt``."""
    if request.policy == "halt":
        raise RuntimePlanError(f"{_difference(found, wanted)}, and container_runtime_policy is halt")
    return request.policy != "install" or request.source == "none"


def _installer(wanted: Mapping[str, str]) -> RuntimeInstaller:
    path = f"{CACHE}/{wanted['name']}"
    return RuntimeInstaller(
        name=TITLE,
        url=wanted["url"],
        path=path,
        sha256=wanted["sha256"],
        argv=(path, "--install", f"--config-file-path={SCRATCH}"),
        why=f"version {wanted['version']} is requested",
        log=LOG,
        # The installer asks about the licence, and ends with status 0 even if the licence is refused.
        stdin="Y",
        scratch=SCRATCH,
    )
