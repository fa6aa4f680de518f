#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a Debian guest with its own kernel: build packages in its root file system, then boot it as a machine.

docs/reference/virtual-machine.md describes its purpose. It uses LAB_HOME and LAB_CACHE like the lab.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from tools.lab.__main__ import INVENTORY  # noqa: E402
from tools.lab.hosts import ensure_key  # noqa: E402
from tools.lab.images import read_recipe, show_progress  # noqa: E402
from tools.lab.plan import Lab, LabError, parse_lab  # noqa: E402
from tools.lab.podman import configure_podman, locked, podman, run, say, write  # noqa: E402
from tools.vm.plan import (  # noqa: E402
    CORE,
    DISK_SIZE,
    GRUB_IMAGES,
    GRUB_MODULES,
    GUEST,
    PARTITION_START,
    RELEASE,
    GuestRecipe,
    archive_url,
    as_json,
    boot_sectors,
    container_command,
    grub_config,
    grub_environment,
    guest_files,
    plain_inventory,
    qemu_command,
    sources_of,
    ssh_command,
    uname_script,
    version_key,
)

SCRIPT = TOP / "tools" / "vm" / "guest.sh"
# Under emulation; a blocked kernel shows earlier.
BOOT_SECONDS = 240
BLOCK = 4096
# A command that this program calls -> the Debian package that contains it.
NEEDED = {
    "podman": "podman",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "qemu-system-x86_64": "qemu-system-x86",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


@dataclass(frozen=True)
class Guest:
    """The directory of the guest and its parts."""

    lab: Lab

    @property
    def directory(self) -> Path:
        return self.lab.home / self.lab.name / "machine"

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def disk(self) -> Path:
        return self.directory / "disk.img"

    @property
    def keys(self) -> Path:
        return self.directory / "keys"

    @property
    def serial(self) -> Path:
        return self.directory / "serial.log"

    @property
    def pid(self) -> Path:
        return self.directory / "qemu.pid"

    @property
    def port(self) -> Path:
        return self.directory / "port"

    @property
    def container(self) -> str:
        return f"bminf-{self.lab.name}-{GUEST}"


def require_controller() -> None:
    """Fail where this machine cannot run the guest, with the command that fixes it."""
    if os.geteuid():
        raise LabError(f"The guest's root file system needs root. Run: {shlex.join(['sudo', *sys.argv])}")
    if os.uname().machine != "x86_64":
        raise LabError(f"The guest needs an x86_64 machine, this one is {os.uname().machine}.")
    absent = sorted({package for command, package in NEEDED.items() if not shutil.which(command)})
    if absent:
        raise LabError(f"Not installed here: {', '.join(absent)}. Run: {TOP / 'tools' / 'bootstrap.sh'}")


# The root file system


def recipe_of_controller() -> GuestRecipe:
    """Return the recipe of the guest, with the Debian sources of this controller."""
    found = read_recipe(RELEASE)
    return GuestRecipe(sources_of(found.sources), found.apt_options, found.certificates, SCRIPT.read_text())


def make_root(guest: Guest) -> None:
    """Create a root file system without any role's changes; an existing one is removed."""
    stop(guest)
    recipe = recipe_of_controller()
    tarball = ensure_tarball(guest, recipe)
    guest.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = guest.root.with_suffix(".partial")
    remove_tree(partial, guest.root)
    partial.mkdir()
    say("unpacking the guest's root file system")
    run(["tar", "-x", "--xattrs", "--numeric-owner", "-C", str(partial), "-f", str(tarball)])
    for name in ("id_ed25519", "host"):
        ensure_key(guest.keys / name, GUEST)
    host, public = ((guest.keys / name).read_text() for name in ("host", "host.pub"))
    write(guest.keys / "known_hosts", f"{GUEST} {' '.join(public.split()[:2])}\n")
    files = guest_files((guest.keys / "id_ed25519.pub").read_text(), host, public, recipe.sources)
    for path, (text, mode) in files.items():
        write(partial / path, text, mode)
    partial.rename(guest.root)


def ensure_tarball(guest: Guest, recipe: GuestRecipe) -> Path:
    """Return the archive of the root file system, built where it is missing."""
    cache = guest.lab.cache
    tarball = cache / f"guest-{recipe.key}.tar"
    with locked(cache / "lock", "images"):
        if tarball.exists():
            return tarball
        scratch = cache / "scratch"
        remove_tree(scratch)
        scratch.mkdir()
        certificates = scratch / "certificates"
        for number, text in enumerate(recipe.certificates):
            certificates.mkdir(exist_ok=True)
            write(certificates / f"lab-{number}.crt", f"{text}\n")
        partial = scratch / tarball.name
        command = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "mmdebstrap", *recipe.command]
        command += [f"--essential-hook={SCRIPT}", f"--customize-hook={SCRIPT}", RELEASE, str(partial), *recipe.medium]
        more = {"TMPDIR": str(scratch), "LAB_CERTIFICATES": str(certificates), "GRUB_MODULES": " ".join(GRUB_MODULES)}
        show_progress("guest", command, {**os.environ, **more})
        for old in cache.glob("guest-*.tar"):
            old.unlink()
        partial.replace(tarball)
        remove_tree(scratch)
    return tarball


def kernels(guest: Guest) -> list[str]:
    """Return the releases of the kernels in the guest, the newest last."""
    if not guest.root.exists():
        raise LabError("The guest does not exist yet. Run: bin/vm root")
    found = [path.name.partition("-")[2] for path in (guest.root / "boot").glob("vmlinuz-*")]
    return sorted(found, key=version_key)


def remove_tree(*paths: Path) -> None:
    run(["rm", "-rf", "--one-file-system", *map(str, paths)])


# As a container, where compiling runs at this machine's speed


def start_container(guest: Guest) -> None:
    """Run an SSH daemon in the guest's root file system."""
    oldest = kernels(guest)[0]
    stop(guest)
    tools = guest.directory / "tools"
    tools.mkdir(exist_ok=True)
    write(tools / "uname", uname_script(oldest), 0o755)
    port = free_port()
    podman(*container_command(guest.container, guest.root, port, tools))
    announce(guest, port)
    wait_until_reached(guest, port, time.monotonic() + 30, lambda: podman("logs", guest.container))
    say(f"the guest runs as a container, as if with kernel {oldest}: SSH at 127.0.0.1:{port}")


# As a machine


def start_machine(guest: Guest, kernel: str | None) -> None:
    """Create a disk from the root file system and boot it, once with `kernel` if one is named."""
    found = kernels(guest)
    if kernel and kernel not in found:
        raise LabError(f"The guest has no kernel {kernel}; it has {', '.join(found)}.")
    stop(guest)
    write(guest.root / "boot/grub/grub.cfg", grub_config(found))
    write(guest.root / "boot/grub/grubenv", grub_environment(kernel or ""))
    make_disk(guest)
    port = free_port()
    run(qemu_command(guest.disk, port, guest.serial, guest.pid), hold=False)
    announce(guest, port)
    started = time.monotonic()
    wait_until_reached(guest, port, started + BOOT_SECONDS, lambda: last_words(guest))
    say(f"the guest booted in {time.monotonic() - started:.0f} s: SSH at 127.0.0.1:{port}")


def make_disk(guest: Guest) -> None:
    """Write the root file system to a disk that a BIOS can boot."""
    say("writing the guest's disk")
    guest.disk.unlink(missing_ok=True)
    with guest.disk.open("wb") as stream:
        stream.truncate(DISK_SIZE)
    # GRUB cannot read file systems with this feature of newer versions of mke2fs.
    features = ["-O", "^metadata_csum_seed"]
    place = ["-E", f"offset={PARTITION_START}", "-d", str(guest.root)]
    blocks = str((DISK_SIZE - PARTITION_START) // BLOCK)
    run(["mke2fs", "-q", "-F", "-t", "ext4", "-b", str(BLOCK), *features, *place, str(guest.disk), blocks])
    boot = (guest.root / GRUB_IMAGES / "boot.img").read_bytes()
    core = (guest.root / CORE).read_bytes()
    with guest.disk.open("r+b") as stream:
        stream.write(boot_sectors(boot, core, DISK_SIZE))


def last_words(guest: Guest) -> str:
    """Return the end of the machine's output on its serial port."""
    return "\n".join(guest.serial.read_text(errors="replace").splitlines()[-15:])


# Both


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def announce(guest: Guest, port: int) -> None:
    """Write the connection settings of the guest to a file."""
    write(guest.port, f"{port}\n")
    variables = {"guest_archive": archive_url(recipe_of_controller().sources)}
    write(guest.directory / "inventory.json", as_json(plain_inventory(guest.keys, port, variables)))


def wait_until_reached(guest: Guest, port: int, deadline: float, words: object) -> None:
    """Wait for the guest's SSH daemon; on failure report its last output."""
    command = [*ssh_command(guest.keys, port, "ConnectTimeout=5", "BatchMode=yes", "ControlPath=none"), "true"]
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
            if result.returncode == 0:
                return
        if time.monotonic() > deadline:
            assert callable(words)
            raise LabError(f"The guest cannot be reached: {result.stderr.strip()}. Its last output:\n{words()}")
        time.sleep(0.5)


def stop(guest: Guest) -> None:
    """Stop the guest, as a container and as a machine."""
    podman("rm", "--force", "--ignore", "--time", "2", guest.container)
    process = machine(guest)
    if process:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
            while machine(guest):
                time.sleep(0.1)
    guest.pid.unlink(missing_ok=True)
    guest.port.unlink(missing_ok=True)


def machine(guest: Guest) -> int | None:
    """Return the process of the machine that runs on this disk, None where none does."""
    if not guest.pid.exists():
        return None
    number = int(guest.pid.read_text())
    try:
        command = Path(f"/proc/{number}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    return number if str(guest.disk) in command else None


def enter(guest: Guest, words: Sequence[str]) -> None:
    if not guest.port.exists():
        raise LabError("The guest does not run. Run: bin/vm container, or bin/vm machine")
    command = [*ssh_command(guest.keys, int(guest.port.read_text()), "LogLevel=ERROR", "ConnectTimeout=30"), *words]
    os.execvp(command[0], command)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/vm", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("root", help="create a fresh root file system")
    commands.add_parser("kernels", help="list the guest's kernels, the newest last")
    commands.add_parser("container", help="run an SSH daemon in it, for installing and compiling")
    boot = commands.add_parser("machine", help="write it to a disk and boot that in qemu")
    boot.add_argument("--kernel", metavar="RELEASE", help="the kernel of the first boot; by default the newest")
    ssh = commands.add_parser("ssh", help="log in to the guest, or run a command there")
    ssh.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    commands.add_parser("down", help="remove the guest; the cached archive stays")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    # A plain `su` omits these.
    os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"
    try:
        inventory = yaml.safe_load(INVENTORY.read_text())
        guest = Guest(parse_lab({**os.environ, "LAB_NAME": os.environ.get("VM_NAME") or "vm"}, inventory, TOP))
        require_controller()
        configure_podman(guest.lab)
        dispatch(arguments, guest)
    except (LabError, OSError) as exc:
        print(f"ERROR: {exc}", file=sys.stderr)
        return 1
    return 0


def dispatch(arguments: argparse.Namespace, guest: Guest) -> None:
    if arguments.command == "ssh":
        enter(guest, arguments.words)
    if arguments.command == "kernels":
        print("\n".join(kernels(guest)))
        return
    with locked(guest.lab.run / "lock", "the guest"):
        if arguments.command == "root":
            make_root(guest)
        elif arguments.command == "container":
            start_container(guest)
        elif arguments.command == "machine":
            start_machine(guest, arguments.kernel)
        else:
            stop(guest)
            remove_tree(guest.directory)
            say("the guest: removed")


if __name__ == "__main__":
    sys.exit(main())
