# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA: its repository of CUDA with the driver's packages, and what its driver and nvidia-smi show of a machine."""

from __future__ import annotations

from typing import Mapping, Sequence

from tests.standins import common
from tests.standins.packages import Package, dkms_package, stub, unit
from tests.standins.place import Answer, Place
from tests.standins.repositories import Repository
from tests.standins.vendor import Options, Vendor
from tests.standins.vendors import nvidia_smi

# The file beside the repository that has its key.
KEYS = {"debian12": "3bf863cc.pub", "debian13": "8793F200.pub", "rhel9": "D42D0685.pub", "rhel10": "CDF6BA43.pub"}
MODULES = {"nvidia": "", "nvidia_uvm": "nvidia", "nvidia_modeset": "nvidia", "nvidia_drm": "nvidia_modeset"}
LICENCES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
KINDS = {"Dual MIT/GPL": "Open Kernel Module for x86_64", "NVIDIA": "x86_64 Kernel Module"}
LEGACY = ("10de:15", "10de:1b", "10de:1d")
SWITCHES = ("10de:1af1", "10de:22a3")
NODES = {
    "nvidia": ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-nvswitch*"),
    "nvidia_uvm": ("/dev/nvidia-uvm*",),
}


class Nvidia(Vendor):
    """NVIDIA.

    Faults of nvidia-smi, as files in /var/lib/standin: ``mismatch``, ``no-driver``, ``lost-chip`` (with the address of
    the chip), ``mig`` (the MiB of each MIG instance of every chip), beside those of every tool.
    """

    name = "nvidia"
    autoload = ("nvidia", "nvidia_uvm")
    tools = ("nvidia-smi", "nvidia-fabricmanager", "nvidia-persistenced")

    def repositories(self, options: Options) -> Sequence[Repository]:
        path = f"{options.distribution}/x86_64"
        key = f"{path}/{KEYS.get(options.distribution, '3bf863cc.pub')}"
        packages = common.kernels(options) if options.is_rpm else common.packages(options)
        for version in options.versions:
            packages += _rpm(version) if options.is_rpm else _deb(options, version)
        return [Repository(path, tuple(packages), key, "NVIDIA", is_rpm=options.is_rpm)]

    def answer(self, tool: str, argv: Sequence[str], place: Place) -> Answer:
        if tool == "nvidia-fabricmanager":
            return _fabric_manager(argv[0], place)
        if tool == "nvidia-persistenced":
            mode = "off" if "--no-persistence-mode" in argv else "on"
            return Answer(daemon=("/dev/nvidiactl",), note=mode)
        return nvidia_smi.answer(argv, place)

    def shows(self, place: Place, module: str, info: Mapping[str, str]) -> dict[str, str]:
        machine = place.machine()
        if module != "nvidia":
            return {}
        kind = KINDS[info["license"]]
        files = {"proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX {kind}  {info['version']}  Release Build"}
        chips = [chip for chip in nvidia_smi.chips_of(place) if "open" not in kind.lower() or not is_legacy(chip.id)]
        for number, function in enumerate(chips):
            name = nvidia_smi.chip(machine, function.id)["name"]
            place_of = f"Bus Location: \t {function.address}\nDevice Minor: \t {number}\n"
            text = f"Model: \t\t {name}\n{place_of}GPU Excluded:\t No"
            files[f"proc/driver/nvidia/gpus/{function.address}/information"] = text
        for address in machine.addresses(*SWITCHES):
            files[f"proc/driver/nvidia-nvswitch/devices/{address}"] = "Link Type: NVLink"
        return files

    def nodes(self, module: str) -> tuple[str, ...]:
        return NODES.get(module, ())


VENDOR = Nvidia()


def is_legacy(pci_id: str) -> bool:
    """Return whether a chip is of a generation that the open modules do not take: Pascal, Volta."""
    return pci_id.startswith(LEGACY)


def _deb(options: Options, version: str) -> list[Package]:
    """Return the packages of one driver as Debian's part of the repository calls them, and Ubuntu's its own."""
    branch = version.split(".")[0]
    dkms = {"open": "nvidia-kernel-open-dkms", "proprietary": "nvidia-kernel-dkms"}
    if not options.distribution.startswith("debian"):
        plain = f"nvidia-dkms-{branch}" if int(branch) < 590 else "nvidia-dkms"
        dkms = {"open": f"{plain}-open", "proprietary": plain}
    full = f"{version}-1"
    whole = {"nvidia-open": "open", "cuda-drivers": "proprietary"}
    found = [
        dkms_package(name, full, "nvidia", version, MODULES, LICENSE=LICENCES[kind]) for kind, name in dkms.items()
    ]
    found = [_other(package, [name for name in dkms.values() if name != package.name]) for package in found]
    found += [
        Package(name, full, f"{dkms[kind]} (= {full}), nvidia-driver-cuda (= {full})") for name, kind in whole.items()
    ]
    return [
        *found,
        _pinning(branch),
        _pinning(version),
        Package("nvidia-driver-cuda", full, files=_tools(version)),
        Package("nvidia-persistenced", full, files=_persistenced()),
        *_fabric(version, full),
    ]


def _pinning(pin: str) -> Package:
    """Return the package that lets apt choose versions of a branch, or one version, and no others."""
    form = "Package: *nvidia* cuda-drivers libnvsdm\nPin: version {pin}{end}\nPin-Priority: 1000\n\n"
    stanzas = "".join(form.format(pin=pin, end=end) for end in (".*", "-*"))
    path = f"etc/apt/preferences.d/nvidia-driver-pinning-{pin}.pref"
    others = {"Conflicts": "nvidia-driver-pinning", "Provides": "nvidia-driver-pinning"}
    return Package(f"nvidia-driver-pinning-{pin}", "1", files={path: stanzas}, relations=others)


def _other(package: Package, others: Sequence[str]) -> Package:
    words = ", ".join(others)
    return Package(**{**vars(package), "relations": {"Conflicts": words, "Replaces": words}})


def _rpm(version: str) -> list[Package]:
    """Return the packages of one driver as RHEL's part of the repository calls them."""
    full = f"3:{version}-1.el9"
    names = ("nvidia-driver-libs", "libnvidia-ml", "nvidia-open", "cuda-drivers")
    found = [
        dkms_package(f"kmod-nvidia-{kind}-dkms", full, "nvidia", version, MODULES, LICENSE=LICENCES[licence])
        for kind, licence in (("open", "open"), ("latest", "proprietary"))
    ]
    found += [Package("nvidia-driver-cuda", full, files=_tools(version)), *(Package(name, full) for name in names)]
    return [*found, Package("nvidia-persistenced", full, files=_persistenced()), *_fabric(version, full)]


def _tools(version: str) -> dict[str, str]:
    return {"usr/bin/nvidia-smi": stub("nvidia-smi"), nvidia_smi.LIBRARY: f"{version}\n"}


def _persistenced() -> dict[str, str]:
    return {
        "usr/bin/nvidia-persistenced": stub("nvidia-persistenced"),
        "lib/systemd/system/nvidia-persistenced.service": unit("/usr/bin/nvidia-persistenced"),
    }


def _fabric(version: str, full: str) -> list[Package]:
    start = "/usr/bin/nvidia-fabricmanager-start.sh"
    manager = {
        start.lstrip("/"): stub(f"nvidia-fabricmanager {version}"),
        "lib/systemd/system/nvidia-fabricmanager.service": unit(start),
    }
    return [
        Package("nvidia-fabricmanager", full, files=manager),
        Package("libnvidia-nscq", full),
        Package("libnvsdm", full),
        Package("nvlsm", "2025.10.11-1"),
        Package("infiniband-diags", "99"),
    ]


def _fabric_manager(version: str, place: Place) -> Answer:
    """Stay as the fabric manager does, or end as it does where the driver is another one."""
    driver = place.read("sys/module/nvidia/version")
    if driver != version:
        words = (
            f"fabric manager NVIDIA GPU driver interface version {version} don't match with driver version {driver}."
        )
        return Answer(1, err=f"{words} Please update with matching NVIDIA driver package.\n")
    return Answer(daemon=("/dev/nvidia-nvswitchctl",), note=version)
