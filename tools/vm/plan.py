# SPDX-License-Identifier: GPL-3.0-or-later
"""What bin/vm decides: the contents of the guest's root file system, its disk's boot, the arguments of qemu."""

from __future__ import annotations

import json
import re
import shlex
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.lab.plan import LabError, digest

RELEASE = "bookworm"
GUEST = "guest"
# The sources on a controller that is not a Debian.
FALLBACK = ("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# The packages that Debian's installer puts on a server, a boot loader for BIOS, and nothing that a role installs.
PACKAGES = (
    "ca-certificates",
    "dbus",
    "debian-archive-keyring",
    "grub-pc-bin",
    "initramfs-tools",
    "iproute2",
    "kmod",
    "libpam-systemd",
    "linux-image-amd64",
    "openssh-server",
    "pciutils",
    "procps",
    "python3",
    "python3-apt",
    "sudo",
    "systemd",
    "systemd-sysv",
    "udev",
    "zstd",
)
GRUB_MODULES = ("biosdisk", "part_msdos", "ext2", "linux", "normal", "loadenv", "test", "serial")
GRUB_IMAGES = "usr/lib/grub/i386-pc"
CORE = "boot/grub/core.img"
SECTOR = 512
# The first partition begins here; the sectors before it belong to the boot loader.
PARTITION_START = 1024 * 1024
DISK_SIZE = 8 * 1024**3
MEMORY_MIB = 2048
# GRUB skips the entry of the newest kernel once, where `grub-reboot` names another one.
GRUB_CONFIG = """\
set timeout=0
set default=newest
load_env
if [ "${next_entry}" ]; then
  set default="${next_entry}"
  set next_entry=
  save_env next_entry
fi
"""
GRUB_ENTRY = """\
menuentry "%(id)s" --id "%(id)s" {
  linux %(kernel)s root=/dev/vda1 ro console=ttyS0
  initrd %(initrd)s
}
"""
GRUB_ENVIRONMENT = "# GRUB Environment Block\n"
GRUB_ENVIRONMENT_SIZE = 1024
# Outside of the root file system, where podman would leave an empty file or directory as the mount point.
MOUNT = "/run/guest"


@dataclass(frozen=True)
class GuestRecipe:
    """Everything that decides the guest's root file system before a role runs.

    ``sources`` are apt's lines. The guest is installed from those of the release alone and configured with all of them,
    like a server that was installed from the medium of a point release: so updates have a newer kernel for it.
    """

    sources: tuple[str, ...]
    apt_options: tuple[str, ...]
    certificates: tuple[str, ...]
    script: str

    @property
    def medium(self) -> list[str]:
        """The sources that the guest is installed from."""
        return [line for line in self.sources if re.search(rf"\s{RELEASE}\s", line)]

    @property
    def command(self) -> list[str]:
        """The options of mmdebstrap."""
        apt = [f"--aptopt={option}" for option in self.apt_options]
        return ["--variant=minbase", f"--include={','.join(PACKAGES)}", "--dpkgopt=force-unsafe-io", *apt]

    @property
    def key(self) -> str:
        return digest(*self.command, *self.sources, *self.certificates, self.script)[:12]


def sources_of(found: Sequence[str]) -> tuple[str, ...]:
    """Return apt's lines for the guest; ``found`` are those of the controller, empty where it has none for Debian."""
    if found:
        return tuple(found)
    main, security = FALLBACK
    pairs = ((main, RELEASE), (main, f"{RELEASE}-updates"), (security, f"{RELEASE}-security"))
    return tuple(f"deb [signed-by={KEYRING}] {url} {suite} main" for url, suite in pairs)


def archive_url(sources: Sequence[str]) -> str:
    """Return the URL of the release's archive, for roles that add components of it."""
    for line in sources:
        match = re.search(rf"(\S+) {RELEASE} ", line)
        if match:
            return match[1]
    raise LabError(f"no apt source of this machine has the suite {RELEASE}; found: {'; '.join(sources)}")


def guest_files(public_key: str, host_key: str, host_public_key: str, sources: Sequence[str]) -> dict[str, Any]:
    """Return the files that turn a root file system into the guest: path -> text and mode."""
    return {
        "etc/hostname": (f"{GUEST}\n", 0o644),
        "etc/fstab": ("/dev/vda1 / ext4 errors=remount-ro 0 1\n", 0o644),
        "etc/apt/sources.list": ("".join(f"{line}\n" for line in sources), 0o644),
        "etc/systemd/network/lan.network": ("[Match]\nName=en*\n[Network]\nDHCP=yes\n", 0o644),
        # udev does this where the chip is on PCI. This machine has none, and systemd obeys the same blacklists.
        "etc/modules-load.d/nouveau.conf": ("nouveau\n", 0o644),
        "etc/ssh/sshd_config.d/lab.conf": ("PermitRootLogin prohibit-password\nPasswordAuthentication no\n", 0o644),
        "etc/ssh/ssh_host_ed25519_key": (host_key, 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": (host_public_key, 0o644),
        "root/.ssh/authorized_keys": (public_key, 0o600),
    }


def grub_config(kernels: Sequence[str]) -> str:
    """Return GRUB's menu: the newest kernel by Debian's own links, and each kernel by its release."""
    newest = {"id": "newest", "kernel": "/vmlinuz", "initrd": "/initrd.img"}
    each = [
        {"id": grub_id(kernel), "kernel": f"/boot/vmlinuz-{kernel}", "initrd": f"/boot/initrd.img-{kernel}"}
        for kernel in kernels
    ]
    return GRUB_CONFIG + "".join(GRUB_ENTRY % entry for entry in (newest, *each))


def grub_id(kernel: str) -> str:
    """Return the id of a kernel's entry, which must not begin with a digit, or GRUB would take it for a number."""
    return f"linux-{kernel}"


def grub_environment(kernel: str) -> str:
    """Return GRUB's environment block that boots a kernel once, empty for the default."""
    text = GRUB_ENVIRONMENT + (f"next_entry={grub_id(kernel)}\n" if kernel else "")
    return text.ljust(GRUB_ENVIRONMENT_SIZE, "#")


def boot_sectors(boot: bytes, core: bytes, size: int) -> bytes:
    """Return the first sectors of a disk of ``size`` bytes: GRUB's boot sector, a table of one partition, GRUB's core.

    ``boot`` is boot.img, which loads the sector after itself; ``core`` is an image whose first sector loads the rest.
    """
    if len(core) > PARTITION_START - SECTOR:
        raise LabError(f"GRUB's core has {len(core)} bytes, more than there is before the first partition.")
    start = PARTITION_START // SECTOR
    beyond = b"\xfe\xff\xff"  # No such cylinder: the sector numbers that follow count.
    entry = struct.pack("<B3sB3sII", 0x80, beyond, 0x83, beyond, start, size // SECTOR - start)
    return boot[:440] + bytes(6) + entry + bytes(48) + b"\x55\xaa" + core


def qemu_command(disk: Path, port: int, serial: Path, pid: Path) -> list[str]:
    """Return the command that starts the machine: its disk stays unchanged, its SSH port is one of the controller's."""
    return [
        *("qemu-system-x86_64", "-machine", "q35,accel=tcg,usb=off", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB)),
        *("-no-user-config", "-nodefaults", "-display", "none", "-monitor", "none"),
        *("-drive", f"file={disk},if=virtio,format=raw,snapshot=on"),
        *("-nic", f"user,model=virtio-net-pci,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
        *("-serial", f"file:{serial}", "-daemonize", "-pidfile", str(pid)),
    ]


def container_command(name: str, root: Path, port: int, tools: Path) -> list[str]:
    """Return podman's arguments that run only an SSH daemon in the guest's root file system.

    ``tools`` is a directory with a uname that prints the guest's kernel, because DKMS builds for the running kernel.
    """
    path = f"PATH={MOUNT}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    options = f"-o ListenAddress=127.0.0.1 -o SetEnv={path}"
    serve = f"mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -p {port} {options}"
    return [
        *("run", "--detach", "--rootfs", "--name", name, "--network", "host", "--hostname", GUEST),
        *("--tmpfs", "/run", "--tmpfs", "/tmp:exec", "--volume", f"{tools}:{MOUNT}:ro"),  # noqa: S108
        *(str(root), "/bin/sh", "-c", serve),
    ]


def uname_script(kernel: str) -> str:
    """Return a script that answers like uname, with another kernel's release."""
    return f'#!/bin/sh\n[ "$*" = -r ] && exec echo {shlex.quote(kernel)}\nexec /bin/uname "$@"\n'


def ssh_options(keys: Path) -> list[str]:
    """Return the options of every connection to the guest, wherever its port is."""
    known = f"UserKnownHostsFile={keys / 'known_hosts'}"
    return ["IdentitiesOnly=yes", known, "StrictHostKeyChecking=yes", f"HostKeyAlias={GUEST}"]


def ssh_command(keys: Path, port: int, *more: str) -> list[str]:
    """Return the ssh command that reaches the guest, with more options of ssh."""
    options = [word for option in (*ssh_options(keys), *more) for word in ("-o", option)]
    return ["ssh", "-F", "none", "-i", str(keys / "id_ed25519"), "-p", str(port), *options, "root@127.0.0.1"]


def plain_inventory(keys: Path, port: int, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return an inventory of the guest alone, every setting in plain text."""
    options = " ".join(f"-o {shlex.quote(option)}" for option in ssh_options(keys))
    settings = {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(keys / "id_ed25519"),
        "ansible_ssh_common_args": f"-F none {options}",
    }
    return {"all": {"hosts": {GUEST: {**settings, **variables}}}}


def version_key(release: str) -> list[tuple[int, str]]:
    """Return the sort key of a kernel release: 6.1.0-9-amd64 comes before 6.1.0-10-amd64."""
    return [(int(number), word) if number else (-1, word) for number, word in re.findall(r"(\d+)|(\D+)", release)]


def as_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"
