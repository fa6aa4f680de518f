# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the settings of a host, set them, and keep what they were before."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
from typing import Collection, Iterable, Iterator, Sequence

from ..common.files_host import bytes_of, listed, make_directories, publish, text_of
from ..common.foreign_numbers import read_finite
from .answers import QUERY, nvidia_knobs
from .pci_config import acs_control
from .plan import Plan, Step
from .settings import (
    ACS,
    GOVERNOR,
    GRUB_FILE,
    GRUBBY,
    HUGE_PAGES,
    IOMMU,
    IOMMU_WORDS,
    LIMITS,
    LIMITS_FILE,
    NUMA,
    PERSISTENCE,
    POWER_CAP,
    SYSTEMD_FILE,
    Knob,
    TuningError,
    number,
)

SAVED_FILE = "/var/lib/host-tuning/before.json"
REBOOT_MARK = "/var/lib/host-tuning/reboot"
COMMAND_LINE = "/proc/cmdline"
# Seconds for one command. A tool that hangs must not keep a host from booting.
TIME_LIMIT = 120
MICROWATTS = 1e6


class HostSettings:
    """The settings of this host. ``root`` stands before the paths of files that are written."""

    def __init__(self, sysfs: str = "/sys", proc: str = "/proc", root: str = "") -> None:
        self.sysfs, self.proc, self.root = sysfs, proc, root
        self.grubby = shutil.which("grubby") is not None

    def read(self, settings: Collection[str]) -> list[Knob]:
        """Return every value of the settings. Raises TuningError where a tool does not answer."""
        found: list[Knob] = []
        readers = {GOVERNOR: self._governors, NUMA: self._numa, HUGE_PAGES: self._huge_pages, ACS: self._acs}
        for setting, reader in readers.items():
            if setting in settings:
                found += reader()
        if {PERSISTENCE, POWER_CAP} & set(settings):
            found += [knob for knob in (*self._nvidia(), *self._amd_caps()) if knob.setting in settings]
        if LIMITS in settings:
            found += [Knob(LIMITS, path, text_of(self.root + path)) for path in (LIMITS_FILE, SYSTEMD_FILE)]
        if IOMMU in settings:
            found.append(self._iommu())
        return found

    def apply(self, plan: Plan) -> None:
        """Keep the values from before, then set the new ones. Raises TuningError if one does not take effect."""
        # What is about to return to its value from before stays in the file until that has happened.
        self._save({**self.saved(), **plan.saved})
        for step in plan.changes:
            try:
                self._set(step)
            except OSError as exc:
                raise TuningError(f"{step.setting}: {step.place} refused {step.after!r}: {exc.strerror}") from exc
        self._finish({step.setting for step in plan.changes})
        now = {(knob.setting, knob.place): knob.value for knob in self.read({step.setting for step in plan.changes})}
        for step in plan.changes:
            found = now.get((step.setting, step.place), step.after)
            if found != step.after:
                raise TuningError(f"{step.setting}: {step.place} was set to {step.after!r}, and the host has {found!r}")
        self._save(plan.saved)

    def saved(self) -> dict[str, dict[str, str]]:
        """Return the values from before the first change. Raises TuningError for a damaged file."""
        text = text_of(self.root + SAVED_FILE)
        if not text:
            return {}
        try:
            found = json.loads(text)
            return {setting: {str(key): str(value) for key, value in found[setting].items()} for setting in found}
        except (ValueError, AttributeError, TypeError) as exc:
            raise TuningError(
                f"{SAVED_FILE}: the values from before are damaged ({exc}); delete the file to take the present "
                "values for those"
            ) from exc

    def iommu_words(self) -> tuple[str, ...]:
        """Return the kernel arguments of pass-through for this processor; none where they are not known."""
        if os.uname().machine == "aarch64":
            return IOMMU_WORDS["aarch64"]
        vendors = [
            line.partition(":")[2].strip()
            for line in text_of(os.path.join(self.proc, "cpuinfo")).splitlines()
            if line.startswith("vendor_id")
        ]
        return IOMMU_WORDS.get(vendors[0], ()) if vendors else ()

    def command_line(self) -> str:
        """Return the kernel's command line."""
        return text_of(os.path.join(self.proc, "cmdline")).strip()

    def running_instances(self) -> list[str]:
        """Return the units of vLLM that run or start."""
        if not shutil.which("systemctl"):
            return []
        code, out = _run(
            ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", "vllm@*.service"]
        )
        return [line.split()[0] for line in out.splitlines() if line.split()] if code == 0 else []

    def _governors(self) -> Iterator[Knob]:
        top = os.path.join(self.sysfs, "devices/system/cpu/cpufreq")
        policies = [name for name in listed(top) if name.startswith("policy") and name[6:].isdecimal()]
        for name in sorted(policies, key=lambda each: int(each[6:])):
            value = text_of(os.path.join(top, name, "scaling_governor")).strip()
            allowed = text_of(os.path.join(top, name, "scaling_available_governors")).split()
            if value:
                yield Knob(GOVERNOR, name, value, tuple(allowed))

    def _numa(self) -> Iterator[Knob]:
        value = text_of(os.path.join(self.proc, "sys/kernel/numa_balancing")).strip()
        if value:
            yield Knob(NUMA, "kernel.numa_balancing", value)

    def _huge_pages(self) -> Iterator[Knob]:
        words = text_of(os.path.join(self.sysfs, "kernel/mm/transparent_hugepage/enabled")).split()
        chosen = [word.strip("[]") for word in words if word.startswith("[")]
        if chosen:
            yield Knob(HUGE_PAGES, "kernel", chosen[0], tuple(word.strip("[]") for word in words))

    def _acs(self) -> Iterator[Knob]:
        top = os.path.join(self.sysfs, "bus/pci/devices")
        for address in listed(top):
            config = bytes_of(os.path.join(top, address, "config"))
            offset = acs_control(config)
            if offset is not None:
                yield Knob(ACS, address, f"{struct.unpack_from('<H', config, offset)[0]:04x}")

    def _nvidia(self) -> Sequence[Knob]:
        if not shutil.which("nvidia-smi"):
            return ()
        return tuple(nvidia_knobs(_must(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"])))

    def _amd_caps(self) -> Iterator[Knob]:
        top = os.path.join(self.sysfs, "bus/pci/drivers/amdgpu")
        for address in listed(top):
            directory = self._amd_hwmon(address)
            watts = [read_finite(text_of(os.path.join(directory, f"power1_cap{end}"))) for end in ("", "_min", "_max")]
            limit, least, most = (None if each is None else each / MICROWATTS for each in watts)
            if limit is not None and most:
                yield Knob(POWER_CAP, address, number(limit), (), least or 0.0, most)

    def _amd_hwmon(self, address: str) -> str:
        top = os.path.join(self.sysfs, "bus/pci/drivers/amdgpu", address, "hwmon")
        return os.path.join(top, (listed(top) or [""])[0])

    def _iommu(self) -> Knob:
        """Return the file or the boot entries with the kernel arguments, or what the kernel has where that suffices.

        Raises TuningError where the host's boot loader is neither.
        """
        words = self.iommu_words()
        content = text_of(self.root + GRUB_FILE)
        if self.grubby:
            arguments = _must(["grubby", "--info=DEFAULT"]).replace('"', " ").split()
            return Knob(IOMMU, GRUBBY, " ".join(word for word in words if word in arguments))
        if content or not words:
            return Knob(IOMMU, GRUB_FILE, content)
        if all(word in self.command_line().split() for word in words):
            return Knob(IOMMU, COMMAND_LINE, " ".join(words))
        if not os.path.exists(self.root + "/etc/default/grub"):
            raise TuningError(
                f"host_tuning_iommu_pt: the host has no GRUB (/etc/default/grub); add {' '.join(words)} to the "
                "kernel's command line in the host's own boot loader, and reboot"
            )
        return Knob(IOMMU, GRUB_FILE, "")

    def _save(self, values: dict[str, dict[str, str]]) -> None:
        path = self.root + SAVED_FILE
        if not values:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        elif values != self.saved():
            make_directories(os.path.dirname(path))
            publish(path, json.dumps(values, indent=1, sort_keys=True))

    def _set(self, step: Step) -> None:
        """Set one value. Raises OSError and TuningError."""
        if step.setting == GOVERNOR:
            _write(os.path.join(self.sysfs, "devices/system/cpu/cpufreq", step.place, "scaling_governor"), step.after)
        elif step.setting == NUMA:
            _write(os.path.join(self.proc, "sys/kernel/numa_balancing"), step.after)
        elif step.setting == HUGE_PAGES:
            _write(os.path.join(self.sysfs, "kernel/mm/transparent_hugepage/enabled"), step.after)
        elif step.setting == ACS:
            self._set_acs(step)
        elif step.setting == PERSISTENCE:
            _must(["nvidia-smi", "-i", step.place, "-pm", "1" if step.after == "Enabled" else "0"])
        elif step.setting == POWER_CAP:
            self._set_power_cap(step)
        elif step.place == GRUBBY:
            lost = " ".join(word for word in step.before.split() if word not in step.after.split())
            change = f"--args={step.after}" if step.after else f"--remove-args={lost}"
            _must(["grubby", "--update-kernel=ALL", change])
        else:
            self._set_file(step)

    def _set_acs(self, step: Step) -> None:
        path = os.path.join(self.sysfs, "bus/pci/devices", step.place, "config")
        offset = acs_control(bytes_of(path))
        if offset is not None:
            with open(path, "r+b", buffering=0) as file:
                file.seek(offset)
                file.write(struct.pack("<H", int(step.after, 16)))

    def _set_power_cap(self, step: Step) -> None:
        directory = self._amd_hwmon(step.place)
        if os.path.exists(os.path.join(directory, "power1_cap")):
            _write(os.path.join(directory, "power1_cap"), str(round(float(step.after) * MICROWATTS)))
        else:
            _must(["nvidia-smi", "-i", step.place, "-pl", step.after])

    def _set_file(self, step: Step) -> None:
        path = self.root + step.place
        if step.after:
            make_directories(os.path.dirname(path))
            publish(path, step.after)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _finish(self, settings: Iterable[str]) -> None:
        """Let the changed files take effect: for units that start from now on, and for the next boot."""
        if LIMITS in settings:
            _must(["systemctl", "daemon-reexec"])
        if IOMMU in settings and not self.grubby:
            _must(["update-grub"])


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _must(argv: list[str]) -> str:
    """Return the output of a command. Raises TuningError if it fails."""
    code, out = _run(argv)
    if code:
        raise TuningError(f"{' '.join(argv)} failed: {out.strip()[-500:] or f'exit status {code}'}")
    return out


def _run(argv: list[str]) -> tuple[int, str]:
    """Return exit status and output of a command; 124 where it took too long."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIME_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return 124, f"no answer in {TIME_LIMIT} s"
    except OSError as exc:
        return 127, str(exc.strerror)
    return done.returncode, done.stdout.decode(errors="replace")
