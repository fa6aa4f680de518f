# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for nvidia-smi -q -x: the chips of the stand-in's PCI tree without those in /var/lib/standin-lost."""

from __future__ import annotations

from pathlib import Path

LOST = Path("/var/lib/standin-lost")
GPU = """<gpu id="0000{chip}"><utilization><gpu_util>37 %</gpu_util></utilization>
<temperature><gpu_temp>41 C</gpu_temp></temperature>
<fb_memory_usage><total>46068 MiB</total><used>40000 MiB</used></fb_memory_usage></gpu>"""

lost = LOST.read_text().split() if LOST.exists() else []
devices = sorted(Path("/standin/sys/bus/pci/devices").iterdir())
chips = [path.name for path in devices if (path / "class").read_text().startswith("0x0302")]
print(f"<nvidia_smi_log>{''.join(GPU.format(chip=chip) for chip in chips if chip not in lost)}</nvidia_smi_log>")
