# SPDX-License-Identifier: GPL-3.0-or-later
"""The static network of the ramdisk, from the network data that Ironic put on the boot medium. There is no DHCP."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import tempfile
import time
from typing import Any

from .disk_marks_host import read_regular

# Ironic's label with network data, and the one without.
LABELS = ("config-2", "VMEDIA_BOOT_ISO")
DATA = "openstack/latest/network_data.json"
NETWORKS = "/run/systemd/network"
MOST_BYTES = 1 << 20
# A medium that a BMC shows is a drive of CDs, or a small disk at USB: as ironic-python-agent's _check_vmedia_device.
MOST_OF_USB = 4 << 30


def files_of(data: dict[str, Any]) -> dict[str, str]:
    """Return the files for systemd-networkd by name. Raises ValueError and KeyError for what is not network data."""
    servers = [str(ipaddress.ip_address(each["address"])) for each in data.get("services", []) if each["type"] == "dns"]
    found = {}
    for link in data["links"]:
        mac, name = link["ethernet_mac_address"].lower(), link["id"]
        if not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", mac) or not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
            raise ValueError(f"link {name!r} has no valid address")
        lines = ["[Match]", f"MACAddress={mac}", "[Link]", f"MTUBytes={int(link.get('mtu') or 1500)}"]
        lines += ["[Network]", "LinkLocalAddressing=ipv6", *(f"DNS={server}" for server in servers)]
        for network in data["networks"]:
            if network["link"] == name:
                lines += _address(network)
        found[f"50-{name}.network"] = "\n".join(lines) + "\n"
    return found


def _address(network: dict[str, Any]) -> list[str]:
    address = ipaddress.ip_interface(f"{network['ip_address']}/{network['netmask']}")
    lines = ["[Address]", f"Address={address}"]
    for route in network.get("routes", []):
        target = ipaddress.ip_network(f"{route['network']}/{route['netmask']}")
        lines += ["[Route]", f"Gateway={ipaddress.ip_address(route['gateway'])}"]
        lines += [f"Destination={target}"] if target.prefixlen else []
    return lines


def read_medium(seconds: int = 120) -> dict[str, Any]:
    """Return the network data of the boot medium, which a slow BMC shows late."""
    for _second in range(seconds):
        devices = _devices()
        for label in LABELS:
            for device in devices:
                if device.get("label") == label and is_medium(device):
                    return _read(device["name"])
        time.sleep(1)
    raise SystemExit(f"no medium with the label {' or '.join(LABELS)} within {seconds} s")


def is_medium(device: dict[str, Any]) -> bool:
    """Return whether a block device of lsblk may be the boot medium.

    Ironic leaves a partition with the same label on each host, and udev's link prefers it to a CD. Root of that host
    could write anything there.
    """
    small = device.get("tran") == "usb" and int(device.get("size") or MOST_OF_USB) < MOST_OF_USB
    return device.get("type") == "rom" or (device.get("type") == "disk" and small)


def _devices() -> list[dict[str, Any]]:
    command = ["lsblk", "--json", "--list", "--paths", "--bytes", "--output", "NAME,TYPE,TRAN,SIZE,LABEL"]
    listed = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    found: list[dict[str, Any]] = json.loads(listed)["blockdevices"]
    return found


def _read(device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["mount", "-o", "ro,nosuid,nodev,noexec", device, place], check=True, timeout=120)
        try:
            found: dict[str, Any] = json.loads(read_regular(os.path.join(place, DATA), MOST_BYTES))
            return found
        finally:
            subprocess.run(["umount", place], check=True, timeout=120)


def main() -> None:
    """Write the files, before systemd-networkd starts."""
    os.makedirs(NETWORKS, exist_ok=True)
    for name, text in files_of(read_medium()).items():
        with open(os.path.join(NETWORKS, name), "w", encoding="ascii") as file:
            file.write(text)
