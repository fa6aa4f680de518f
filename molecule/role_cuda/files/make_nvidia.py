# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a mirror of NVIDIA's repository on a lab host: signed, with packages of its names that stand in for a driver.

    make_nvidia.py DIRECTORY DISTRIBUTION VERSION KERNEL KEY

DIRECTORY/DISTRIBUTION/x86_64 is then what apt expects there, DIRECTORY/whole says that it is complete. The packages
bring a DKMS, a modprobe and an nvidia-smi that keep what they know in /var/lib/standin and /standin/sys, and fail where
/var/lib/standin tells them to.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOP, DISTRIBUTION, VERSION, KERNEL, KEY = Path(sys.argv[1]), *sys.argv[2:6]
SITE = TOP / DISTRIBUTION / "x86_64"

DKMS = f"""case "$1" in
status) cat /var/lib/standin/dkms 2>/dev/null ;;
autoinstall) echo "nvidia/{VERSION}, $3, x86_64: installed" >>/var/lib/standin/dkms ;;
esac
exit 0
"""
MODINFO = f"""grep -q "$2" /var/lib/standin/dkms || exit 1
echo "filename: /lib/modules/$2/nvidia.ko"
echo "version: {VERSION}"
echo "srcversion: AB"
echo "vermagic: $2 SMP"
"""
MODPROBE = f"""mkdir -p /standin/sys/module/$1
echo {VERSION} >/standin/sys/module/$1/version
echo AB >/standin/sys/module/$1/srcversion
"""
NVIDIA_SMI = f"""if [ -e /var/lib/standin/mismatch ]; then
  echo "Failed to initialize NVML: Driver/library version mismatch"
  echo "NVML library version: {VERSION.partition(".")[0]}.999"
  exit 18
fi
case "$*" in
*query*) echo "0, NVIDIA L40S, GPU-0, 8.9, 46068 MiB, {VERSION}, [N/A], 00000000:10:00.0, 0x26B910DE" ;;
*) echo "<nvidia_smi_log/>" ;;
esac
"""
BUILD = f"""mkdir -p /var/lib/standin
echo "nvidia/{VERSION}, {KERNEL}, x86_64: installed" >/var/lib/standin/dkms
"""
PERSISTENCED = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"

# Name -> version, what it depends on, its postinst, and its files; what is executable has no suffix.
PACKAGES = {
    f"linux-headers-{KERNEL}": ("1", "", "", {}),
    "dkms": ("99", "", "", {"usr/sbin/dkms": DKMS}),
    "nvidia-driver-pinning-580": ("1", "", "", {}),
    "nvidia-kernel-open-dkms": (
        f"{VERSION}-1",
        "dkms",
        BUILD,
        {
            "usr/local/sbin/modinfo": MODINFO,
            "usr/local/sbin/modprobe": MODPROBE,
            "usr/local/sbin/update-initramfs": "exit 0\n",
        },
    ),
    "nvidia-persistenced": (
        f"{VERSION}-1",
        "",
        "",
        {
            "lib/systemd/system/nvidia-persistenced.service": PERSISTENCED,
            "usr/bin/nvidia-persistenced": "exec sleep infinity\n",
        },
    ),
    "nvidia-smi-tools": (f"{VERSION}-1", "", "", {"usr/bin/nvidia-smi": NVIDIA_SMI}),
    "nvidia-open": (
        f"{VERSION}-1",
        f"nvidia-kernel-open-dkms (= {VERSION}-1), nvidia-smi-tools (= {VERSION}-1)",
        "",
        {},
    ),
}


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def package(name: str, work: Path) -> Path:
    """Build one package and return its file."""
    version, depends, postinst, files = PACKAGES[name]
    tree = work / name
    control = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "the lab <lab@example>"}
    control.update({"Depends": depends} if depends else {})
    (tree / "DEBIAN").mkdir(parents=True)
    tree.chmod(0o755)
    lines = [f"{key}: {value}\n" for key, value in {**control, "Description": "stand-in"}.items()]
    (tree / "DEBIAN/control").write_text("".join(lines))
    if postinst:
        script(tree / "DEBIAN/postinst", postinst)
    for place, text in files.items():
        script(tree / place, text)
        if place.endswith(".service"):
            (tree / place).write_text(text)
            (tree / place).chmod(0o644)
    file = SITE / f"{name}_{version}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(file))
    return file


def entry(file: Path) -> str:
    """Return what the index says of a package."""
    data = file.read_bytes()
    more = f"Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    return run("dpkg-deb", "--field", str(file)).rstrip("\n") + "\n" + more


def main() -> None:
    SITE.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as directory:
        index = "\n".join(entry(package(name, Path(directory))) for name in PACKAGES)
    (SITE / "Packages").write_text(index)
    digest = hashlib.sha256(index.encode()).hexdigest()
    (SITE / "Release").write_text(
        f"Origin: NVIDIA\nLabel: NVIDIA CUDA\nDate: Thu, 01 Oct 2026 00:00:00 UTC\n"
        f"SHA256:\n {digest} {len(index.encode())} Packages\n"
    )
    home = TOP / "gnupg"
    home.mkdir(mode=0o700)
    os.environ["GNUPGHOME"] = str(home)
    run("gpg", "--batch", "--passphrase", "", "--quick-gen-key", "the lab", "rsa2048", "sign", "never")
    run("gpg", "--batch", "--clearsign", "-o", str(SITE / "InRelease"), str(SITE / "Release"))
    (SITE / KEY).write_text(run("gpg", "--armor", "--export"))
    (TOP / "whole").touch()


main()
