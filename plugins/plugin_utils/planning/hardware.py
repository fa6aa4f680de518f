# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators of one host, and the names that recipes and releases use for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Mapping

# Upstream's name of the generation, for vendors with a single name in its recipes.
UPSTREAM_GENERATIONS = {"amd": "amd", "ascend": "npu", "intel": "xpu", "cpu": "cpu"}
# Upstream's name of the vendor, where it differs from the catalogue's.
BRANDS = {"ascend": "huawei", "cpu": "intel"}
# Upstream's names of systems that the catalogue lists by their chip.
UPSTREAM_IDS = {"ascend_a3": "ascend_910c", "gb10": "dgx_spark_gb10"}
# Upstream distinguishes processors; the catalogue does not.
UPSTREAM_PROCESSORS = ("xeon6", "xeon5")
# Upstream treats a host with a single one of these as a system of its own.
UPSTREAM_SINGLE = {"gb300": "dgx_station_gb300"}

# Facts of a host that conditions of recipes may use, where they are known.
FACTS = ("driver_version", "cuda_version", "mec_firmware")


@dataclass(frozen=True)
class Accelerator:
    """The accelerators of one host, by the names of the catalogue.

    ``memory_mib`` is the memory of one chip (cpu: of the host, None where unknown). ``devices`` may hold ``{index}``.
    ``lacks`` are the number formats of weights that cannot be served on it, each with the reason.
    The versions were read on the host or declared, None where unknown.
    """

    model: str
    stack: str
    generation: str
    vendor: str
    count: int
    memory_mib: int | None = None
    devices_per_card: int = 1
    devices: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    visible_env: str | None = None
    driver_version: str | None = None
    compute_capability: str | None = None
    cuda_version: str | None = None
    mec_firmware: int | None = None
    lacks: tuple[tuple[str, str], ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of this exact hardware, the most exact first."""
        names = [f"{self.model}_{self.count}x"]
        if self.count == 1 and self.model in UPSTREAM_SINGLE:
            names.append(UPSTREAM_SINGLE[self.model])
        names.append(self.model)
        if self.model in UPSTREAM_IDS:
            names.append(UPSTREAM_IDS[self.model])
        return tuple(names)

    @property
    def upstream_generation(self) -> str:
        """Upstream's name of the generation: hopper, amd, npu, xpu, cpu."""
        if self.generation == "cpu":
            return "cpu"
        return UPSTREAM_GENERATIONS.get(self.vendor, self.generation)

    @property
    def generations(self) -> tuple[str, ...]:
        """The generation's own name and upstream's name, the more exact one first."""
        return tuple(dict.fromkeys((self.generation, self.upstream_generation)))

    @property
    def architectures(self) -> tuple[str, ...]:
        """Upstream's names of the architectures that kernels are built for: arch:sm90, arch:gfx942."""
        if self.vendor == "amd":
            return (f"arch:{self.generation}",)
        return (f"arch:sm{self.compute_capability.replace('.', '')}",) if self.compute_capability else ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of this hardware in a map of a recipe, the most exact first, ``default`` last."""
        brand = BRANDS.get(self.vendor, self.vendor)
        processors = UPSTREAM_PROCESSORS if self.model == "cpu" else ()
        return tuple(
            dict.fromkeys(
                (
                    *self.ids,
                    *processors,
                    *self.architectures,
                    *self.generations,
                    self.vendor,
                    brand,
                    "default",
                )
            )
        )

    def pick(self, entries: Any) -> Any:
        """Return the value of the most exact name in a map by hardware; any other value holds for all hardware."""
        if not isinstance(entries, Mapping):
            return entries
        for name in self.names:
            if entries.get(name) is not None:
                return entries[name]
        return None


def generation_blocks(
    accelerator: Accelerator, overrides: Mapping[str, Any] | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the blocks of a ``hardware_overrides`` map for the generation, upstream's name of it first.

    Upstream's rule: an NVIDIA generation without a block of its own uses that of ``nvidia``. A block under the
    catalogue's name of the generation (gfx950) adds to it.
    """
    overrides = overrides or {}
    general = accelerator.upstream_generation
    if general not in overrides and accelerator.vendor == "nvidia":
        general = "nvidia"
    for name in dict.fromkeys((general, accelerator.generation)):
        if overrides.get(name):
            yield name, overrides[name]


def exact_blocks(
    accelerator: Accelerator, overrides: Mapping[str, Any] | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the blocks of a ``hardware_overrides`` map for this exact hardware, the most exact last."""
    for name in reversed(accelerator.ids):
        # On a CPU the hardware and its generation have the same name.
        if (overrides or {}).get(name) and name not in accelerator.generations:
            yield name, (overrides or {})[name]
