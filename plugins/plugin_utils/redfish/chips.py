# SPDX-License-Identifier: GPL-3.0-or-later
"""The chips of a host as its BMC lists them, and their meaning by the catalogue.

A BMC lists a chip as a processor with a name, as a PCI function with ids, or as both, and not every BMC links the two.
survey.py reads the documents; this module combines the two lists into one count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping

from ...module_utils.accelerator.recognition import Catalogue, Chip, PciVendor

# The PCI base classes of accelerators: display controller, processor, processing accelerator, coprocessor.
ACCELERATOR_CLASSES = ("03", "0b", "12", "40")

# Words of a name that stand for a maker or a product line, not a model: "AMD Instinct MI300X OAM" is an mi300x.
_BRANDS = """
    nvidia amd advanced micro devices inc intel r corporation corp huawei technologies co ltd instinct radeon geforce
    tesla quadro data center gpu accelerator and
"""
BRANDS = frozenset(_BRANDS.split())

# The maker by a word of the name.
MAKERS = {
    "nvidia": "nvidia",
    "amd": "amd",
    "instinct": "amd",
    "radeon": "amd",
    "huawei": "ascend",
    "ascend": "ascend",
    "atlas": "ascend",
    "intel": "intel",
    "habana": "intel",
    "gaudi": "intel",
}

# Huawei's names of dies include their grade: 910B1 to 910B4 are A2, Ascend910_93xx and 910C are A3.
SPELLINGS = (
    (re.compile(r"\b(?:ascend[ _-]?)?910_?b\d?\b"), "ascend_a2"),
    (re.compile(r"\b(?:ascend[ _-]?)?910(?:_?c|[ _-]93\d\d)\b"), "ascend_a3"),
    (re.compile(r"\b(?:ascend[ _-]?)?310p\d?\b"), "ascend_310p"),
)

MAX_NAME = 120

# The catalogue's description of an id ends like this where only virtual functions have the id.
VIRTUAL = "virtual function"


class RedfishError(ValueError):
    """A BMC gave no usable answer; the message is one sentence for the user, without secrets."""


@dataclass(frozen=True)
class Chips:
    """The chips that a BMC lists.

    ``ids`` counts PCI functions by ``vendor:device``: all that are or may be accelerators (including a server's display
    chip, which only the catalogue can distinguish). ``names`` counts processors without known ids, by the BMC's name.
    ``classes`` holds the PCI base class (two hex digits, empty where the BMC gives none) of the ids that no processor
    identifies as an accelerator.
    """

    ids: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the chips as plain data, JSON-serialisable, in a stable order."""
        return {
            "ids": dict(sorted(self.ids.items())),
            "names": dict(sorted(self.names.items())),
            "classes": dict(sorted(self.classes.items())),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Chips:
        """Return the chips from the result of as_dict(). Raises RedfishError for anything else."""
        if not isinstance(data, Mapping) or not set(data) <= {"ids", "names", "classes"}:
            raise RedfishError("stored chips of a BMC are not a mapping of 'ids', 'names' and 'classes'")
        for key in ("ids", "names"):
            _check_pairs(data.get(key, {}), key, _is_number, "a positive number")
        _check_pairs(data.get("classes", {}), "classes", lambda value: isinstance(value, str), "a text")
        return cls(dict(data.get("ids", {})), dict(data.get("names", {})), dict(data.get("classes", {})))


def found(chips: Chips, catalogue: Catalogue) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the number of devices by model, and the unknown chips of makers that the catalogue knows.

    An unknown chip is ``{"id": "10de:ffff", "vendor": "nvidia", "count": 8}`` or ``{"name": ..., "vendor": ...,
    "count": ...}``; ``vendor`` is None where the name does not show it. NVSwitches, display chips of a BMC, NICs and
    the catalogue's 'ignored' ids are in neither result.
    """
    by_id, unknown = _from_ids(chips, catalogue)
    seen = _per_vendor(by_id, unknown, catalogue)
    by_name: dict[str, int] = {}
    nameless: list[dict[str, Any]] = []
    for name, count in sorted(chips.names.items()):
        model = model_of(name, catalogue)
        if model is None:
            nameless.append({"name": name, "vendor": _maker(name), "count": count})
        else:
            by_name[model] = by_name.get(model, 0) + count
    models = dict(by_id)
    for vendor, number in _per_vendor(by_name, nameless, catalogue).items():
        if number <= (seen.get(vendor, 0) if vendor else sum(seen.values())):
            continue  # the PCI functions of this maker are the same chips, identified more exactly
        for model, count in by_name.items():
            if catalogue.models[model].vendor == vendor:
                models[model] = max(models.get(model, 0), count)
        unknown += [entry for entry in nameless if entry["vendor"] == vendor]
    return dict(sorted(models.items())), unknown


def model_of(name: str, catalogue: Catalogue) -> str | None:
    """Return the model key for a BMC's name of a processor; None where no model or several models fit.

    The longest name of the catalogue that ``name`` contains, word by word, decides: "NVIDIA H100 NVL" is an h100_nvl.
    """
    text = name.lower()
    maker = _maker(name)
    for spelling, key in SPELLINGS:
        if maker in (None, "ascend") and key in catalogue.models and spelling.search(text):
            return key
    words = _split_words(text)
    best: dict[int, set[str]] = {}
    for key, model in catalogue.models.items():
        if maker in (None, model.vendor):
            fits = [len(spoken) for spoken in _spoken(key, model.title) if _within(spoken, words)]
            if fits:
                best.setdefault(max(fits), set()).add(key)
    longest = best.get(max(best, default=0), set())
    return longest.pop() if len(longest) == 1 else None


def _from_ids(chips: Chips, catalogue: Catalogue) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return models and unknown chips by their PCI ids, by the rules of recognition.match."""
    models: dict[str, int] = {}
    unknown: list[dict[str, Any]] = []
    for pci_id, count in sorted(chips.ids.items()):
        vendor = catalogue.pci_vendors.get(pci_id[:4])
        if pci_id in catalogue.ignored or pci_id in catalogue.switches or _is_virtual(pci_id, chips, catalogue):
            continue
        if pci_id in catalogue.chips:
            key = catalogue.chips[pci_id].model
            models[key] = models.get(key, 0) + count
        elif vendor and vendor.unknown_is_error and _is_accelerator(pci_id, chips, vendor):
            unknown.append({"id": pci_id, "vendor": vendor.vendor, "count": count})
    return models, unknown


def _is_virtual(pci_id: str, chips: Chips, catalogue: Catalogue) -> bool:
    """Return whether an id belongs to virtual functions whose physical function is listed too."""
    chip = catalogue.chips.get(pci_id)
    if chip is None or not _names_virtual(chip):
        return False
    others = (catalogue.chips.get(other) for other in chips.ids)
    return any(other and other.model == chip.model and not _names_virtual(other) for other in others)


def _names_virtual(chip: Chip) -> bool:
    return bool(chip.form and chip.form.endswith(VIRTUAL))


def _is_accelerator(pci_id: str, chips: Chips, vendor: PciVendor) -> bool:
    """Return whether a processor lists the id, or its class is one of the vendor's; many BMCs omit the subclass."""
    return pci_id not in chips.classes or chips.classes[pci_id] in {known[:2] for known in vendor.classes}


def _per_vendor(
    models: Mapping[str, int], unknown: Iterable[Mapping[str, Any]], catalogue: Catalogue
) -> dict[str | None, int]:
    numbers: dict[str | None, int] = {}
    for key, count in models.items():
        vendor = catalogue.models[key].vendor
        numbers[vendor] = numbers.get(vendor, 0) + count
    for entry in unknown:
        numbers[entry["vendor"]] = numbers.get(entry["vendor"], 0) + entry["count"]
    return numbers


def _maker(name: str) -> str | None:
    """Return the catalogue's vendor by a name, None where the name does not show it."""
    text = name.lower()
    if "advanced micro devices" in text:
        return "amd"
    return next((MAKERS[word] for word in re.findall(r"[a-z]+", text) if word in MAKERS), None)


def _split_words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _spoken(key: str, title: str) -> list[list[str]]:
    """Return the spellings of a model, each as words: its key, and the parts of its title that hold a number."""
    parts = [key.replace("_", " "), *re.split(r"[(),]|\bor\b", title.lower())]
    spoken = [[word for word in _split_words(part) if word not in BRANDS] for part in parts]
    return [words for words in spoken if any(re.search(r"\d", word) for word in words)]


def _within(spoken: list[str], words: list[str]) -> bool:
    length = len(spoken)
    return any(words[start : start + length] == spoken for start in range(len(words) - length + 1))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _check_pairs(value: Any, key: str, fits: Any, expected: str) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and fits(item) for name, item in value.items()):
        raise RedfishError(f"stored chips of a BMC: {key!r} is not a mapping of names, each with {expected}")
