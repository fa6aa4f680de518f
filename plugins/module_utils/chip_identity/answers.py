# SPDX-License-Identifier: GPL-3.0-or-later
"""Serial numbers and firmware of chips in the answers of the vendors' tools.

UNCONFIRMED on hardware for AMD and Huawei: the names are those of their manuals.
"""

from __future__ import annotations

import re
from typing import Mapping, NamedTuple

from ..cann.answers import parse_board

NVIDIA_QUERY = ("pci.bus_id", "serial", "vbios_version")

# Values of a chip, or of a board, without a serial number.
_NONE = re.compile(r"\[?(n/?a|unknown( error)?|not supported|none|-|0*|0x0*|f{8,})\]?", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_LONGEST = 64


class Identity(NamedTuple):
    """A chip by its PCI address as the kernel writes it; a value that nobody knows is empty."""

    address: str
    serial: str = ""
    firmware: str = ""


def parse_nvidia(text: str) -> list[Identity]:
    """Return the chips in the answer of ``nvidia-smi --query-gpu`` with NVIDIA_QUERY, as csv without a header."""
    rows = ([word.strip() for word in line.split(",")] for line in text.splitlines())
    return _identities({row[0]: (row[1], row[2]) for row in rows if len(row) == len(NVIDIA_QUERY)})


def parse_amd(files: Mapping[str, Mapping[str, str]]) -> list[Identity]:
    """Return AMD's chips; ``files`` are the texts of amdgpu's files in sysfs, by address.

    A card without a readable serial number of its own has the chip's ``unique_id``.
    """
    found = {}
    for address, texts in files.items():
        serial = _value(texts.get("serial_number", "")) or _value(texts.get("unique_id", ""))
        found[address] = (serial, texts.get("vbios_version", ""))
    return _identities(found)


def parse_huawei(boards: Mapping[str, str]) -> list[Identity]:
    """Return Huawei's chips; ``boards`` are the answers of ``npu-smi info -t board``, by address."""
    fields = {address: parse_board(text) for address, text in boards.items()}
    names = ("SerialNumber", "FirmwareVersion")
    return _identities(
        {address: (found.get(names[0], ""), found.get(names[1], "")) for address, found in fields.items()}
    )


def _identities(values: Mapping[str, tuple[str, str]]) -> list[Identity]:
    found = []
    for written, (serial, firmware) in values.items():
        address = _ADDRESS.fullmatch(written.lower())
        if address:
            found.append(Identity(address[1], _value(serial), _value(firmware)))
    return sorted(found)


def _value(text: str) -> str:
    """Return a value for people, empty for one that says that there is none."""
    shown = "".join(one for one in text.strip() if one.isprintable())[:_LONGEST]
    return "" if _NONE.fullmatch(shown) else shown
