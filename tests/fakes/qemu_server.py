# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of servers_off.py whose machine is QEMU (tcg, OVMF): it boots the real ramdisk and what that has written.

The fake BMC mounts the medium and switches QEMU on and off; a guest that switches itself off is noticed.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.servers_off import Server, main

OVMF = Path("/usr/share/OVMF")


@dataclass
class Machine(Server):
    """``guest`` has the directory of its disks and logs, and its network device (tap)."""

    guest: dict[str, str] = field(default_factory=dict)
    process: Any = None
    lock: Any = field(default_factory=threading.RLock)

    def switch(self, on: bool) -> None:
        with self.lock:
            process, self.process = self.process, None
            if process:
                process.kill()
                process.wait()
            super().switch(on)

    def system(self) -> dict[str, Any]:
        return {}

    def _boot(self, boot: int) -> None:
        once, self.boot_once = self.boot_once, ""
        directory = Path(self.guest["directory"])
        medium = directory / "medium.iso"
        medium.unlink(missing_ok=True)
        if self.medium and once == "Cd":
            with urllib.request.urlopen(self.medium, timeout=60) as answer, medium.open("wb") as file:
                shutil.copyfileobj(answer, file)
        with self.lock:
            if boot != self.boots:
                return
            log = (directory / "qemu.log").open("ab")
            self.process = process = subprocess.Popen(self._command(directory, medium), stdout=log, stderr=log)
            self.agents += medium.exists()
        process.wait()
        with self.lock:
            if self.process is process:
                self.process, self.power = None, "Off"

    def _command(self, directory: Path, medium: Path) -> list[str]:
        firmware = directory / "firmware.fd"
        if not firmware.exists():
            shutil.copy(OVMF / "OVMF_VARS_4M.fd", firmware)
        words = [
            "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
            "-m", "3072", "-display", "none", "-monitor", "none",
            "-serial", f"file:{directory}/serial-{self.boots}.log",
            "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={OVMF}/OVMF_CODE_4M.fd",
            "-drive", f"if=pflash,format=raw,unit=1,file={firmware}",
            "-netdev", f"tap,id=n0,ifname={self.guest['tap']},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=n0,mac={self.mac},romfile=", "-device", "virtio-rng-pci",
        ]  # fmt: skip
        if medium.exists():
            words += ["-drive", f"if=none,id=cd0,media=cdrom,readonly=on,format=raw,file={medium}",
                      "-device", "ide-cd,bus=ide.0,drive=cd0,bootindex=0"]  # fmt: skip
        for number, serial in enumerate(self.disks):
            file = directory / f"{serial}.qcow2"
            if not file.exists():
                subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(file), "8G"], check=True)
            words += ["-drive", f"if=none,id=d{number},format=qcow2,cache=unsafe,discard=unmap,file={file}",
                      "-device", f"virtio-blk-pci,drive=d{number},serial={serial},bootindex={number + 1}"]  # fmt: skip
        return words


if __name__ == "__main__":
    main(Machine)
