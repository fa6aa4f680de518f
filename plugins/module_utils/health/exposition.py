# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the figures of a host as text for Prometheus: one vocabulary for the chips of all vendors."""

from __future__ import annotations

from collections import Counter
from typing import Iterable, Mapping, NamedTuple, Sequence

from ..vendor_stack.counters import ChipCounters

GAUGE, COUNTER = "gauge", "counter"

# Every series, with its type and what it is.
SERIES: dict[str, tuple[str, str]] = {
    "accel_info": (GAUGE, "1 for each chip that the vendor's tool reports."),
    "accel_utilization_ratio": (GAUGE, "Share of time in which the chip worked, 0 to 1."),
    "accel_memory_used_bytes": (GAUGE, "Memory of the chip in use."),
    "accel_memory_total_bytes": (GAUGE, "Memory of the chip."),
    "accel_temperature_celsius": (GAUGE, "Temperature, by sensor."),
    "accel_power_watts": (GAUGE, "Power that the chip draws."),
    "accel_power_limit_watts": (GAUGE, "Power that the chip may draw."),
    "accel_energy_joules_total": (COUNTER, "Energy since the driver was loaded."),
    "accel_clock_hertz": (GAUGE, "Clock, by its name."),
    "accel_errors_total": (COUNTER, "Errors that the vendor's tool counts, by their name; ECC, remapped rows, links."),
    "accel_slowed_total": (COUNTER, "What the vendor's tool counts of slowdowns by heat or a power brake, by reason."),
    "accel_slowing": (GAUGE, "1 for each reason that slows the chip at this moment."),
    "accel_power_capped": (GAUGE, "1 while the power limit acts, which is normal under full load."),
    "accel_link_lanes": (GAUGE, "PCIe lanes in use."),
    "accel_link_lanes_max": (GAUGE, "PCIe lanes of the chip."),
    "accel_link_generation": (GAUGE, "PCIe generation in use; lower while the chip is idle."),
    "accel_state_fault": (GAUGE, "1 for each state of the chip that a person must correct."),
    "accel_faults_total": (COUNTER, "Faults since the service began, by fault and action; chip is empty for the host."),
    "accel_tool_up": (GAUGE, "1 if the vendor's tool reported the chips."),
    "accel_tool_seconds": (GAUGE, "How long the vendor's tool took."),
    "vllm_instance_healthy": (GAUGE, "0 while faults keep the instance out of service."),
    "vllm_instance_fault": (GAUGE, "1 for each fault that keeps the instance out of service."),
    "vllm_unit_active": (GAUGE, "1 while the instance's unit is active."),
    "vllm_unit_scaled_down": (GAUGE, "1 while gateways have stopped the instance because the others are enough."),
    "vllm_unit_ready": (GAUGE, "1 while the instance answers and is warm."),
    "vllm_unit_start_seconds": (GAUGE, "How long the last start took, with the warm-up."),
    "vllm_unit_warmup_seconds": (GAUGE, "How long the warm-up of the last start took."),
    "vllm_unit_restarts_total": (COUNTER, "Starts by systemd without a request, since the unit was loaded."),
    "vllm_instance_drift": (GAUGE, "1 if files of the instance differ from its last good state."),
    "health_kernel_lines_total": (COUNTER, "Lines of the kernel's log that were read."),
    "health_kernel_lines_lost_total": (COUNTER, "How often the kernel overwrote lines before they were read."),
    "health_state_damaged": (GAUGE, "1 if the saved state was damaged when the service began."),
    "health_boot_faults": (
        GAUGE,
        "Faults that only a new start of the host ends: chips that are lost, or did not start.",
    ),
    "health_disk_free_ratio": (GAUGE, "Free share of the disk with weights or caches, by directory."),
    "health_weights_damaged_files": (GAUGE, "Files that the last scrub of the weights has found damaged."),
    "health_weights_scrubbed_seconds": (GAUGE, "When the last scrub of the weights ended."),
    "health_worked_seconds": (GAUGE, "When each loop of a service on the host last worked, or began."),
    "health_written_seconds": (GAUGE, "Time of this writing."),
}


class Sample(NamedTuple):
    """One value of a series."""

    name: str
    labels: Mapping[str, str]
    value: float


class Labels:
    """The labels of each chip: host, vendor, model, chip, and the instances that use it."""

    def __init__(self, host: str, vendor: str, model: str, instances: Mapping[str, Sequence[str]]) -> None:
        """Take the chips of each instance; an instance without chips uses all of them."""
        self.base = {"host": host, "vendor": vendor, "model": model}
        self.instances = instances

    def of_chip(self, chip: str, **more: str) -> dict[str, str]:
        """Return the labels of a chip."""
        return {**self.base, "chip": chip, "instance": ",".join(self.users(chip)), **more}

    def of_instance(self, instance: str, **more: str) -> dict[str, str]:
        """Return the labels of an instance."""
        return {"host": self.base["host"], "instance": instance, **more}

    def users(self, chip: str) -> list[str]:
        """Return the instances that use a chip."""
        return sorted(name for name, chips in self.instances.items() if not chips or chip in chips)


def chip_samples(labels: Labels, chips: Iterable[ChipCounters]) -> list[Sample]:
    """Return the samples of chips."""
    found = []
    seen: Counter[str] = Counter()
    for chip in chips:
        own = labels.of_chip(chip.chip)
        # Both chips of some cards show one address, and Prometheus refuses a file with a series twice.
        own["chip"] += f"/{seen[chip.chip]}" if seen[chip.chip] else ""
        seen[chip.chip] += 1
        plain = {
            "accel_info": 1.0,
            "accel_utilization_ratio": chip.utilization,
            "accel_memory_used_bytes": chip.memory_used,
            "accel_memory_total_bytes": chip.memory_total,
            "accel_power_watts": chip.watts,
            "accel_power_limit_watts": chip.watts_limit,
            "accel_energy_joules_total": chip.joules,
            "accel_power_capped": float(chip.capped),
            "accel_link_lanes": chip.link_width or None,
            "accel_link_lanes_max": chip.link_width_max or None,
            "accel_link_generation": chip.link_gen or None,
        }
        found += [Sample(name, own, float(value)) for name, value in plain.items() if value is not None]
        for name, label, values in (
            ("accel_temperature_celsius", "sensor", chip.celsius),
            ("accel_clock_hertz", "clock", chip.hertz),
            ("accel_errors_total", "error", chip.errors),
            ("accel_slowed_total", "reason", chip.slowed),
            ("accel_slowing", "reason", dict.fromkeys(chip.slowing, 1)),
            ("accel_state_fault", "fault", dict.fromkeys(chip.faults, 1)),
        ):
            found += [Sample(name, {**own, label: key}, float(value)) for key, value in values.items()]
    return found


def render(samples: Iterable[Sample]) -> str:
    """Return the text of samples, grouped by series in the order of SERIES. Raises KeyError for an unknown series."""
    groups: dict[str, list[Sample]] = {name: [] for name in SERIES}
    for sample in samples:
        groups[sample.name].append(sample)
    lines = []
    for name, group in groups.items():
        if group:
            kind, text = SERIES[name]
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(sample.labels)}}} {sample.value:.12g}" for sample in group]
    return "\n".join([*lines, ""])


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{key}="{_quoted(value)}"' for key, value in labels.items())


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
