# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host shows of NVIDIA's driver: files and the answers of tools. Runs on the host and changes nothing there."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from typing import Callable, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils._conditions import version_key
from ansible_collections.baremetal.inference.plugins.module_utils._cuda_answers import QUERY, parse_dkms
from ansible_collections.baremetal.inference.plugins.module_utils._cuda_hardware import NVLINK5, NVSWITCH
from ansible_collections.baremetal.inference.plugins.module_utils._cuda_proof import (
    FABRIC_MANAGER,
    NOT_FOUND,
    PERSISTENCED,
    TIMED_OUT,
    Answer,
    Recording,
)
from ansible_collections.baremetal.inference.plugins.module_utils._drivers import read_drivers
from ansible_collections.baremetal.inference.plugins.module_utils._pci import read_functions
from ansible_collections.baremetal.inference.plugins.module_utils._stack import DNF, RHEL_LIKE, Host, Module

Run = Callable[[Sequence[str]], Answer]

# A chip that hangs lets nvidia-smi wait for ever; eight of them without persistence mode take half a minute.
PATIENCE = 90
NVIDIA = "10de"
CHIP_CLASSES = ("0300", "0302")
SWITCHES = ("1af1", "22a3")
# NVLink 5 switches are managed through ports of this vendor's cards that say so in their vital product data.
MELLANOX = "15b3"
MANAGEMENT_PORT = b"SW_MNG"
MODULES = ("nvidia", "nouveau", "mlx5_core", "ib_umad")
# Debian's own packages have the flavour in the module's name.
MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
LOG_LINES = 8
SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SIGNING_KEYS = ("var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub")

_RELEVANT = re.compile(
    r"(nvidia|libnvidia|libnvsdm|cuda-|libcuda1$|firmware-nvidia|kmod-nvidia|xserver-xorg-video-nvidia|nvlsm"
    r"|infiniband-diags|dkms$|linux-(image|headers)-|kernel(-core|-devel|-headers|-devel-matched)?-\d)"
)


def run_command(argv: Sequence[str]) -> Answer:
    """Run a command in the C locale and return what it answered, within PATIENCE seconds."""
    path = shutil.which(argv[0]) or shutil.which(argv[0], path="/usr/sbin:/sbin")
    if path is None:
        return Answer(NOT_FOUND)
    try:
        done = subprocess.run(
            [path, *argv[1:]],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return Answer(TIMED_OUT)
    except OSError as exc:
        return Answer(126, err=f"{path}: {exc.strerror}")
    return Answer(done.returncode, done.stdout, done.stderr)


def read(root: str = "/", sysfs_root: str = "/sys", proc_root: str = "/proc", run: Run = run_command) -> Recording:
    """Return what is on a host. ``root`` is where /etc, /boot and /var are.

    Raises PciError where there is no sysfs.
    """
    host = read_host(root, sysfs_root, proc_root, run)
    functions = [function for function in read_functions(sysfs_root, (NVIDIA,)) if not function.virtual]
    switches = [function for function in functions if function.device_id in SWITCHES]
    fabric = NVSWITCH if switches else NVLINK5 if has_management_port(sysfs_root) else ""
    information = glob.glob(os.path.join(proc_root, "driver", "nvidia", "gpus", "*", "information"))
    return Recording(
        host=host,
        chips=tuple(function.address for function in functions if function.class_id in CHIP_CLASSES),
        fabric=fabric,
        query=run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]),
        report=run(["nvidia-smi", "-q", "-x"]),
        information={os.path.basename(os.path.dirname(path)).lower(): _text(path) for path in sorted(information)},
        disk={kernel: _module_info(kernel, run) for kernel in host.kernels},
        services={
            name: run(["systemctl", "is-active", f"{name}.service"]).out.strip()
            for name in (PERSISTENCED, FABRIC_MANAGER)
        },
        kernel_log=_kernel_log(run),
        nvrm=_text(os.path.join(proc_root, "driver", "nvidia", "version")),
        build_log=_build_log(root),
    )


def read_host(root: str, sysfs_root: str, proc_root: str, run: Run) -> Host:
    """Return what is known of the host itself."""
    release = _os_release(os.path.join(root, "etc", "os-release"))
    kernel = _text(os.path.join(proc_root, "sys", "kernel", "osrelease")).strip()
    distribution = release.get("ID", "")
    secure_boot = _secure_boot(sysfs_root)
    nvidia = read_drivers(sysfs_root, proc_root).get("nvidia", {})
    modules = {name: _module(sysfs_root, name) for name in MODULES}
    if nvidia:
        # A container may see the driver in procfs alone.
        modules["nvidia"] = Module(nvidia["version"], modules["nvidia"].srcversion if modules["nvidia"] else None)
    manager_is_dnf = distribution in RHEL_LIKE
    return Host(
        distribution=distribution,
        version=release.get("VERSION_ID", ""),
        codename=release.get("VERSION_CODENAME", ""),
        architecture=os.uname().machine,
        kernel=kernel,
        next_kernel=_next_kernel(root, run) or kernel,
        secure_boot=secure_boot,
        signing_key_enrolled=_is_enrolled(root, run) if secure_boot else None,
        packages=_rpm_packages(run) if manager_is_dnf else _deb_packages(run),
        modules={name: module for name, module in modules.items() if module},
        dkms=parse_dkms(run(["dkms", "status"]).out),
        holds=_version_locks(run) if manager_is_dnf else tuple(run(["apt-mark", "showhold"]).out.split()),
    )


def offered(package: str, manager: str, run: Run = run_command) -> list[str]:
    """Return the versions of a package that the host's repositories have."""
    if manager == DNF:
        return run(["dnf", "-q", "repoquery", "--qf", "%{version}\n", package]).out.split()
    lines = (line.split("|") for line in run(["apt-cache", "madison", package]).out.splitlines())
    return [parts[1].strip() for parts in lines if len(parts) > 1]


def has_management_port(sysfs_root: str) -> bool:
    """Return whether a port that manages NVLink 5 switches is there, with or without its driver."""
    cards = read_functions(sysfs_root, (MELLANOX,))
    paths = [os.path.join(sysfs_root, "bus", "pci", "devices", card.address, "vpd") for card in cards]
    paths += glob.glob(os.path.join(sysfs_root, "class", "infiniband", "*", "device", "vpd"))
    return any(MANAGEMENT_PORT in _bytes(path) for path in paths)


def _module_info(kernel: str, run: Run) -> str:
    for name in MODULE_NAMES:
        answer = run(["modinfo", "-k", kernel, name])
        if answer.rc == 0:
            return answer.out
    return ""


def _kernel_log(run: Run) -> str:
    for argv in (["journalctl", "--dmesg", "--boot", "--quiet", "--no-pager"], ["dmesg"]):
        answer = run(argv)
        if answer.rc == 0 and answer.out.strip():
            return "\n".join(line for line in answer.out.splitlines() if "NVRM" in line)
    return ""


def _build_log(root: str) -> str:
    """Return the end of the newest log of a build that DKMS has not finished, empty where there is none."""
    logs = glob.glob(os.path.join(root, "var", "lib", "dkms", "nvidia*", "*", "build", "make.log"))
    newest = max(logs, key=os.path.getmtime, default="")
    return "\n".join(_text(newest).splitlines()[-LOG_LINES:]) if newest else ""


def _next_kernel(root: str, run: Run) -> str:
    """Return the release of the kernel that boots next: what grubby says, else the newest in /boot.

    UNCONFIRMED: a kernel that was chosen by hand in GRUB's menu on Debian or Ubuntu is not seen.
    """
    default = run(["grubby", "--default-kernel"])
    prefix = "vmlinuz-"
    paths = [default.out.strip()] if default.rc == 0 else glob.glob(os.path.join(root, "boot", f"{prefix}*"))
    names = [os.path.basename(path)[len(prefix) :] for path in paths if os.path.basename(path).startswith(prefix)]
    whole = [name for name in names if "rescue" not in name and not name.endswith(".old")]
    return max(whole, key=version_key, default="")


def _module(sysfs_root: str, name: str) -> Module | None:
    directory = os.path.join(sysfs_root, "module", name)
    if not os.path.isdir(directory):
        return None
    version, srcversion = (_text(os.path.join(directory, part)).strip() for part in ("version", "srcversion"))
    return Module(version or None, srcversion or None)


def _secure_boot(sysfs_root: str) -> bool | None:
    """Return whether Secure Boot is on; never without UEFI, None where the variable cannot be read."""
    firmware = os.path.join(sysfs_root, "firmware", "efi")
    if not os.path.isdir(firmware):
        return False
    value = _bytes(os.path.join(firmware, "efivars", SECURE_BOOT))
    return value[-1] == 1 if value else None


def _is_enrolled(root: str, run: Run) -> bool | None:
    """Return whether the firmware trusts a key that DKMS signs with, None where mokutil is not installed."""
    found = False
    for path in (os.path.join(root, key) for key in SIGNING_KEYS):
        if not os.path.exists(path):
            continue
        answer = run(["mokutil", "--test-key", path])
        if answer.rc == NOT_FOUND:
            return None
        found = found or "is already enrolled" in answer.out
    return found


def _deb_packages(run: Run) -> dict[str, str]:
    answer = run(["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}\t${Package}\t${Version}\n"])
    rows = [line.split("\t") for line in answer.out.splitlines()]
    # The second letter is the state: what is not installed whole is not installed.
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0][1:2] == "i" and _RELEVANT.match(row[1])}


def _rpm_packages(run: Run) -> dict[str, str]:
    """Return installed packages; of kernels there are several, so their names carry the version, as in uname."""
    answer = run(["rpm", "-qa", "--queryformat", "%{NAME}\t%{EVR}\t%{VERSION}-%{RELEASE}.%{ARCH}\n"])
    found = {}
    for name, evr, full in (line.split("\t") for line in answer.out.splitlines() if line.count("\t") == 2):
        key = f"{name}-{full}" if name.startswith("kernel") else name
        if _RELEVANT.match(key):
            found[key] = evr
    return found


def _version_locks(run: Run) -> tuple[str, ...]:
    """Return the names that dnf's version locks are for: of ``nvidia-open-3:580.95.05-1.el9.*`` nvidia-open."""
    lines = run(["dnf", "-q", "versionlock", "list"]).out.splitlines()
    found = (re.match(r"(?:Package name: )?([\w.+-]+?)(?:-\d+:\S+|-\d\S*-\S+)?$", line.strip()) for line in lines)
    return tuple(match.group(1) for match in found if match)


def _os_release(path: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in _text(path).splitlines() if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, _equals, value in pairs}


def _text(path: str) -> str:
    return _bytes(path).decode("utf-8", "replace")


def _bytes(path: str) -> bytes:
    """Return what is in a file, nothing where it cannot be read: no driver is an answer too."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
