# SPDX-License-Identifier: GPL-3.0-or-later
"""What the firmware of a server should be set to differently, by catalog/firmware.yml."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ..common.places import COLLECTION
from ..common.yaml import read_yaml
from .entry import ProvisionError

CATALOGUE = COLLECTION / "catalog/firmware.yml"
# The number that Supermicro appends to the name of an attribute.
_NUMBER = re.compile(r"_[0-9A-F]{4}\Z")
_OPPOSITES = {"Disable": "Enable", "Disabled": "Enabled", "Enable": "Disable", "Enabled": "Disabled"}
PRIORITY = 97
KEYS = ("purpose", "makers", "names", "wanted", "source")


@dataclass(frozen=True)
class Setting:
    """Attributes of some makers that serve one purpose, and the values that are right."""

    purpose: str
    makers: tuple[str, ...]
    names: tuple[str, ...]
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """An attribute, by the name that this BMC has for it, with what it is and what it should be."""

    purpose: str
    name: str
    found: Any
    wanted: str

    def __str__(self) -> str:
        return f"{self.purpose}: {self.name} is {show_value(self.found)}, wanted {self.wanted}"


def read_settings(path: Path = CATALOGUE) -> tuple[Setting, ...]:
    """Return the settings of a catalogue. Raises ProvisionError for a file that holds something else."""
    document = read_yaml(path)
    purposes = document.get("purposes") if isinstance(document, Mapping) else None
    entries = document.get("settings") if isinstance(document, Mapping) else None
    if not isinstance(purposes, Mapping) or not isinstance(entries, list):
        raise ProvisionError(f"{path}: expected the keys purposes and settings")
    return tuple(_setting(f"{path}: settings[{number}]", entry, purposes) for number, entry in enumerate(entries))


def _setting(where: str, entry: Any, purposes: Mapping[str, Any]) -> Setting:
    if not isinstance(entry, Mapping) or sorted(entry) != sorted(KEYS) or entry["purpose"] not in purposes:
        expected = f"{', '.join(KEYS)} with a purpose of the file"
        raise ProvisionError(f"{where}: found {show_value(entry)[:120]}, expected {expected}")
    lists = [entry[key] for key in ("makers", "names", "wanted")]
    if not all(isinstance(each, list) and each and all(isinstance(word, str) for word in each) for each in lists):
        raise ProvisionError(f"{where}: expected makers, names and wanted as lists of texts")
    return Setting(entry["purpose"], *(tuple(each) for each in lists))


def differences(settings: Sequence[Setting], maker: str, attributes: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return what is not as wanted, in the order of the attributes' names."""
    return tuple(
        Difference(setting.purpose, name, attributes[name], _spelling(attributes[name], setting.wanted))
        for setting, name in _compared(settings, maker, attributes)
        if attributes[name] not in setting.wanted
    )


def purposes_of(settings: Sequence[Setting], maker: str, attributes: Mapping[str, Any]) -> frozenset[str]:
    """Return the purposes that this BMC has attributes for."""
    return frozenset(setting.purpose for setting, _name in _compared(settings, maker, attributes))


def _compared(settings: Sequence[Setting], maker: str, attributes: Mapping[str, Any]) -> Iterator[tuple[Setting, str]]:
    own = [setting for setting in settings if maker.lower().startswith(setting.makers)]
    for name in sorted(attributes):
        for setting in own:
            if name in setting.names or _NUMBER.sub("", name) in setting.names:
                yield setting, name


def _spelling(found: Any, wanted: Sequence[str]) -> str:
    """Return the wanted value in the spelling of this BMC."""
    opposite = _OPPOSITES.get(found) if isinstance(found, str) else None
    return opposite if opposite and opposite in wanted else wanted[0]


def settings_step(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """Return the step by which Ironic sets what differs; empty where nothing does.

    It comes after the step that boots the ramdisk (100), which would find no medium after another restart, and before
    the guard (95) and the write (80).
    """
    settings = [{"name": each.name, "value": each.wanted} for each in found]
    step = {"interface": "bios", "step": "apply_configuration", "priority": PRIORITY, "args": {"settings": settings}}
    return [step] if settings else []
