# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the catalogue of accelerators: files on the controller, a site's own merged over the bundled ones."""

import functools
import re
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from ...module_utils.accelerator.partitions import PartitionError, count_mig, count_parts, mig_gib, mig_instances
from ...module_utils.accelerator.recognition import (
    CPU,
    UNKNOWN,
    AcceleratorError,
    Catalogue,
    Chip,
    ExpectedFigure,
    Model,
    PciVendor,
    check_declared,
)
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..common.checks import A_NAME, ABOVE_ZERO, ANY_TEXT, COUNT, MAPPING, NAME, Check, is_number, problem_of, text_check
from ..common.overlay import overlay
from ..common.places import CATALOG
from ..common.yaml import UnreadableError, read_yaml
from ..planning.hardware import SINGLE_MEMORY_GIB, Accelerator

BUNDLED = CATALOG / "accelerators"
# The largest hosts have 16 chips, or about sixty functions with partitioned chips. A larger number is a typing error.
MOST_CHIPS = 64

HEX4 = r"[0-9a-f]{4}"
PCI_ID = rf"{HEX4}:{HEX4}"


def _list_of(pattern: str, words: str) -> Check:
    good, _words = text_check(pattern, words)
    return lambda value: isinstance(value, list) and all(good(entry) for entry in value), f"a list of {words}"


def _is_size(value: Any) -> bool:
    return value is None or (is_number(value) and value > 0)


BOOLEAN: Check = (lambda value: isinstance(value, bool), "true or false")
SIZE: Check = (_is_size, "a number of GiB above 0, or null")
FORMATS: Check = (
    lambda value: isinstance(value, dict) and all(A_NAME[0](key) and ANY_TEXT[0](why) for key, why in value.items()),
    "a mapping of number formats, like mxfp4, to the reason why they cannot be served",
)
# What a chip needs of NVIDIA's driver.
_DRIVER_VALUES: dict[str, Callable[[Any], bool]] = {
    "first": lambda value: isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)+", value) is not None,
    "last_branch": lambda value: isinstance(value, int) and value > 0,
    "modules": ("open", "proprietary").__contains__,
    "fabric": ("nvlink5", "imex").__contains__,
}
DRIVER: Check = (
    lambda value: (
        isinstance(value, dict)
        and all(key in _DRIVER_VALUES and _DRIVER_VALUES[key](each) for key, each in value.items())
    ),
    "a mapping of first (a version in quotes), last_branch (a number), modules (open or proprietary), fabric (nvlink5 "
    "or imex)",
)
TITLES: Check = (
    lambda value: isinstance(value, dict) and all(ANY_TEXT[0](title) for title in value.values()),
    "a mapping of PCI ids to what they are",
)

FRACTION: Check = (
    lambda value: is_number(value) and 0 < value <= 1,
    "a fraction above 0, up to 1",
)

# How the host's devices reach a process: by the stack, unless the model has its own.
HOST_KEYS: dict[str, Check] = {
    "devices": _list_of(r".+", "device nodes or CDI names"),
    "mounts": _list_of(r"/.+", "absolute paths"),
    "groups": _list_of(r".+", "groups"),
    "visible_env": text_check(r"[A-Z][A-Z0-9_]*", "the name of an environment variable"),
}
FILE_KEYS: dict[str, Check] = {
    "vendor": A_NAME,
    "name": ANY_TEXT,
    "stack": A_NAME,
    "pci_vendors": MAPPING,
    "stacks": MAPPING,
    "switches": TITLES,
    "ignored": TITLES,
    "models": MAPPING,
}
PCI_VENDOR_KEYS: dict[str, Check] = {
    "classes": _list_of(HEX4, 'PCI classes in quotes, like "0302"'),
    "unknown_is_error": BOOLEAN,
}
MODEL_KEYS: dict[str, Check] = {
    "title": ANY_TEXT,
    "stack": A_NAME,
    "generation": A_NAME,
    "compute_capability": text_check(r"\d+\.\d", 'two numbers in quotes, like "9.0"'),
    "memory_gib": SIZE,
    "devices_per_card": COUNT,
    "compute_dies": COUNT,
    "memory_modes": _list_of("NPS[1248]", "modes of AMD's memory, like NPS1 and NPS4"),
    "mig_slices": COUNT,
    "host_chips": COUNT,
    "supported": BOOLEAN,
    "reason": ANY_TEXT,
    "lacks": FORMATS,
    "pci_ids": MAPPING,
    "expected": MAPPING,
    "driver": DRIVER,
    **HOST_KEYS,
}
CHIP_KEYS: dict[str, Check] = {"form": ANY_TEXT, "memory_gib": SIZE, "expected": MAPPING, "driver": DRIVER}
# What playbooks/accept.yml compares a chip with, by name: dense bf16 matrix products, copies in the chip's memory (read
# and written bytes counted), copies to another chip in one direction.
EXPECTED_KEYS: dict[str, Check] = dict.fromkeys(("bf16_tflops", "copy_tb_per_s", "peer_gb_per_s"), MAPPING)
MEASURED, DATASHEET = "measured", "datasheet"
FIGURE_KEYS: dict[str, Check] = {
    "value": ABOVE_ZERO,
    "acceptable": FRACTION,
    "status": (lambda value: value in (MEASURED, DATASHEET), f"{MEASURED} or {DATASHEET}"),
    "source": ANY_TEXT,
}

REQUIRED = {
    "file": ("name", "stack", "pci_vendors", "stacks", "models"),
    "pci_vendor": ("classes", "unknown_is_error"),
    "model": ("title", "generation", "memory_gib", "pci_ids"),
    "figure": ("value", "acceptable", "status", "source"),
}


def load_catalogue(directories: Sequence[str] = ()) -> Catalogue:
    """Return the bundled catalogue with the files of ``directories`` merged over it; the first directory wins.

    Read once per process. Raises AcceleratorError, which names the file and the key.
    """
    return _load(tuple(str(directory) for directory in directories))


@functools.lru_cache(maxsize=None)
def _load(directories: tuple[str, ...]) -> Catalogue:
    vendors: dict[str, dict[str, Any]] = {}
    origins: dict[tuple[str, ...], Path] = {}
    for directory in (BUNDLED, *(Path(name) for name in reversed(directories))):
        for path in _files(directory):
            data = _read(path)
            vendor = data["vendor"]
            vendors[vendor] = overlay(vendors.get(vendor, {}), data)
            origins.update({(vendor,): path, **{(vendor, key): path for key in data.get("models") or {}}})
    return _Builder(origins).build(vendors)


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise AcceleratorError(f"accelerator_catalog_path: {directory} is not a directory on the controller")
    files = sorted(path for path in directory.iterdir() if path.suffix in (".yml", ".yaml"))
    if not files:
        raise AcceleratorError(f"accelerator_catalog_path: {directory} has no *.yml file")
    return files


def _read(path: Path) -> dict[str, Any]:
    """Return one file, every key of it checked."""
    try:
        data = read_yaml(path)
    except UnreadableError as exc:
        raise AcceleratorError(str(exc)) from exc
    _check(path, "", data, FILE_KEYS)
    if "vendor" not in data:
        raise AcceleratorError(f"{path}: 'vendor' is missing")
    for vendor_id, entry in _entries(path, data, "pci_vendors", HEX4):
        _check(path, f"pci_vendors.{vendor_id}", entry, PCI_VENDOR_KEYS)
    for key, entry in _entries(path, data, "stacks", NAME):
        _check(path, f"stacks.{key}", entry, HOST_KEYS)
    for section in ("switches", "ignored"):
        list(_entries(path, data, section, PCI_ID))
    for key, entry in _entries(path, data, "models", NAME):
        if key in (CPU, UNKNOWN):
            raise AcceleratorError(f"{path}: models.{key}: this name means a host without a known accelerator")
        _check(path, f"models.{key}", entry, MODEL_KEYS)
        _check_expected(path, f"models.{key}", entry)
        for pci_id, chip in _entries(path, entry, "pci_ids", PCI_ID, f"models.{key}."):
            _check(path, f"models.{key}.pci_ids.{pci_id}", chip, CHIP_KEYS)
            _check_expected(path, f"models.{key}.pci_ids.{pci_id}", chip)
    return dict(data)


def _check_expected(path: Path, where: str, entry: Mapping[str, Any]) -> None:
    """Check the figures of a model or of a PCI id."""
    figures = entry.get("expected", {})
    _check(path, f"{where}.expected", figures, EXPECTED_KEYS)
    for name, figure in figures.items():
        _check(path, f"{where}.expected.{name}", figure, FIGURE_KEYS)


def _entries(
    path: Path, data: Mapping[str, Any], section: str, pattern: str, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a section, its keys checked against a pattern."""
    for key, entry in data.get(section, {}).items():
        if not isinstance(key, str) or not re.fullmatch(pattern, key):
            form = {NAME: "a name in lower case", HEX4: "four hex digits", PCI_ID: "vendor:device"}[pattern]
            raise AcceleratorError(
                f"{path}: {prefix}{section}: found the key {show_value(key)}, expected {form}, lower case and in quotes"
            )
        yield key, entry


def _check(path: Path, where: str, value: Any, known: Mapping[str, Check]) -> None:
    """Raise AcceleratorError for an unknown key or an invalid value in a mapping."""
    problem = problem_of(value, known, where)
    if problem:
        raise AcceleratorError(f"{path}: {problem}")


class _Builder:
    """Makes the catalogue from the merged files; ``origins`` has the last file that named a vendor or a model."""

    def __init__(self, origins: Mapping[tuple[str, ...], Path]) -> None:
        self.origins = origins
        self.models: dict[str, Model] = {}
        self.chips: dict[str, Chip] = {}
        self.pci_vendors: dict[str, PciVendor] = {}
        self.titles: dict[str, dict[str, str]] = {"switches": {}, "ignored": {}}

    def build(self, vendors: Mapping[str, Mapping[str, Any]]) -> Catalogue:
        """Return the catalogue. Raises AcceleratorError for missing and duplicate entries."""
        for vendor, data in vendors.items():
            self._require(self.origins[(vendor,)], "", data, "file")
            self._add_pci_vendors(vendor, data)
            for section, titles in self.titles.items():
                titles.update(data.get(section, {}))
            for key, entry in data["models"].items():
                self._add_model(vendor, data, key, entry)
        return Catalogue(self.models, self.chips, self.titles["switches"], self.titles["ignored"], self.pci_vendors)

    def _require(self, path: Path, where: str, data: Mapping[str, Any], kind: str) -> None:
        for key in REQUIRED[kind]:
            if key not in data:
                raise AcceleratorError(f"{path}: '{where}{key}' is missing")

    def _add_pci_vendors(self, vendor: str, data: Mapping[str, Any]) -> None:
        path = self.origins[(vendor,)]
        for vendor_id, entry in data["pci_vendors"].items():
            self._require(path, f"pci_vendors.{vendor_id}.", entry, "pci_vendor")
            if vendor_id in self.pci_vendors:
                other = self.pci_vendors[vendor_id].file
                raise AcceleratorError(f"{path}: pci_vendors.{vendor_id} is in {other} too")
            self.pci_vendors[vendor_id] = PciVendor(
                vendor=vendor,
                name=data["name"],
                classes=tuple(entry["classes"]),
                unknown_is_error=entry["unknown_is_error"],
                file=str(path),
            )

    def _add_model(self, vendor: str, data: Mapping[str, Any], key: str, entry: Mapping[str, Any]) -> None:
        path = self.origins[(vendor, key)]
        where = f"models.{key}."
        self._require(path, where, entry, "model")
        if key in self.models:
            raise AcceleratorError(f"{path}: models.{key} is a model of {self.models[key].vendor} too")
        supported = entry.get("supported", True)
        if not supported and "reason" not in entry:
            raise AcceleratorError(f"{path}: '{where}reason' is missing; it says why supported is false")
        stack = entry.get("stack", data["stack"])
        if stack not in data["stacks"]:
            raise AcceleratorError(
                f"{path}: {where}stack: {stack!r} is not in stacks; {nearest(stack, data['stacks'])}"
            )
        host = {**data["stacks"][stack], **entry}
        self.models[key] = Model(
            key=key,
            title=entry["title"],
            vendor=vendor,
            stack=stack,
            generation=entry["generation"],
            compute_capability=entry.get("compute_capability"),
            devices_per_card=entry.get("devices_per_card", 1),
            unsupported=None if supported else entry["reason"],
            devices=tuple(host.get("devices", ())),
            mounts=tuple(host.get("mounts", ())),
            groups=tuple(host.get("groups", ())),
            visible_env=host.get("visible_env"),
            memory_gib=entry["memory_gib"],
            lacks=tuple(sorted(entry.get("lacks", {}).items())),
            expected=self._figures(path, where, entry),
            driver=entry.get("driver", {}),
            compute_dies=entry.get("compute_dies"),
            memory_modes=tuple(entry.get("memory_modes", ())),
            mig_slices=entry.get("mig_slices"),
            host_chips=entry.get("host_chips"),
        )
        for pci_id, chip in entry["pci_ids"].items():
            memory_gib = chip.get("memory_gib", entry["memory_gib"])
            own = self._figures(path, f"{where}pci_ids.{pci_id}.", chip)
            expected = {**self.models[key].expected, **own}
            driver = {**entry.get("driver", {}), **chip.get("driver", {})}
            self._add_chip(path, data, key, pci_id, Chip(key, chip.get("form"), memory_gib, expected, driver))

    def _figures(self, path: Path, where: str, entry: Mapping[str, Any]) -> dict[str, ExpectedFigure]:
        figures = entry.get("expected", {})
        for name, figure in figures.items():
            self._require(path, f"{where}expected.{name}.", figure, "figure")
        return {name: ExpectedFigure(**figure) for name, figure in figures.items()}

    def _add_chip(self, path: Path, data: Mapping[str, Any], key: str, pci_id: str, chip: Chip) -> None:
        where = f"models.{key}.pci_ids.{pci_id}"
        if pci_id in self.chips:
            raise AcceleratorError(f"{path}: {where} is an id of models.{self.chips[pci_id].model} too")
        if pci_id[:4] not in data["pci_vendors"]:
            raise AcceleratorError(f"{path}: {where}: {pci_id[:4]} is not in pci_vendors")
        self.chips[pci_id] = chip


def declared_accelerator(
    catalogue: Catalogue,
    model: str,
    count: int,
    memory_gib: float | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Accelerator:
    """Return the accelerators that an inventory declares, with everything that the catalogue knows about them.

    ``memory_gib`` is the memory of one chip (cpu: of the host), where that is known. ``facts`` may hold driver_version,
    cuda_version, mec_firmware, partition, pythons, rdma and cpu (of which ``memory_mib`` counts). ``count`` and
    ``memory_gib`` are those of whole chips, also where ``partition`` divides them. Raises AcceleratorError for a model
    that is in no file or that vLLM cannot serve on, and for a partition that the chip cannot have.
    """
    check_declared(model, catalogue)
    known = {key: value for key, value in (facts or {}).items() if value is not None}
    if "pythons" in known:
        known["pythons"] = tuple(known["pythons"])
    cpu = known.pop("cpu", None)
    if isinstance(cpu, Mapping) and isinstance(cpu.get("memory_mib"), int):
        known["host_memory_mib"] = cpu["memory_mib"]
    if "rdma" in known:
        near = [(each["name"], each["address"], each["near"]) for each in known["rdma"]]
        known["rdma"] = tuple((name, address, tuple(sorted(chips.items()))) for name, address, chips in near)
    if model == CPU:
        memory_mib = None if memory_gib is None else int(memory_gib * 1024)
        return Accelerator(CPU, CPU, CPU, CPU, count, memory_mib, **known)
    entry = catalogue.models[model]
    if entry.unsupported:
        raise AcceleratorError(f"nothing can be served on {entry.title}: {entry.unsupported}")
    partition = known.get("partition")
    single = SINGLE_MEMORY_GIB.get(model) if count == 1 else None
    memory = (single or entry.memory_gib) if memory_gib is None else memory_gib
    parts = parts_of(entry, partition, memory)
    if memory is not None:
        memory = mig_gib(str(partition), memory) if mig_instances(partition) else memory / parts
    return Accelerator(
        model=entry.key,
        stack=entry.stack,
        generation=entry.generation,
        vendor=entry.vendor,
        count=count * parts,
        memory_mib=None if memory is None else int(memory * 1024),
        devices_per_card=entry.devices_per_card * parts,
        devices=entry.devices,
        mounts=entry.mounts,
        groups=entry.groups,
        visible_env=entry.visible_env,
        compute_capability=entry.compute_capability,
        lacks=entry.lacks,
        **known,
    )


def count_problem(catalogue: Catalogue, model: Any, count: int) -> str:
    """Return why one host cannot have as many chips as the inventory declares, "" where it can."""
    entry = catalogue.models.get(model)
    most = entry.host_chips if entry and entry.host_chips else MOST_CHIPS
    if 1 <= count <= most:
        return ""
    if not entry or not entry.host_chips:
        return f"found {count}, expected a whole number from 1 to {MOST_CHIPS}"
    rack = "; an NVL72 rack is 18 such hosts" if entry.driver.get("fabric") == "imex" else ""
    expected = "1" if most == 1 else f"1 to {most}"
    return (
        f"found {count}, expected {expected}, the chips of one host with {entry.title}{rack}; declare each host with "
        "its own chips (docs/operate/several-hosts.md)"
    )


def parts_of(entry: Model, partition: Any, memory_gib: float | None = None) -> int:
    """Return the devices that programs see of one chip that is divided so (CPX/NPS4, 7x1g.10gb).

    ``memory_gib`` is the chip's own memory where that is known. Raises AcceleratorError.
    """
    try:
        if partition and entry.stack == "cuda":
            return count_mig(str(partition), entry.mig_slices, memory_gib or entry.memory_gib or 0)
        return count_parts(str(partition), entry.compute_dies, entry.memory_modes) if partition else 1
    except PartitionError as exc:
        raise AcceleratorError(f"accelerator_partition: {entry.key}: {exc}") from exc


def servable_chips(catalogue: Catalogue, count: int = 1) -> list[Accelerator]:
    """Return so many chips of each model that vLLM can serve on, where a host can have them, without the CPU."""
    return [
        declared_accelerator(catalogue, key, count)
        for key, model in catalogue.models.items()
        if not model.unsupported and not count_problem(catalogue, key, count)
    ]
