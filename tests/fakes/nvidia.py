# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with NVIDIA chips to show to modules: a tree of files, and tools (sh scripts) that replay recorded answers."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.fakes.sysfs import lines, write_sysfs

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "h200"
H200_QUERY = (RECORDED / "nvidia-smi-query.csv").read_text().splitlines()[1]
H200_REPORT = (RECORDED / "nvidia-smi-q.xml").read_text()
VERSION = "580.159.04"
KERNEL = "6.8.0-50-generic"
UBUNTU = 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n'
ROCKY = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n'
NVRM = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build\nGCC version:  gcc 13.3.0\n"
MODINFO = (
    "filename:       /lib/modules/{kernel}/updates/dkms/nvidia.ko.zst\nversion:        {version}\n"
    "srcversion:     AB12CD\nvermagic:       {kernel} SMP preempt mod_unload modversions\n"
)
# dpkg-query's rows: what is removed but configured, and what has nothing to do with chips, is left out.
DPKG = "".join(
    f"{state}\t{name}\t{version}\n"
    for state, name, version in (
        ("ii ", "nvidia-open", f"{VERSION}-0ubuntu1"),
        ("hi ", "nvidia-dkms-580-open", f"{VERSION}-0ubuntu1"),
        ("ii ", f"linux-image-{KERNEL}", "6.8.0-50.51"),
        ("ii ", f"linux-headers-{KERNEL}", "6.8.0-50.51"),
        ("ii ", "dkms", "3.0.11-1"),
        ("rc ", "nvidia-dkms-575", "575.57.08-0ubuntu1"),
        ("ii ", "bash", "5.2.21-2"),
    )
)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def tool(directory, name, *answers):
    """Write a tool: of each answer a shell pattern of the arguments, the exit code, stdout and stderr.

    Arguments that no pattern matches end with 64, so that a question which nobody expected shows.
    """
    cases = []
    for number, (pattern, code, out, err) in enumerate(answers):
        base = directory / "answers" / f"{name}.{number}"
        write(Path(f"{base}.out"), out)
        write(Path(f"{base}.err"), err)
        shown = shlex.quote(str(base))
        cases.append(f"{pattern}) /bin/cat {shown}.out; /bin/cat {shown}.err >&2; exit {code};;")
    script = write(directory / name, '#!/bin/sh\ncase "$*" in\n' + "\n".join(cases) + "\n*) exit 64;;\nesac\n")
    script.chmod(0o755)


def nvidia_smi(directory, query=H200_QUERY, report=H200_REPORT, code=0, err=""):
    """Write an nvidia-smi that lists and reports this, and fails where it should."""
    tool(directory, "nvidia-smi", ("--query-gpu=*", code, query, err), ("'-q -x'", code, report, err))


def h200_host(tmp_path):
    """Write an Ubuntu host with the one H200 of the recordings and all that belongs to it; return its directory."""
    write_sysfs(tmp_path / "sys", (RECORDED / "pci-sysfs.txt").read_text().splitlines())
    write(tmp_path / "sys/module/nvidia/version", f"{VERSION}\n")
    write(tmp_path / "sys/module/nvidia/srcversion", "AB12CD\n")
    write(tmp_path / "proc/sys/kernel/osrelease", f"{KERNEL}\n")
    write(tmp_path / "proc/driver/nvidia/version", NVRM)
    write(tmp_path / "proc/driver/nvidia/gpus/0000:00:06.0/information", "Model: \t\t NVIDIA H200\n")
    write(tmp_path / "etc/os-release", UBUNTU)
    write(tmp_path / f"boot/vmlinuz-{KERNEL}", "")
    bin_directory = tmp_path / "bin"
    nvidia_smi(bin_directory)
    tool(bin_directory, "dpkg-query", ("--show*", 0, DPKG, ""))
    tool(bin_directory, "apt-mark", ("showhold", 0, "nvidia-dkms-580-open\nnvidia-open\n", ""))
    tool(bin_directory, "dkms", ("status", 0, f"nvidia/{VERSION}, {KERNEL}, x86_64: installed\n", ""))
    built = MODINFO.format(kernel=KERNEL, version=VERSION)
    tool(bin_directory, "modinfo", (f"'-k {KERNEL} nvidia'", 0, built, ""), ("*", 1, "", "modinfo: ERROR\n"))
    tool(
        bin_directory,
        "systemctl",
        ("'is-active nvidia-persistenced.service'", 0, "active\n", ""),
        ("is-active*", 3, "inactive\n", ""),
        ("list-units*", 0, "nvidia-persistenced.service loaded active running NVIDIA Persistence Daemon\n", ""),
    )
    tool(bin_directory, "journalctl", ("--dmesg*", 0, "kernel: Linux version 6.8.0\n", ""))
    tool(bin_directory, "dmesg", ("", 1, "", "dmesg: Operation not permitted\n"))
    tool(bin_directory, "grubby", ("*", 127, "", ""))
    return tmp_path


def add_process(tmp_path, pid, command, unit, device="/dev/nvidia0"):
    """Show a process that has a device open; ``unit`` is what systemd runs it in."""
    directory = tmp_path / "proc" / str(pid)
    write(directory / "comm", f"{command}\n")
    write(directory / "cgroup", f"0::/system.slice/{unit}\n")
    (directory / "fd").mkdir()
    (directory / "fd" / "3").symlink_to(device)


def add_switches(tmp_path):
    """Put the NVSwitches of an HGX H200 beside the chips of a host."""
    write_sysfs_functions = lines("10de:22a3", 4, first=0x80, pci_class="0680")
    other = tmp_path / "switches"
    write_sysfs(other, write_sysfs_functions)
    for function in (other / "bus/pci/devices").iterdir():
        function.rename(tmp_path / "sys/bus/pci/devices" / function.name)
