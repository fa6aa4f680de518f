# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a host for Ironic: its BMC, its network, its root disk, its image, its config drive."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Mapping

from .entry import Entry
from .images import Image

# Where the image and the config drive leave their marks on the host.
MARKER = "/etc/baremetal-inference/host"
BUILD = "/etc/baremetal-inference/image"
ORDER = "/etc/baremetal-inference/order"


@dataclass(frozen=True)
class Account:
    """The account of a BMC."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class HostKey:
    """The key that a host is given, so that the controller knows it beforehand."""

    public: str
    private: str = field(repr=False)


def network_data(entry: Entry) -> dict[str, Any]:
    """Return the network in the format of OpenStack's network_data.json, for the ramdisk and the host."""
    route = {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": str(entry.gateway)}  # noqa: S104  a default route
    return {
        "links": [{"id": "port0", "type": "phy", "ethernet_mac_address": entry.mac, "mtu": entry.mtu}],
        "networks": [
            {
                # Ironic requires an id that nothing uses.
                "network_id": "",
                "id": "network0",
                "link": "port0",
                "type": "ipv4",
                "ip_address": str(entry.address.ip),
                "netmask": str(entry.address.netmask),
                "routes": [route],
            }
        ],
        "services": [{"type": "dns", "address": address} for address in entry.nameservers],
    }


def order_of(entry: Entry, image: Image, public_key: str) -> str:
    """Return the name of an order: the same image, disk, network and host key give the same name."""
    parts = [entry.host, image.sha256, entry.root, entry.mac, str(entry.address), str(entry.gateway), public_key]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def description(
    entry: Entry, system: str, account: Account, ca: str | bool, order: str, released: bool, firmware: bool = False
) -> dict[str, Any]:
    """Return the fields of the node that Ironic needs for one order; ``firmware`` is whether it sets the firmware.

    ``ca`` is what Ironic checks the BMC's certificate with: a file on the provisioner, or whether to check at all.
    """
    return {
        "driver_info": {
            "redfish_address": entry.bmc,
            "redfish_system_id": system,
            "redfish_username": account.username,
            "redfish_password": account.password,
            "redfish_verify_ca": ca,
        },
        "properties": {"capabilities": "boot_mode:uefi", "root_device": entry.root},
        "network_data": network_data(entry),
        "bios_interface": "redfish" if firmware else "no-bios",
        # The guard in the ramdisk writes over a known host only if it is the one that is released.
        "extra": {"order": order, "released": entry.host if released else ""},
    }


def image_fields(image: Image) -> dict[str, Any]:
    """Return the field of the node that names the image."""
    info = {"image_source": image.url, "image_checksum": image.sha256, "image_disk_format": image.format}
    return {"instance_info": info}


def wipe_steps(disks: tuple[str, ...], secure: bool) -> list[dict[str, Any]]:
    """Return the order of a wipe for the guard in the ramdisk (roles/provisioner/files/baremetal_guard.py)."""
    arguments = {"disks": list(disks), "secure": secure}
    return [{"interface": "deploy", "step": "wipe_named_disks", "args": arguments}]


def wipe_order_of(entry: Entry, disks: tuple[str, ...], secure: bool) -> str:
    """Return the name of the order to wipe disks of a host."""
    return "wipe-" + hashlib.sha256(json.dumps([entry.host, *disks, secure]).encode()).hexdigest()[:20]


def new_node(entry: Entry) -> dict[str, Any]:
    """Return the fields that a node is created with; description() follows."""
    return {
        "name": entry.host,
        "driver": "redfish",
        "boot_interface": "redfish-virtual-media",
        "deploy_interface": "direct",
    }


def patch(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return fields as a JSON patch: "add" replaces what is there."""
    return [{"op": "add", "path": f"/{name}", "value": value} for name, value in fields.items()]


def config_drive(
    entry: Entry, order: str, key: HostKey, ssh_keys: tuple[str, ...], user: str = "root"
) -> dict[str, Any]:
    """Return the config drive, which cloud-init reads at the first boot."""
    account: dict[str, Any] = {"name": user, "ssh_authorized_keys": list(ssh_keys)}
    if user != "root":
        account |= {"shell": "/bin/bash", "lock_passwd": True, "sudo": "ALL=(ALL) NOPASSWD:ALL"}
    marks = {MARKER: entry.host, ORDER: order}
    cloud_config = {
        "ssh_keys": {"ed25519_private": key.private, "ed25519_public": key.public},
        "disable_root": user != "root",
        "ssh_pwauth": False,
        "users": [account],
        "write_files": [{"path": path, "content": text + "\n", "permissions": "0644"} for path, text in marks.items()],
    }
    return {
        "meta_data": {"uuid": order, "hostname": entry.host, "name": entry.host},
        "network_data": network_data(entry),
        "user_data": "#cloud-config\n" + json.dumps(cloud_config, indent=1) + "\n",
    }
