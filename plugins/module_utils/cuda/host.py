# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about NVIDIA's driver on a host, from files and the output of tools. Changes nothing."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import asdict, replace
from typing import Any, Mapping

from ..accelerator.drivers_host import read_drivers
from ..accelerator.pci_host import read_functions
from ..common.files_host import bytes_of, text_of
from ..vendor_stack.faults import FaultBook
from ..vendor_stack.host import KMSG, Run, build_log, kernel_log, module_info, read_host, run_command
from ..vendor_stack.model import Host, Module
from ..vendor_stack.proof import loaded_version
from ..vendor_stack.state_module import common_state
from .answers import QUERY, parse_query
from .chips import NVLINK5, NVSWITCH
from .proof import FABRIC_MANAGER, KIND, PERSISTENCED, CudaRecording, check_driver

NVIDIA = "10de"
NO_FABRIC = "none"
NODES = re.compile(r"/dev/nvidia")
LOG_WORDS = ("NVRM", "SXid")
CHIP_CLASSES = ("0300", "0302")
SWITCHES = ("1af1", "22a3")
# NVLink 5 switches are managed through ports of this vendor's cards, marked in their vital product data.
MELLANOX = "15b3"
MANAGEMENT_PORT = b"SW_MNG"
MODULES = ("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nouveau", "mlx5_core", "ib_umad")
# Debian's own packages have the flavour in the name of the module.
MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")

_RELEVANT = re.compile(
    r"(nvidia|libnvidia|libnvsdm|cuda-|libcuda1$|firmware-nvidia|kmod-nvidia|xserver-xorg-video-nvidia|nvlsm"
    r"|infiniband-diags|linux-(modules|objects|signatures)-nvidia-)"
)


def inspect_host(
    root: str = "/", sysfs_root: str = "/sys", proc_root: str = "/proc", run: Run = run_command
) -> CudaRecording:
    """Return the state of a host. ``root`` contains /etc, /boot and /var.

    Raises PciError without a sysfs.
    """
    host = _read_host(root, sysfs_root, proc_root, run)
    functions = [function for function in read_functions(sysfs_root, (NVIDIA,)) if not function.virtual]
    switches = [function for function in functions if function.device_id in SWITCHES]
    fabric = NVSWITCH if switches else NVLINK5 if has_management_port(sysfs_root) else ""
    information = glob.glob(os.path.join(proc_root, "driver", "nvidia", "gpus", "*", "information"))
    return CudaRecording(
        host=host,
        chips=tuple(function.address for function in functions if function.class_id in CHIP_CLASSES),
        fabric=fabric,
        query=run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]),
        report=run(["nvidia-smi", "-q", "-x"]),
        information={os.path.basename(os.path.dirname(path)).lower(): text_of(path) for path in sorted(information)},
        disk={kernel: module_info(MODULE_NAMES, kernel, run) for kernel in host.kernels},
        services={
            name: run(["systemctl", "is-active", f"{name}.service"]).out.strip()
            for name in (PERSISTENCED, FABRIC_MANAGER)
        },
        kernel_log=kernel_log(run, LOG_WORDS, os.path.join(root, KMSG.lstrip("/"))),
        nvrm=text_of(os.path.join(proc_root, "driver", "nvidia", "version")),
        build_log=build_log(root, KIND.dkms),
    )


def read_state(options: Mapping[str, Any], book: FaultBook) -> dict[str, Any]:
    """Return the results of the module driver_state for this stack. Raises PciError without a sysfs."""
    recording = inspect_host(options["root"], options["sysfs_root"], options["proc_root"])
    if options["fabric"]:
        recording = replace(recording, fabric="" if options["fabric"] == NO_FABRIC else options["fabric"])
    recording = replace(recording, memory=options["memory"] or {}, partition=options["partition"] or "")
    findings = check_driver(recording, options["minimum_driver"], options["hold"], book)
    version = loaded_version(KIND, recording.host)
    return {
        "ansible_facts": {"accelerator_driver_version": version} if version else {},
        "chips": recording.chips,
        "gpus": [asdict(gpu) for gpu in parse_query(recording.query.out)],
        "fabric": recording.fabric,
        "driver": {"version": version, "flavour": recording.flavour},
        "services": recording.services,
        **common_state(options, recording.host, findings, NODES),
    }


def _read_host(root: str, sysfs_root: str, proc_root: str, run: Run) -> Host:
    host = read_host(root, sysfs_root, proc_root, run, MODULES, _RELEVANT)
    nvidia = read_drivers(sysfs_root, proc_root).get("nvidia", {})
    if not nvidia:
        return host
    # A container may see the driver only in procfs.
    srcversion = host.modules["nvidia"].srcversion if "nvidia" in host.modules else None
    return replace(host, modules={**host.modules, "nvidia": Module(nvidia["version"], srcversion)})


def has_management_port(sysfs_root: str) -> bool:
    """Return whether the host has a management port for NVLink 5 switches, with or without its driver."""
    cards = read_functions(sysfs_root, (MELLANOX,))
    paths = [os.path.join(sysfs_root, "bus", "pci", "devices", card.address, "vpd") for card in cards]
    paths += glob.glob(os.path.join(sysfs_root, "class", "infiniband", "*", "device", "vpd"))
    return any(MANAGEMENT_PORT in bytes_of(path) for path in paths)
