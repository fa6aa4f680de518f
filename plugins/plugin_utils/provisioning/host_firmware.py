# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host itself shows of the settings that its BMC was asked for; a BMC may show a value that is only pending."""

import re
import struct
from pathlib import Path
from typing import Any, Callable, Collection, Iterator, Mapping

from ...module_utils.common.foreign_json import load_json
from ...module_utils.host_tuning.pci_config import acs_control, link_control
from ...module_utils.provisioning import show_firmware_host
from .entry import ProvisionError
from .firmware import Difference

PROGRAM = Path(show_firmware_host.__file__)
# 512 functions with 4 KiB in hex.
MOST_BYTES = 8 << 20
MOST_COUNTED = 4096
# Of linux/ioport.h: the kernel found no address.
UNSET = 0x20000000
# With these bits a port sends requests between chips to the processor: those of the kernel's pci_bridge_has_acs_redir.
REDIRECTS = {0x04: "ReqRedir", 0x08: "CmpltRedir", 0x20: "EgressCtrl"}
SLEEPS = {0x1: "L0s", 0x2: "L1"}
BARS = 6
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_shown(output: bytes) -> Mapping[str, Any]:
    """Return what show_firmware_host.py has printed. Raises ProvisionError."""
    try:
        found = load_json(output)
        functions = {
            address: (bool(each["bridge"]), str(each["resource"]), bytes.fromhex(each["config"]))
            for address, each in found["functions"].items()
            if _ADDRESS.fullmatch(address)
        }
        counts = {name: int(found[name]) for name in ("sockets", "nodes")}
        if len(functions) > show_firmware_host.MOST_FUNCTIONS or not all(
            0 <= n <= MOST_COUNTED for n in counts.values()
        ):
            raise ValueError
        return {"functions": functions, **counts}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise ProvisionError("the host's answer is not what show_firmware_host.py prints") from None


def host_differences(purposes: Collection[str], shown: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return what is not as wanted on the host, for those purposes that a host can show."""
    return tuple(
        difference for purpose, proof in PROOFS.items() if purpose in purposes for difference in proof(purpose, shown)
    )


def _addresses(purpose: str, shown: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the large BARs (64 bits wide) of chips that have no address."""
    absent = []
    for address, (bridge, resource, config) in shown["functions"].items():
        lines = [line.split() for line in resource.splitlines()]
        for number in () if bridge else _wide_bars(config):
            if len(lines) <= number or not _is_placed(lines[number]):
                absent.append(f"BAR {number} of {address}")
    if absent:
        yield Difference(purpose, _first_of(absent), "without an address", "one")


def _first_of(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _wide_bars(config: bytes) -> Iterator[int]:
    """Yield the numbers of the BARs that are 64 bits wide, each of which takes the next register too."""
    number = 0
    while number < BARS and len(config) >= 64:
        wide = struct.unpack_from("<I", config, 0x10 + 4 * number)[0] & 0x7 == 0x4
        if wide:
            yield number
        number += 2 if wide else 1


def _is_placed(line: list[str]) -> bool:
    try:
        start, _end, flags = (int(word, 16) for word in line)
    except ValueError:
        return False
    return start != 0 and not flags & UNSET


def _nodes(purpose: str, shown: Mapping[str, Any]) -> Iterator[Difference]:
    if shown["sockets"] and shown["nodes"] and shown["nodes"] != shown["sockets"]:
        wanted = f"{shown['sockets']}, one for each socket"
        yield Difference(purpose, "number of NUMA nodes with processors", shown["nodes"], wanted)


def _redirects(purpose: str, shown: Mapping[str, Any]) -> Iterator[Difference]:
    ports = {address: config for address, (bridge, _resource, config) in shown["functions"].items() if bridge}
    for words, where in _bits(ports, acs_control, REDIRECTS):
        yield Difference(purpose, f"ACSCtl of {where}", words, "none of these (host_tuning_acs_off clears them)")


def _sleeps(purpose: str, shown: Mapping[str, Any]) -> Iterator[Difference]:
    chips = {address: config for address, (bridge, _resource, config) in shown["functions"].items() if not bridge}
    for words, where in _bits(chips, link_control, SLEEPS):
        yield Difference(purpose, f"ASPM of {where}", words, "none")


def _bits(
    functions: Mapping[str, bytes], register: Callable[[bytes], int | None], names: Mapping[int, str]
) -> Iterator[tuple[str, str]]:
    """Yield the names of set bits, once for all functions that have the same ones, and which functions these are."""
    found: dict[str, list[str]] = {}
    for address, config in functions.items():
        offset = register(config)
        if offset is not None and offset + 2 <= len(config):
            value = struct.unpack_from("<H", config, offset)[0]
            found.setdefault(" ".join(word for bit, word in names.items() if value & bit), []).append(address)
    for words, addresses in found.items():
        if words:
            yield words, _first_of(addresses)


PROOFS: Mapping[str, Callable[[str, Mapping[str, Any]], Iterator[Difference]]] = {
    "above_4g": _addresses,
    "numa": _nodes,
    "acs_off": _redirects,
    "aspm_off": _sleeps,
}
