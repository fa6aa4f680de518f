# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the chips of a Redfish service from few documents, which the caller fetches.

survey() is a generator: it yields the documents that it needs next and receives their content. Processors come first:
they are few, and link to their PCI functions. PCI devices are read for systems whose processors have no such links;
the enclosures (chassis) come last, where a baseboard may list its chips alone. Seen in recordings: iDRAC lists the
same devices below Systems and below Chassis; iLO and iDRAC write the base class last (0x000003); XCC names no GPUs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Generator, Iterable, List, Mapping, Optional, TypeVar

from .chips import ACCELERATOR_CLASSES, Chips, RedfishError
from .documents import (
    KEYS,
    MAX_LEVELS,
    MAX_MEMBERS,
    Document,
    base_class,
    embedded,
    hex4,
    is_absent,
    is_there,
    levels_of,
    link_to,
    links_of_all,
    links_to,
    name_of,
    path_of,
    text_of,
)

ROOT = "/redfish/v1/"

# Correct services stay far below: a DGX H100 lists 133 PCI devices.
MAX_DOCUMENTS = 500

PROCESSOR_TYPES = ("GPU", "Accelerator", "NPU")

# Makers of network, storage or console devices, never accelerators: their functions are not read.
OTHER_MAKERS = re.compile(
    r"\b(mellanox|broadcom|emulex|qlogic|marvell|kioxia|samsung|micron|hynix|solidigm|western digital|sandisk|seagate"
    r"|matrox|aspeed|microchip|lsi|avago|realtek|renesas|asmedia|texas instruments|toshiba|adaptec)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Wanted:
    """A document to fetch: its path, and the levels of ``$expand`` that the service supports (0: none)."""

    path: str
    levels: int = 0


# Yields the documents that it needs; receives their content by path (None or absent: no such document).
Answers = Mapping[str, Optional[Any]]
T = TypeVar("T")
Steps = Generator[List[Wanted], Answers, T]


def survey() -> Steps[Chips]:
    """Return the chips of a service, requesting one list of documents after the other.

    Raises RedfishError for anything that is not a Redfish service, and for endless lists.
    """
    reader = _Reader()
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


class _Reader:
    """The documents received so far; an embedded document needs no request of its own."""

    def __init__(self) -> None:
        self.known: dict[str, Document] = {}
        self.levels = 0
        self.asked = 0
        self.devices = 0  # PCI devices or functions found so far

    def get(self, paths: Iterable[str], levels: int = 0) -> Steps[list[Document]]:
        """Return the documents of ``paths``; a document that the service lacks is empty."""
        paths = list(paths)
        missing = [path for path in dict.fromkeys(paths) if _key(path) not in self.known]
        self.asked += len(missing)
        if self.asked > MAX_DOCUMENTS:
            raise RedfishError(f"its lists lead to more than {MAX_DOCUMENTS} documents")
        if missing:
            answers = yield [Wanted(path, min(levels, self.levels)) for path in missing]
            for path in missing:
                self._keep(path, answers.get(path), MAX_LEVELS + 1)
        return [self.known[_key(path)] for path in paths]

    def members(self, collections: Iterable[str], levels: int = 1) -> Steps[list[Document]]:
        """Return the documents that collections list, over all pages; all collections are read at once."""
        links: list[str] = []
        pages = list(dict.fromkeys(collections))
        turned: set[str] = set()
        while pages:
            turned.update(pages)
            following = []
            for path, page in zip(pages, (yield from self.get(pages, levels))):
                links += links_to(page, "Members", path)
                more = page.get("Members@odata.nextLink")
                following += [path_of(more, path)] if more else []
            if len(links) > MAX_MEMBERS:
                raise RedfishError(f"{pages[0]} and others list more than {MAX_MEMBERS} members")
            pages = [path for path in dict.fromkeys(following) if path not in turned]
        return (yield from self.get(dict.fromkeys(links)))

    def _keep(self, path: str, document: Any, depth: int) -> None:
        if document is None:
            document = {}
        if not isinstance(document, dict):
            raise RedfishError(f"{path} is not a JSON object")
        self.known[_key(path)] = kept = {key: document[key] for key in KEYS if key in document}
        kept["@odata.id"] = path
        if not depth:
            return
        for child in embedded(kept):
            place = child.get("@odata.id")
            if isinstance(place, str) and len(self.known) <= MAX_MEMBERS * 5:
                self._keep(path_of(place, path), child, depth - 1)


def _processors(reader: _Reader, system: Document) -> Steps[tuple[list[_Function], list[str]]]:
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


def _devices_of_system(reader: _Reader, system: Document) -> Steps[list[_Function]]:
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


def _devices_of_chassis(reader: _Reader, root: Document) -> Steps[list[_Function]]:
    return (yield from _devices_of_enclosures(reader, (yield from reader.members(links_of_all([root], "Chassis")))))


def _devices_of_enclosures(reader: _Reader, enclosures: Iterable[Document]) -> Steps[list[_Function]]:
    devices = yield from reader.members(links_of_all(enclosures, "PCIeDevices"), MAX_LEVELS)
    return (yield from _functions_of(reader, devices))


def _functions_of(reader: _Reader, devices: Iterable[Document]) -> Steps[list[_Function]]:
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


def _key(path: str) -> str:
    return path.rstrip("/")
