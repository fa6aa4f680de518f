# SPDX-License-Identifier: GPL-3.0-or-later
"""Read single documents of a Redfish service: links, PCI ids and classes, names, states.

A missing value is None or empty; a malformed one raises RedfishError, which names the document and the key.
"""

import re
from typing import Any, Dict, Iterable

from .chips import MAX_NAME, RedfishError

MAX_MEMBERS = 1000
MAX_LEVELS = 3
MAX_PATH = 300

NOT_THERE = ("Absent", "Disabled")

# PCI classes that a PCIeFunction may give as words.
CLASS_WORDS = {
    "DisplayController": "03",
    "Processor": "0b",
    "ProcessingAccelerators": "12",
    "Coprocessor": "40",
    "UnclassifiedDevice": "",
    "UnassignedClass": "",
    "Other": "",
}

# The keys of a document that are kept.
_KEYS = """
    @odata.id Members Members@odata.nextLink Systems Chassis Processors PCIeDevices PCIeFunctions Links Status Id Name
    Manufacturer Model PartNumber ProcessorType VendorId DeviceId ClassCode DeviceClass FunctionType
    ProtocolFeaturesSupported
"""
KEYS = tuple(_KEYS.split())

Document = Dict[str, Any]


def levels_of(root: Document) -> int:
    """Return how many levels of ``$expand`` (documents below a document) the service supports."""
    features = root.get("ProtocolFeaturesSupported")
    expand = features.get("ExpandQuery") if isinstance(features, dict) else None
    if not isinstance(expand, dict) or expand.get("NoLinks") is not True or expand.get("Levels") is not True:
        return 0
    most = expand.get("MaxLevels", 1)
    return min(most, MAX_LEVELS) if isinstance(most, int) and not isinstance(most, bool) and most > 0 else 1


def embedded(document: Document) -> list[Document]:
    """Return the documents embedded in an expanded one, from the places that the survey reads."""
    found: list[Document] = []
    members = document.get("Members")
    places = members if isinstance(members, list) else []
    for place in [*places[: MAX_MEMBERS + 1], *(document.get(key) for key in ("PCIeDevices", "PCIeFunctions"))]:
        if isinstance(place, dict) and (len(place) > 2 or "Members" in place):
            found.append(place)
    return found


def link_to(document: Document, key: str) -> str | None:
    """Return the path of ``{key: {"@odata.id": path}}``, None where there is none."""
    value = document.get(key)
    if value is None or isinstance(value, list):
        return None  # a system lists its PCI devices; an enclosure links to a collection
    if not isinstance(value, dict):
        raise RedfishError(f"{document['@odata.id']}: {key} is not a link")
    return path_of(value["@odata.id"], key) if value.get("@odata.id") is not None else None


def links_of_all(documents: Iterable[Document], key: str) -> list[str]:
    return [path for path in (link_to(document, key) for document in documents) if path]


def links_to(document: Document, key: str, place: str) -> list[str]:
    """Return the paths of ``{key: [{"@odata.id": path}]}``."""
    value = document.get(key)
    if value is None or (isinstance(value, dict) and key != "Members"):
        return []
    if not isinstance(value, list):
        raise RedfishError(f"{place}: {key} is not a list")
    if len(value) > MAX_MEMBERS:
        raise RedfishError(f"{place} lists more than {MAX_MEMBERS} {key}")
    if not all(isinstance(item, dict) for item in value):
        raise RedfishError(f"{place}: {key} lists something that is not a link")
    return [path_of(item.get("@odata.id"), place) for item in value]


def path_of(value: Any, place: str) -> str:
    """Return a link's path. Raises RedfishError for a link to another server."""
    text = value.split("#")[0] if isinstance(value, str) else ""
    if not re.fullmatch(r"/redfish/[\x21-\x7e]*", text) or len(text) > MAX_PATH or ".." in text:
        raise RedfishError(f"{place} has a link that is not a path of the service")
    return text


def text_of(document: Document, key: str) -> str | None:
    value = document.get(key)
    return value.strip() if isinstance(value, str) else None


def hex4(document: Document, key: str) -> str | None:
    """Return ``10de`` for "0x10DE"; None for "N/A" and the like."""
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise RedfishError(f"{document['@odata.id']}: {key} is not a text")
    match = re.fullmatch(r"(?:0x)?0*([0-9a-f]{1,4})h?", (value or "").strip().lower())
    return match.group(1).rjust(4, "0") if match and int(match.group(1), 16) not in (0, 0xFFFF) else None


def base_class(document: Document) -> str:
    """Return the base class, from the code or the word; empty where both are missing."""
    code = (text_of(document, "ClassCode") or "").lower()
    digits = code[2:] if re.fullmatch(r"0x[0-9a-f]{6}", code) else "000000"
    if digits[:2] != "00":
        return digits[:2]
    if digits[2:] != "0000":
        return digits[4:]  # some BMCs write it in reverse order
    word = text_of(document, "DeviceClass")
    return CLASS_WORDS.get(word, "ff") if word else ""


def is_absent(document: Document) -> bool:
    status = document.get("Status")
    return isinstance(status, dict) and status.get("State") in NOT_THERE


def is_there(document: Document) -> bool:
    return len(document) > 1  # more than its own path


def name_of(processor: Document) -> str:
    """Return the name of a processor: its model, or its name where the model is a part number."""
    model, part = text_of(processor, "Model") or "", text_of(processor, "PartNumber")
    speaks = model and model != part and re.search(r"[A-Za-z]", model)
    name = model if speaks else text_of(processor, "Name") or model or text_of(processor, "Id") or "processor"
    maker = text_of(processor, "Manufacturer") or ""
    known = not maker or maker.split()[0].lower() in name.lower()
    return printable(name if known else f"{maker} {name}")


def printable(text: str) -> str:
    """Return a text of a BMC in a form that is safe to show and store: bounded, without control characters.

    Nor are there braces, because Ansible evaluates templates in an inventory, and the record of provision.yml is one.
    """
    kept = (each if each.isprintable() and each not in "{}" else "?" for each in text.strip()[:MAX_NAME])
    return "".join(kept)
