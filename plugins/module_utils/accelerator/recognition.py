# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognise the accelerators of a host by the catalogue, and compare them with the declared ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Iterable, Mapping, Sequence

from ..common.spelling import nearest
from .cpu_host import Cpu
from .partitions import WHOLE, is_same
from .pci_host import PciFunction

# Names of hosts without a known accelerator: no device of the catalogue's vendors, or only unlisted ones.
CPU = "cpu"
UNKNOWN = "unknown"

# vLLM's CPU build runs without AVX-512 (slowly), not without AVX2.
X86_NEEDS = "avx2"
# So many chips may be behind one function on PCI: an Atlas 300I Duo has two, a 300I Pro under the same id one.
CHIPS_OF_A_FUNCTION = {"ascend_310p": 2}
# Stacks whose tools number all chips of the vendor that its driver drives, of every model, by their PCI addresses:
# nvidia-smi, CDI (nvidia-ctk takes NVML's numbers) and CUDA with CUDA_DEVICE_ORDER=PCI_BUS_ID; amd-smi and HIP.
NUMBERED = ("cuda", "rocm")


class AcceleratorError(ValueError):
    """A catalogue or a host is invalid; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class ExpectedFigure:
    """What one healthy chip reaches, for playbooks/accept.yml; the unit is in the figure's name.

    A chip passes from ``acceptable`` x ``value`` on. ``status`` is measured or datasheet; ``source`` names the machine
    of the measurement, or the data sheet.
    """

    value: float
    acceptable: float
    status: str
    source: str


@dataclass(frozen=True)
class Model:
    """One accelerator of the catalogue; ``unsupported`` is the reason why vLLM cannot run on it, None where it can.

    ``devices`` may hold ``{index}`` for the number of each device. ``mounts`` are paths of the host, ``groups`` have
    access to the devices, ``visible_env`` is the variable that selects among them. ``memory_gib`` is the nominal memory
    of one device, None where it is a share of the host's. ``lacks`` are the number formats of weights that the model
    cannot serve, each with the reason. ``expected`` are the figures of a healthy chip by their names.
    ``driver`` is what it needs of the vendor's driver. ``compute_dies`` is the number of devices that AMD's mode CPX
    makes of the chip, ``mig_slices`` that of the smallest instances of NVIDIA's MIG; None where it cannot be divided.
    ``memory_modes`` are AMD's modes of its memory, such as NPS1 and NPS4. ``host_chips`` is the most that one host has,
    None where hosts differ.
    """

    key: str
    title: str
    vendor: str
    stack: str
    generation: str
    compute_capability: str | None
    devices_per_card: int
    unsupported: str | None
    devices: tuple[str, ...]
    mounts: tuple[str, ...]
    groups: tuple[str, ...]
    visible_env: str | None
    memory_gib: float | None = None
    lacks: tuple[tuple[str, str], ...] = ()
    expected: Mapping[str, ExpectedFigure] = field(default_factory=dict)
    driver: Mapping[str, Any] = field(default_factory=dict)
    compute_dies: int | None = None
    memory_modes: tuple[str, ...] = ()
    mig_slices: int | None = None
    host_chips: int | None = None


@dataclass(frozen=True)
class Chip:
    """The meaning of one PCI id; ``memory_gib`` is the memory of one device, None where it is a share of the host's.

    ``expected`` and ``driver`` are those of this id: its own, and those of the model that it does not replace.
    """

    model: str
    form: str | None
    memory_gib: float | None
    expected: Mapping[str, ExpectedFigure] = field(default_factory=dict)
    driver: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PciVendor:
    """A PCI vendor id of the catalogue; ``file`` is where its chips are listed."""

    vendor: str
    name: str
    classes: tuple[str, ...]
    unknown_is_error: bool
    file: str


@dataclass(frozen=True)
class Catalogue:
    """All known accelerators; the keys are model names, ``vendor:device`` ids and PCI vendor ids."""

    models: Mapping[str, Model]
    chips: Mapping[str, Chip]
    switches: Mapping[str, str]
    ignored: Mapping[str, str]
    pci_vendors: Mapping[str, PciVendor]


@dataclass(frozen=True)
class Detected:
    """The hardware of one host, the fact ``accelerator_detected``.

    ``model``, ``stack``, ``generation`` and ``vendor`` are ``cpu`` on a host without accelerators and ``unknown`` where
    every one found is unknown. ``count`` is the number of devices of that model and ``memory_mib`` the memory of one:
    of the smallest where they differ, of the host for ``cpu``, None where the catalogue knows none. ``models`` counts
    every model; ``mixed`` is true if there are several, or unknown ones beside them. ``driver_version`` and
    ``mec_firmware`` (AMD) are None where unknown. ``partition`` are the modes of AMD's chips (CPX/NPS4), None where the
    driver shows none; ``count`` and ``memory_mib`` are always those of whole chips. ``numbers`` are, by model, those
    that the vendor's tools give its chips; only of models beside others of the vendor that these tools list too.
    """

    model: str
    stack: str
    generation: str
    vendor: str
    count: int
    memory_mib: int | None
    compute_capability: str | None
    devices_per_card: int
    unsupported: str | None
    mixed: bool
    models: dict[str, int]
    devices: list[dict[str, Any]]
    switches: list[dict[str, Any]]
    unknown: list[dict[str, Any]]
    cpu: dict[str, Any]
    driver_version: str | None = None
    mec_firmware: int | None = None
    partition: str | None = None
    numbers: dict[str, list[int]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the hardware as plain data, JSON-serialisable."""
        return asdict(self)


def match(
    functions: Iterable[PciFunction],
    catalogue: Catalogue,
    cpu: Cpu,
    drivers: Mapping[str, Mapping[str, Any]] | None = None,
    declared: str | None = None,
) -> Detected:
    """Return the hardware that the catalogue recognises in a host's PCI functions.

    ``drivers`` is the result of drivers_host.read_drivers. The model ``declared`` by the inventory leads where it is
    there, else the first by ``rank``.

    Catalogued ids count whatever their PCI class, unknown ids in the classes of their vendor. Virtual functions beside
    their physical function are not counted, because they are the same chip.
    """
    devices: list[dict[str, Any]] = []
    switches: list[dict[str, Any]] = []
    unknown: list[dict[str, Any]] = []
    functions = list(functions)
    for function in functions:
        if function.virtual or function.id in catalogue.ignored:
            continue
        if function.id in catalogue.chips:
            devices.append(_device(function, catalogue.chips[function.id]))
        elif function.id in catalogue.switches:
            switches.append({**_place(function), "title": catalogue.switches[function.id]})
        elif _is_unknown(function, catalogue):
            unknown.append({**_place(function), "vendor": catalogue.pci_vendors[function.vendor_id].vendor})
    found = hardware_of(devices, unknown, catalogue, switches, cpu, drivers, declared)
    return replace(found, numbers=_numbers(functions, found, catalogue))


def hardware_of(
    devices: list[dict[str, Any]],
    unknown: list[dict[str, Any]],
    catalogue: Catalogue,
    switches: Sequence[dict[str, Any]] = (),
    cpu: Cpu | None = None,
    drivers: Mapping[str, Mapping[str, Any]] | None = None,
    declared: str | None = None,
) -> Detected:
    """Return the hardware of a host with these chips, whether the host itself or its BMC lists them.

    Each of ``devices`` is a chip of the catalogue with ``model`` and ``memory_mib``, each of ``unknown`` has
    ``vendor``, None if unknown. ``cpu`` and ``drivers`` are None where the host was not asked. ``declared`` leads.
    """
    models = dict(Counter(device["model"] for device in devices).most_common())
    host = _host(_leading(models, catalogue, declared), devices, unknown, cpu)
    driver = (drivers or {}).get(host["vendor"], {})
    return Detected(
        **host,
        driver_version=driver.get("version"),
        mec_firmware=driver.get("mec_firmware"),
        partition=driver.get("partition"),
        mixed=len(models) + bool(unknown) > 1,
        models=models,
        devices=devices,
        switches=list(switches),
        unknown=unknown,
        cpu=cpu.as_dict() if cpu else {},
    )


def check_declared(declared: str, catalogue: Catalogue) -> None:
    """Raise AcceleratorError for a declared accelerator that the catalogue does not have."""
    if declared not in catalogue.models and declared != CPU:
        raise AcceleratorError(
            f"accelerator {declared!r} of the inventory is in no file of the catalogue; "
            f"{nearest(declared, [*catalogue.models, CPU])}"
        )


def disagreement(declared: str | None, declared_count: int | None, detected: Detected) -> str | None:
    """Return the sentence that names declared and detected hardware where they differ, None where they agree.

    None for ``declared`` or ``declared_count`` means that the inventory does not declare it.
    """
    counts = (None, detected.count, detected.count * CHIPS_OF_A_FUNCTION.get(detected.generation, 1))
    if declared in (None, detected.model) and declared_count in counts:
        return None
    wanted = (declared or detected.model) + ("" if declared_count is None else f" x {declared_count}")
    if declared == CPU:
        advice = "to leave these chips alone, list their ids under 'ignored' in a file of accelerator_catalog_path"
    else:
        advice = "a chip that is missing from the PCI tree is off, unseated or not passed through"
    return (
        f"declared {wanted}, found {_found(detected)}; correct accelerator and accelerator_count in the inventory, "
        f"or the host: {advice}"
    )


def partition_disagreement(declared: str | None, detected: Detected) -> str | None:
    """Return the sentence that names declared and detected modes of AMD's chips where they differ, None otherwise.

    ``declared`` is None where the inventory declares none: whole chips.
    """
    found = detected.partition
    if found is None or is_same(declared or WHOLE, found):
        return None
    said = f"accelerator_partition: declared {declared}" if declared else "accelerator_partition is not set"
    return (
        f"{said}, found {found}; set it to what the chips are in, or change the chips while nothing uses them: "
        "'amd-smi set --memory-partition NPS1', then 'amd-smi set --compute-partition SPX' for whole chips"
    )


def unusable(detected: Detected, catalogue: Catalogue) -> str | None:
    """Return the sentence on why vLLM cannot run on this hardware, None where it can."""
    if detected.unknown:
        return _unknown_sentence(detected.unknown, catalogue)
    if detected.unsupported:
        title = catalogue.models[detected.model].title
        return (
            f"nothing can be served on {title}: {detected.unsupported}; found {_found(detected)}. "
            "To leave these chips alone, list their ids under 'ignored' in a file of accelerator_catalog_path"
        )
    cpu = detected.cpu
    if detected.model == CPU and cpu["arch"] == "x86_64" and X86_NEEDS not in cpu["instruction_sets"]:
        return (
            f"found no accelerator, and the processor ({cpu['model']}) has no AVX2, which vLLM's CPU build needs; "
            "use another host, or set the CPU type of the virtual machine to 'host'"
        )
    return None


def rank(model: Model, count: int) -> tuple[bool, int, float, str]:
    """Return the place of a model among those of a host: supported first, then by number, memory of a chip, name."""
    return model.unsupported is not None, -count, -(model.memory_gib or 0), model.key


def _leading(models: Mapping[str, int], catalogue: Catalogue, declared: str | None) -> Model | None:
    """Return the model that names the host: the declared one, else the first by rank."""
    if not models:
        return None
    return catalogue.models[min(models, key=lambda key: (key != declared, rank(catalogue.models[key], models[key])))]


def _numbers(functions: Sequence[PciFunction], found: Detected, catalogue: Catalogue) -> dict[str, list[int]]:
    """Return Detected.numbers. Of other chips, ignored ones too, count those that the vendor's driver drives."""
    models = {device["address"]: device["model"] for device in found.devices}
    numbers = {}
    for key in found.models:
        stack, vendor = catalogue.models[key].stack, catalogue.models[key].vendor
        listed = [
            function.address
            for function in functions
            if models.get(function.address) == key or (not function.unbound and _is_chip(function, vendor, catalogue))
        ]
        # A domain can have five digits.
        listed.sort(key=lambda address: (len(address), address))
        if stack in NUMBERED and len(listed) > found.models[key]:
            numbers[key] = [number for number, address in enumerate(listed) if models.get(address) == key]
    return numbers


def _is_chip(function: PciFunction, vendor: str, catalogue: Catalogue) -> bool:
    """Return whether a function is a chip of this vendor, listed or not."""
    known = catalogue.pci_vendors.get(function.vendor_id)
    if known is None or known.vendor != vendor or function.virtual:
        return False
    return function.id in catalogue.chips or function.class_id in known.classes


def _host(
    model: Model | None,
    devices: Sequence[Mapping[str, Any]],
    unknown: Sequence[Mapping[str, Any]],
    cpu: Cpu | None,
) -> dict[str, Any]:
    """Return the fields of Detected that describe the host's accelerator as one."""
    nothing = {"compute_capability": None, "devices_per_card": 1, "unsupported": None}
    if model:
        own = [device for device in devices if device["model"] == model.key]
        sizes = [device["memory_mib"] for device in own if device["memory_mib"] is not None]
        return {
            "model": model.key,
            "stack": model.stack,
            "generation": model.generation,
            "vendor": model.vendor,
            "count": len(own),
            "memory_mib": min(sizes) if sizes else None,
            "compute_capability": model.compute_capability,
            "devices_per_card": model.devices_per_card,
            "unsupported": model.unsupported,
        }
    if unknown:
        names = {"model": UNKNOWN, "stack": UNKNOWN, "generation": UNKNOWN, "vendor": unknown[0]["vendor"] or UNKNOWN}
        return {**names, "count": len(unknown), "memory_mib": None, **nothing}
    names = {"model": CPU, "stack": CPU, "generation": CPU, "vendor": CPU}
    return {**names, "count": 1, "memory_mib": cpu.memory_mib if cpu else None, **nothing}


def _is_unknown(function: PciFunction, catalogue: Catalogue) -> bool:
    vendor = catalogue.pci_vendors.get(function.vendor_id)
    return vendor is not None and vendor.unknown_is_error and function.class_id in vendor.classes


def _place(function: PciFunction) -> dict[str, Any]:
    return {
        "address": function.address,
        "vendor_id": function.vendor_id,
        "device_id": function.device_id,
        "class": function.class_id,
        "numa_node": function.numa_node,
    }


def _device(function: PciFunction, chip: Chip) -> dict[str, Any]:
    # A chip that shares the host's memory has no number: its driver reports only a part of it.
    memory_mib = None if chip.memory_gib is None else function.memory_mib or int(chip.memory_gib * 1024)
    return {**_place(function), "model": chip.model, "form": chip.form, "memory_mib": memory_mib}


def _found(detected: Detected) -> str:
    """Return the hardware in words, with the address of each chip."""
    if detected.model == CPU:
        return f"no accelerator (processor: {detected.cpu['model']})"
    counts = [f"{key} x {count}" for key, count in detected.models.items()]
    if detected.unknown:
        counts.append(f"unknown x {len(detected.unknown)}")
    addresses = [device["address"] for device in [*detected.devices, *detected.unknown]]
    return f"{', '.join(counts)} at {', '.join(addresses)}"


def _unknown_sentence(unknown: Sequence[Mapping[str, Any]], catalogue: Catalogue) -> str:
    """Return which chips the catalogue lacks, and where to add them."""
    places: dict[str, list[str]] = {}
    for entry in unknown:
        pci_id = f"{entry['vendor_id']}:{entry['device_id']}"
        places.setdefault(f"{pci_id} (class {entry['class']})", []).append(entry["address"])
    chips = "; ".join(f"{chip} at {', '.join(addresses)}" for chip, addresses in places.items())
    vendors = [catalogue.pci_vendors[vendor_id] for vendor_id in sorted({entry["vendor_id"] for entry in unknown})]
    files = ", ".join(dict.fromkeys(vendor.file for vendor in vendors))
    names = ", ".join(dict.fromkeys(vendor.name for vendor in vendors))
    return (
        f"unknown accelerator of {names}: {chips} is not in {files}; add the id to a model there or in a file of your "
        "own in a directory of accelerator_catalog_path, or under 'ignored' if nothing is to be served on it"
    )
