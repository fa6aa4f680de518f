# SPDX-License-Identifier: GPL-3.0-or-later
"""The variable ``provision`` of a host: what must be known before anything is written to one of its disks."""

import ipaddress
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..redfish.chips import RedfishError
from ..redfish.service import base_url

REQUIRED = ("bmc", "mac", "address", "gateway", "image")
DISKS = ("root_serial", "root_wwn")
OPTIONAL = ("bmc_serial", "firmware", "mtu", "nameservers", "system")
KEYS = (*REQUIRED, *DISKS, *OPTIONAL)

# Serial numbers and WWNs: no operator of Ironic's hints, no quote.
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{2,127}")
# That of one port: an odd first byte is the address of a group, ff:ff:ff:ff:ff:ff that of all.
_MAC = re.compile(r"(?!00(?::00){5})[0-9a-f][02468ace](?::[0-9a-f]{2}){5}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SYSTEM = re.compile(r"/redfish/v1/Systems/[A-Za-z0-9._:-]{1,80}")
_FIRMWARE = re.compile("report|set")
# What Ironic and a host name have in common.
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")


class ProvisionError(ValueError):
    """The variables of a host do not describe a server to write; the message is the whole sentence."""


@dataclass(frozen=True)
class Entry:
    """A server to write. ``address`` is in CIDR notation; one of ``root_serial`` and ``root_wwn`` is empty."""

    host: str
    bmc: str
    mac: str
    address: ipaddress.IPv4Interface
    gateway: ipaddress.IPv4Address
    image: str
    root_serial: str = ""
    root_wwn: str = ""
    bmc_serial: str = ""
    mtu: int = 1500
    nameservers: tuple[str, ...] = ()
    system: str = ""
    firmware: str = "report"

    @property
    def root(self) -> dict[str, str]:
        """Return the root disk as a hint for Ironic."""
        return {"serial": self.root_serial} if self.root_serial else {"wwn": self.root_wwn}

    @property
    def disk(self) -> str:
        """Return the root disk in words."""
        return f"serial number {self.root_serial}" if self.root_serial else f"WWN {self.root_wwn}"


def read_entry(host: str, value: Any) -> Entry:
    """Return the entry of a host. Raises ProvisionError, which names the key and what was expected, not the host."""
    where = "provision"
    if not isinstance(value, Mapping):
        raise ProvisionError(f"{where}: found {show_value(value)}, expected a mapping with {', '.join(REQUIRED)}")
    if not _HOST.fullmatch(host):
        raise ProvisionError(f"{where}: the name cannot be a host name; expected letters, digits, dots and hyphens")
    for key in value:
        if key not in KEYS:
            raise ProvisionError(f"{where}.{key}: there is no such key; {nearest(str(key), KEYS)}")
    for key in REQUIRED:
        if key not in value:
            raise ProvisionError(f"{where}.{key}: is missing; expected {_EXPECTED[key]}")
    disks = [key for key in DISKS if key in value]
    if len(disks) != 1:
        raise ProvisionError(
            f"{where}: found {' and '.join(disks) or 'no root disk'}, "
            "expected root_serial or root_wwn: the serial number or the WWN of the one disk that may be written"
        )
    parts = {key: _read(where, key, value[key]) for key in value}
    _check_network(parts)
    return Entry(host=host, **parts)


def _read(where: str, key: str, value: Any) -> Any:
    try:
        return _READERS[key](value)
    except RedfishError as exc:  # the value may hold a password, which this error's own text leaves out
        raise ProvisionError(f"{where}.{key}: {exc}; expected {_EXPECTED[key]}") from None
    except (ValueError, TypeError):
        raise ProvisionError(f"{where}.{key}: found {show_value(value)[:120]}, expected {_EXPECTED[key]}") from None


def _check_network(parts: Mapping[str, Any]) -> None:
    address, gateway = parts["address"], parts["gateway"]
    if gateway not in address.network or gateway == address.ip:
        raise ProvisionError(
            f"provision.gateway: found {gateway}, expected another address of the network {address.network} of "
            "provision.address"
        )
    if address.ip in (address.network.network_address, address.network.broadcast_address):
        raise ProvisionError(f"provision.address: found {address}, expected an address of a host in {address.network}")
    for key, value in (("address", address.ip), ("gateway", gateway)):
        if urlsplit(parts["bmc"]).hostname == str(value):
            raise ProvisionError(f"provision.{key}: found {value}, the address of provision.bmc; expected another one")


def refuse_shared(entries: Iterable[Entry]) -> None:
    """Raise ProvisionError where two servers of the inventory share a BMC, an address, or a serial number."""
    for text, _hosts in shared(entries):
        raise ProvisionError(text)


def shared(entries: Iterable[Entry]) -> Iterator[tuple[str, list[str]]]:
    """Yield a sentence and its hosts where servers of the inventory share a BMC, an address, or a serial number.

    A BMC that stands at two hosts is how the wrong server's disk is written. Of the same hosts there is one sentence.
    """
    holders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in entries:
        values = {
            "bmc": f"{entry.bmc}{entry.system}",
            "mac": entry.mac,
            "address": str(entry.address.ip),
            "bmc_serial": entry.bmc_serial,
            "root_serial": entry.root_serial,
            "root_wwn": entry.root_wwn,
        }
        for key, value in values.items():
            if value:
                holders[key, value].append(entry.host)
    told: list[list[str]] = []
    for (key, value), hosts in holders.items():
        if len(hosts) > 1 and hosts not in told:
            told.append(hosts)
            found = f"provision.{key}: found {value} at the hosts {', '.join(sorted(hosts)[:4])}"
            yield f"{found}, expected each one once; correct the inventory", hosts


def is_serial(value: Any) -> bool:
    """Return whether a value can be the serial number or the WWN of a disk."""
    return isinstance(value, str) and bool(_SERIAL.fullmatch(value))


def _text(pattern: re.Pattern[str], lower: bool = False) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = str(value).lower() if lower else str(value)
        if not isinstance(value, str) or not pattern.fullmatch(text):
            raise ValueError
        return text

    return read


def _bmc(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    url = base_url(value, True)
    return url.lower()


def _address(value: Any) -> ipaddress.IPv4Interface:
    if not isinstance(value, str) or "/" not in value:
        raise TypeError
    return ipaddress.IPv4Interface(value)


def _ip(value: Any) -> ipaddress.IPv4Address:
    if not isinstance(value, str):
        raise TypeError
    return ipaddress.IPv4Address(value)


def _mtu(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 576 <= value <= 9216:
        raise ValueError
    return int(value)


def _nameservers(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > 8:
        raise TypeError
    return tuple(str(_ip(each)) for each in value)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "bmc": _bmc,
    "mac": _text(_MAC, lower=True),
    "address": _address,
    "gateway": _ip,
    "image": _text(_NAME),
    "root_serial": _text(_SERIAL),
    "root_wwn": _text(_SERIAL),
    "bmc_serial": _text(_SERIAL),
    "mtu": _mtu,
    "nameservers": _nameservers,
    "system": _text(_SYSTEM),
    "firmware": _text(_FIRMWARE),
}
_EXPECTED = {
    "bmc": 'the address of the BMC, such as "https://10.1.0.11"',
    "mac": 'the MAC address of the network port that gets the address, such as "52:54:00:12:34:56", in quotes',
    "address": 'the IPv4 address of the host with its prefix, such as "10.0.1.11/24"',
    "gateway": 'the IPv4 address of the gateway, such as "10.0.1.1"',
    "image": "the name of an image of the provisioner, such as debian13",
    "root_serial": "the serial number of the disk to write, in quotes, of 3 characters or more",
    "root_wwn": "the WWN of the disk to write, in quotes, of 3 characters or more",
    "bmc_serial": "the serial number of the server as its BMC shows it, in quotes",
    "mtu": "a whole number from 576 to 9216",
    "nameservers": "a list of at most 8 IPv4 addresses",
    "firmware": "report or set",
    "system": 'the path of one system, such as "/redfish/v1/Systems/1"',
}
