# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the chips of a Redfish service from few documents, which the caller fetches.

survey() is a generator: it yields the documents that it needs next and receives their content. Processors come first:
they are few, and link to their PCI functions. PCI devices are read for systems whose processors have no such links;
the enclosures (chassis) come last, where a baseboard may list its chips alone. Seen in recordings: iDRAC lists the
same devices below Systems and below Chassis; iLO and iDRAC write the base class last (0x000003); XCC names no GPUs.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from .chips import ACCELERATOR_CLASSES, Chips, RedfishError
from .documents import (
    MAX_LEVELS,
    Document,
    base_class,
    hex4,
    is_absent,
    is_there,
    levels_of,
    link_to,
    links_of_all,
    links_to,
    name_of,
    text_of,
)
from .reader import ROOT, Reader, Steps

PROCESSOR_TYPES = ("GPU", "Accelerator", "NPU")

# Makers of network, storage or console devices, never accelerators: their functions are not read.
OTHER_MAKERS = re.compile(
    r"\b(mellanox|broadcom|emulex|qlogic|marvell|kioxia|samsung|micron|hynix|solidigm|western digital|sandisk|seagate"
    r"|matrox|aspeed|microchip|lsi|avago|realtek|renesas|asmedia|texas instruments|toshiba|adaptec)\b",
    re.IGNORECASE,
)


def survey() -> Steps[Chips]:
    """Return the chips of a service, requesting one list of documents after the other.

    Raises RedfishError for anything that is not a Redfish service, and for endless lists.
    """
    reader = Reader()
    (root,) = yield from reader.get([ROOT])
    if not link_to(root, "Systems") and not link_to(root, "Chassis"):
        raise RedfishError(f"no Redfish: {ROOT} names neither Systems nor Chassis")
    reader.levels = levels_of(root)
    systems = list(filter(is_there, (yield from reader.members(links_of_all([root], "Systems")))))
    if not all(text_of(system, "Id") for system in systems):
        raise RedfishError(f"{link_to(root, 'Systems')} lists an entry that is not a system: it has no Id")
    processors = yield from reader.members(links_of_all(systems, "Processors"))
    from_processors: list[_Function] = []
    names: Counter[str] = Counter()
    silent = []
    for system in systems:
        functions, unlinked = yield from _processors(reader, system)
        from_processors += functions
        names.update(unlinked)
        if unlinked or not functions:
            silent.append(system)
    listed = []
    for system in silent:
        listed += yield from _devices_of_system(reader, system)
    if not from_processors and not names and not any(_is_candidate(function) for function in listed):
        listed += yield from _devices_of_chassis(reader, root)
        if not reader.devices:
            # An old BMC, or a host that was never started: "none listed" must not become "no chips".
            shown = "processors but no" if processors else "neither processors nor"
            raise RedfishError(f"shows {shown} PCI devices: it cannot tell what is in the host")
    return _chips(from_processors, names, listed)


@dataclass(frozen=True)
class _Function:
    """A PCI function: ``place`` is its path, ``base`` its base class, empty where the service gives none."""

    place: str
    id: str
    base: str


def _processors(reader: Reader, system: Document) -> Steps[tuple[list[_Function], list[str]]]:
    """Return the PCI functions of a system's accelerators, and the names of processors without links to functions."""
    linked: list[tuple[Any, str]] = []
    unlinked: list[str] = []
    for processor in (yield from reader.members(links_of_all([system], "Processors"))):
        if processor.get("ProcessorType") not in PROCESSOR_TYPES or is_absent(processor):
            continue
        links = processor.get("Links")
        functions = links_to(links, "PCIeFunctions", processor["@odata.id"]) if isinstance(links, dict) else []
        model = text_of(processor, "Model")
        kind = (text_of(processor, "Manufacturer"), model, text_of(processor, "PartNumber")) if model else len(linked)
        if functions:
            linked.append((kind, functions[0]))
        else:
            unlinked.append(name_of(processor))
    # One function stands for all processors of the same make, model and part: eight GPUs, one request.
    samples = dict(reversed(linked))
    documents = yield from reader.get(samples.values())
    ids = {kind: _function(document) for kind, document in zip(samples, documents)}
    from_processors: list[_Function] = []
    for kind, place in linked:
        function = ids[kind]
        if function:
            from_processors.append(_Function(place, function.id, function.base))
        else:
            unlinked.append(_kind_name(kind))
    return from_processors, unlinked


def _devices_of_system(reader: Reader, system: Document) -> Steps[list[_Function]]:
    """Return the PCI functions that a system or its enclosures list."""
    devices = links_to(system, "PCIeDevices", system["@odata.id"])
    functions = links_to(system, "PCIeFunctions", system["@odata.id"])
    if not devices and not functions:
        links = system.get("Links")
        chassis = links_to(links, "Chassis", system["@odata.id"]) if isinstance(links, dict) else []
        return (yield from _devices_of_enclosures(reader, (yield from reader.get(chassis))))
    parents = {path.rsplit("/", 1)[0] for path in devices}
    if reader.levels >= MAX_LEVELS and len(devices) > 2 and len(parents) == 1:
        # One request for the whole collection with its embedded documents; only links that match are read.
        yield from reader.get(parents, MAX_LEVELS)
    elif functions:
        documents = yield from reader.get(functions)
        reader.devices += sum(map(is_there, documents))
        return _read_functions(documents)
    return (yield from _functions_of(reader, (yield from reader.get(devices))))


def _devices_of_chassis(reader: Reader, root: Document) -> Steps[list[_Function]]:
    return (yield from _devices_of_enclosures(reader, (yield from reader.members(links_of_all([root], "Chassis")))))


def _devices_of_enclosures(reader: Reader, enclosures: Iterable[Document]) -> Steps[list[_Function]]:
    devices = yield from reader.members(links_of_all(enclosures, "PCIeDevices"), MAX_LEVELS)
    return (yield from _functions_of(reader, devices))


def _functions_of(reader: Reader, devices: Iterable[Document]) -> Steps[list[_Function]]:
    """Return the functions of the devices that may be accelerators."""
    places: list[str] = []
    collections: list[str] = []
    for device in devices:
        reader.devices += is_there(device)
        if is_absent(device) or OTHER_MAKERS.search(text_of(device, "Manufacturer") or ""):
            continue
        links = device.get("Links")
        listed = links_to(links, "PCIeFunctions", device["@odata.id"]) if isinstance(links, dict) else []
        collection = None if listed else link_to(device, "PCIeFunctions")
        places += listed
        collections += [collection] if collection else []
    documents = yield from reader.get(dict.fromkeys(places))
    documents += yield from reader.members(collections)
    return _read_functions(documents)


def _read_functions(documents: Iterable[Document]) -> list[_Function]:
    functions = (_function(document) for document in documents)
    return [function for function in functions if function]


def _function(document: Document) -> _Function | None:
    """Return the PCI function of a document; None for a virtual or absent function, or one without ids."""
    vendor, device = hex4(document, "VendorId"), hex4(document, "DeviceId")
    if not vendor or not device or is_absent(document) or document.get("FunctionType") == "Virtual":
        return None
    return _Function(document["@odata.id"], f"{vendor}:{device}", base_class(document))


def _is_candidate(function: _Function) -> bool:
    return not function.base or function.base in ACCELERATOR_CLASSES


def _chips(from_processors: list[_Function], names: Mapping[str, int], listed: list[_Function]) -> Chips:
    """Return both lists as one: a chip that processors and PCI devices list counts once."""
    processor_ids = Counter({function.place: function.id for function in from_processors}.values())
    candidates = [function for function in listed if _is_candidate(function)]
    device_ids = Counter({function.place: function.id for function in candidates}.values())
    classes = {function.id: function.base for function in candidates if function.id not in processor_ids}
    return Chips(ids=dict(processor_ids | device_ids), names=dict(names), classes=classes)


def _kind_name(kind: Any) -> str:
    if not isinstance(kind, tuple):
        return "processor without a name"
    maker, model, part = kind
    return name_of({"Manufacturer": maker, "Model": model, "PartNumber": part, "Name": model})
