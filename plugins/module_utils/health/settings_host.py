# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the configuration of the health service."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..instance.marks import CONFIG_DIR, RUN_DIR
from ..weights.scrub import REPORT


@dataclass
class Settings:
    """The configuration that the role writes; ``chips`` has the PCI addresses of each instance, none for all.

    All times are in seconds: ``poll``, ``look`` and ``prove`` are between two questions to the vendor's tool, two to
    the instances, and two proofs; after ``stall`` without progress an engine hangs. A sick instance that nobody has
    asked for ``idle`` seconds is started again: its gateways have let it go. ``webhook`` is the file of the webhook.
    """

    host: str
    stack: str
    vendor: str
    model: str
    faults: Mapping[str, Any]
    addresses: Sequence[str] = ()
    chips: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kernel_log: str = "/dev/kmsg"
    state_dir: str = "/var/lib/vllm-health"
    config_dir: str = CONFIG_DIR
    run_dir: str = RUN_DIR
    metrics: str = ""
    boot_id: str = "/proc/sys/kernel/random/boot_id"
    disks: Sequence[str] = ()
    scrub_report: str = REPORT
    webhook: str = ""
    restart: bool = True
    stall: float = 120.0
    poll: float = 30.0
    look: float = 5.0
    prove: float = 30.0
    idle: float = 10.0
    tick: float = 1.0

    @classmethod
    def read(cls, path: str) -> Settings:
        """Return the configuration in a file. Raises OSError, ValueError and TypeError."""
        with open(path, encoding="utf-8") as file:
            return cls(**json.load(file))
