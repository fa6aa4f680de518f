# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators of one host, and the names that recipes and releases use for them."""

import re
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.accelerator.partitions import mig_instances

# Upstream's name of the generation, for vendors with a single name in its recipes.
UPSTREAM_GENERATIONS = {"amd": "amd", "ascend": "npu", "intel": "xpu", "cpu": "cpu"}
# Upstream's name of the vendor, where it differs from the catalogue's.
BRANDS = {"ascend": "huawei", "cpu": "intel"}
# Upstream's names of systems that the catalogue lists by their chip.
UPSTREAM_IDS = {"ascend_a3": "ascend_910c", "gb10": "dgx_spark_gb10"}
# Upstream distinguishes processors; the catalogue does not.
UPSTREAM_PROCESSORS = ("xeon6", "xeon5")
# Upstream treats a host with a single one of these as its own system.
UPSTREAM_SINGLE = {"gb300": "dgx_station_gb300"}

# The memory of one chip in such a system, in GiB, where it differs from the catalogue's.
SINGLE_MEMORY_GIB = {"gb300": 252}
# Upstream means a host with one of these by its name; hosts with more are called rtx_5090_2x and so on.
ONE_CARD = ("ascend_950dt", "ascend_950pr", "rtx_5090", "rtx_pro_5000", "rtx_pro_6000")
# Upstream's systems, each with the architecture that its kernels are built for.
UPSTREAM_SYSTEMS = {
    "h100": "sm90", "h200": "sm90", "b200": "sm100", "gb200": "sm100", "b300": "sm103", "gb300": "sm103",
    "dgx_station_gb300": "sm103", "dgx_spark_gb10": "sm121", "rtx_4090": "sm89", "rtx_5090": "sm120",
    "rtx_pro_5000": "sm120", "rtx_pro_6000": "sm120", "mi300x": "gfx942", "mi325x": "gfx942", "mi355x": "gfx950",
    "arc_pro_b60": "battlemage", "arc_pro_b70": "battlemage", "xeon5": "cpu", "xeon6": "cpu",
    "ascend_910c": "ascend_a3", "ascend_950pr": "ascend_950", "ascend_950dt": "ascend_950",
}  # fmt: skip
# Stacks by the architectures of upstream's systems.
_STACK_OF = (("sm", "cuda"), ("gfx", "rocm"), ("ascend", "cann"), ("battlemage", "xpu"), ("cpu", "cpu"))
_COUNT = re.compile(r"_\d+x\Z")

# Facts of a host that conditions of recipes may use, where they are known.
FACTS = ("driver_version", "cuda_version", "mec_firmware", "partition")
# Further facts of a host that its plans follow from.
HOST_FACTS = ("pythons", "rdma", "cpu")


@dataclass(frozen=True)
class Accelerator:
    """The accelerators of one host, by the names of the catalogue.

    ``partition`` are the modes of AMD's chips (CPX/NPS4) or the MIG instances of NVIDIA's (7x1g.10gb); where they
    divide them, each part counts as a chip here.
    ``memory_mib`` is the memory of one chip (cpu: of the host, None where unknown). ``devices`` may hold ``{index}``.
    ``lacks`` are the number formats of weights that cannot be served on it, each with the reason.
    The versions were read on the host or declared, None where unknown. ``pythons`` are the paths of the host's Pythons,
    its python3 first; None where the host was not asked. ``rdma`` are the RDMA devices near chips, as near_rdma of
    module_utils/vllm/fabric_host.py has them: name, address, and pairs of a chip and the bridges in common.
    ``host_memory_mib`` is the memory of the host, None where it was not asked. ``numbers`` are those that the vendor's
    tools give the chips (whole ones), None where they list no other chips, and count these from 0.
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
    pythons: tuple[str, ...] | None = None
    rdma: tuple[tuple[str, str, tuple[tuple[str, int], ...]], ...] = ()
    host_memory_mib: int | None = None
    partition: str | None = None
    numbers: tuple[int, ...] | None = None

    @property
    def divided(self) -> bool:
        """Whether the chips here are parts of chips."""
        return bool(self.partition) and not str(self.partition).upper().startswith("SPX")

    @property
    def parts(self) -> int:
        """The chips here that one whole chip makes."""
        return self.count // len(self.numbers) if self.numbers else mig_instances(self.partition) or 1

    def number_of(self, chip: int) -> int:
        """Return the number that the vendor's tools give a chip; of a MIG instance, that of its whole chip."""
        whole, part = divmod(chip, self.parts)
        number = self.numbers[whole] if self.numbers else whole
        # The tools of AMD count the parts of a chip. Each of the other chips is one to them.
        return number if mig_instances(self.partition) else number + whole * (self.parts - 1) + part

    @property
    def most_together(self) -> int:
        """The chips that one instance can take: a program sees a single MIG instance."""
        return 1 if mig_instances(self.partition) else self.count

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

    def is_listed(self, systems: Sequence[Any]) -> bool:
        """Return whether a list of hardware in a recipe covers this host.

        Upstream names what somebody tried, out of its own systems. A chip that is none of them counts as covered where
        the list has its architecture, or several architectures of its stack.
        """
        listed = {str(name).lower() for name in systems}
        station = UPSTREAM_SINGLE.get(self.model) if self.count == 1 else None
        names = set(self.names) - ({self.model} if station else set())
        if names & listed:
            return True
        if {_COUNT.sub("", name) for name in self.ids} & set(UPSTREAM_SYSTEMS):
            return False
        own = {name.partition(":")[2] for name in self.architectures} | {self.generation}
        kin = self.kin(systems)
        return bool(kin & own) or len(kin) > 1

    def kin(self, systems: Sequence[Any]) -> set[str]:
        """Return the architectures of the systems of this stack in a list of a recipe."""
        found = (UPSTREAM_SYSTEMS.get(_COUNT.sub("", str(name).lower()), "") for name in systems)
        return {name for name in found if name.startswith(_prefix(self.stack))}

    def pick(self, entries: Any) -> Any:
        """Return the value of the most exact name in a map by hardware; any other value holds for all hardware."""
        if not isinstance(entries, Mapping):
            return entries
        for name in self.names:
            if entries.get(name) is not None:
                return entries[name]
        return None


def _prefix(stack: str) -> str:
    """Return how the architectures of a stack begin."""
    return next((prefix for prefix, name in _STACK_OF if name == stack), stack)


def generation_blocks(
    accelerator: Accelerator, overrides: Mapping[str, Any] | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the blocks of a ``hardware_overrides`` map for the generation, upstream's name of it first.

    Upstream's rule: an NVIDIA generation without its own block uses that of ``nvidia``. A block under the
    catalogue's name of the generation (gfx950) adds to it.
    """
    overrides = overrides or {}
    general = accelerator.upstream_generation
    if general not in overrides and accelerator.vendor == "nvidia":
        general = "nvidia"
    for name in dict.fromkeys((general, accelerator.generation)):
        if overrides.get(name):
            yield name, overrides[name]


def describes(name: str, chips: int) -> bool:
    """Return whether a block for exact hardware applies to instances with this number of chips."""
    return chips == 1 or name not in ONE_CARD


def exact_blocks(
    accelerator: Accelerator, overrides: Mapping[str, Any] | None, chips: int = 1
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the blocks of a ``hardware_overrides`` map for this exact hardware, the most exact last.

    ``chips`` is the number of chips of the instance: a block for one card is not for an instance of two.
    """
    for name in reversed(accelerator.ids):
        if not describes(name, chips):
            continue
        # On a CPU the hardware and its generation have the same name.
        if (overrides or {}).get(name) and name not in accelerator.generations:
            yield name, (overrides or {})[name]
