# SPDX-License-Identifier: GPL-3.0-or-later
"""What an attack costs the worker of a HAProxy."""

from __future__ import annotations

import os
import re
from pathlib import Path


class Worker:
    """The worker of a running gateway that serves now."""

    def __init__(self, gateway):
        self.gateway = gateway

    @property
    def pid(self):
        return int(re.search(r"(?m)^Pid: (\d+)$", self.gateway.tell("show info"))[1])

    def cpu_seconds(self):
        """Return the CPU time so far, in steps of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self):
        """Return the resident memory."""
        found = re.search(r"(?m)^VmRSS:\s+(\d+) kB$", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1024
