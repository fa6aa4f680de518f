# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the variables of playbooks/accept.yml, and return the figures that a host's chips are compared with."""

import re
from dataclasses import asdict, dataclass
from typing import Any, Mapping, Sequence

from ...module_utils.accelerator.recognition import Catalogue
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest

# The longest burn-in, a day.
LONGEST_MINUTES = 24 * 60.0
# Seconds until torch is imported and the chips are initialised, on top of the minutes.
START_SECONDS = 300.0
_HOST = re.compile(r"[\w.:-]+\Z")
VARIABLES = (
    "accept_minutes", "accept_dir", "accept_peer", "accept_peer_address", "accept_port",
    "accept_python", "accept_image", "accept_storage_dir", "accept_storage_bytes", "accept_storage_gb_per_s",
    "accept_network_gbit_per_s", "accept_bench_tokens_per_s",
)  # fmt: skip


class AcceptanceError(ValueError):
    """A variable of the playbook is invalid; the message is the whole sentence."""


@dataclass(frozen=True)
class Seconds:
    """How long each part takes: the burn-in, its deadline, storage, and each direction of the network."""

    burn_in: float
    deadline: float
    storage: float
    network: float


def check_names(variables: Mapping[str, Any]) -> None:
    """Raise AcceptanceError for a variable with the playbook's prefix that it does not have."""
    for name in sorted(variables):
        if name.startswith("accept_") and name not in VARIABLES:
            raise AcceptanceError(f"{name}: accept.yml has no variable of this name; {nearest(name, VARIABLES)}")


def seconds_of(minutes: Any) -> Seconds:
    """Return the seconds of each part of an acceptance whose burn-in takes some minutes. Raises AcceptanceError."""
    value = positive("accept_minutes", minutes)
    if value > LONGEST_MINUTES:
        raise AcceptanceError(f"accept_minutes: found {value:g}, expected at most {LONGEST_MINUTES:g} (a day)")
    burn_in = value * 60
    short = min(10.0, max(1.0, burn_in / 6))
    return Seconds(burn_in, burn_in * 1.5 + START_SECONDS, short, short)


def positive(name: str, value: Any) -> float:
    """Return a number above 0. Raises AcceptanceError."""
    number = not_negative(name, value)
    if not number:
        raise AcceptanceError(f"{name}: found 0, expected a number above 0")
    return number


def not_negative(name: str, value: Any) -> float:
    """Return a number from 0 on, given as such or as a text. Raises AcceptanceError."""
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise AcceptanceError(f"{name}: found {show_value(value)}, expected a number from 0 on")
    return number


def check_port(value: Any) -> int:
    """Return a TCP port that needs no privilege. Raises AcceptanceError."""
    number = not_negative("accept_port", value)
    if not 1024 <= number <= 65535 or number != int(number):
        raise AcceptanceError(f"accept_port: found {show_value(value)}, expected a port from 1024 to 65535")
    return int(number)


def check_peer(peer: str, host: str, hosts: Sequence[str], facing: Sequence[str], limit: float = 0) -> None:
    """Check the host to measure the network with; ``hosts`` are the inventory's, ``facing`` those of the play.

    ``limit`` is the required throughput of the network. Raises AcceptanceError.
    """
    if not peer and limit:
        raise AcceptanceError(
            f"accept_network_gbit_per_s: found {limit:g} without accept_peer; name a second host of the inventory"
        )
    if not peer:
        return
    if not _HOST.match(peer) or peer not in hosts:
        raise AcceptanceError(f"accept_peer: {peer!r} is not a host of the inventory; {nearest(peer, hosts)}")
    if peer == host:
        raise AcceptanceError(f"accept_peer: {peer} is the host itself, expected another one")
    if len(facing) > 1:
        raise AcceptanceError(
            f"accept_peer: {len(facing)} hosts would measure the network with {peer} at the same time; name one with -l"
        )


def expected_figures(detected: Mapping[str, Any], catalogue: Catalogue) -> dict[str, dict[str, Any]]:
    """Return the figures that each chip is compared with: PCI address, then figure, then value, fraction, source.

    ``detected`` is the fact accelerator_detected. A chip without figures has an empty entry.
    """
    found = {}
    for device in detected.get("devices", ()):
        chip = catalogue.chips.get(f"{device['vendor_id']}:{device['device_id']}")
        found[device["address"]] = {name: asdict(figure) for name, figure in chip.expected.items()} if chip else {}
    return found
