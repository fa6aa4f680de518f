# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.node import (
    Account,
    HostKey,
    config_drive,
    description,
    image_fields,
    network_data,
    new_node,
    order_of,
    patch,
    wipe_order_of,
    wipe_steps,
)

from tests.fakes.provision_entries import IMAGE, entry

ACCOUNT = Account("admin", "s3cret")
KEY = HostKey("ssh-ed25519 AAAA", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")


def test_the_network_has_what_ironic_requires():
    found = network_data(entry(nameservers=["10.0.1.2"], mtu=9000))
    assert found["links"] == [{"id": "port0", "type": "phy", "ethernet_mac_address": "52:54:00:12:34:56", "mtu": 9000}]
    network = found["networks"][0]
    assert network["network_id"] == ""
    assert (network["ip_address"], network["netmask"]) == ("10.0.1.11", "255.255.255.0")
    assert network["routes"][0]["gateway"] == "10.0.1.1"
    assert found["services"] == [{"type": "dns", "address": "10.0.1.2"}]


def test_a_node_names_one_disk_one_image_and_whether_the_host_is_released():
    found = description(entry(), "/redfish/v1/Systems/1", ACCOUNT, "/etc/ca.pem", "order1", released=False)
    assert found["properties"]["root_device"] == {"serial": "S6CKNX0T"}
    assert image_fields(IMAGE)["instance_info"]["image_checksum"] == IMAGE.sha256
    assert found["driver_info"]["redfish_verify_ca"] == "/etc/ca.pem"
    assert found["extra"] == {"order": "order1", "released": ""}
    again = description(entry(), "/redfish/v1/Systems/1", ACCOUNT, True, "order1", released=True)
    assert again["extra"]["released"] == "gpu-a-01"
    assert new_node(entry())["name"] == "gpu-a-01"
    assert patch({"extra": {}}) == [{"op": "add", "path": "/extra", "value": {}}]


def test_a_wipe_names_its_disks_and_how_and_no_other_step_of_the_agent():
    arguments = {"disks": ["A1B2"], "secure": True}
    assert wipe_steps(("A1B2",), True) == [{"interface": "deploy", "step": "wipe_named_disks", "args": arguments}]
    orders = {wipe_order_of(entry(), disks, secure) for disks in (("A1B2",), ("C3D4",)) for secure in (True, False)}
    assert len({*orders, wipe_order_of(entry("gpu-a-02"), ("A1B2",), True)}) == 5


def test_another_disk_image_network_or_key_is_another_order():
    first = order_of(entry(), IMAGE, KEY.public)
    assert first == order_of(entry(), IMAGE, KEY.public)
    others = [
        order_of(entry(root_serial="OTHER"), IMAGE, KEY.public),
        order_of(entry(mac="52:54:00:12:34:57"), IMAGE, KEY.public),
        order_of(entry(address="10.0.1.12/24"), IMAGE, KEY.public), order_of(entry(), IMAGE, "ssh-ed25519 BBBB"),
        order_of(entry("gpu-a-02"), IMAGE, KEY.public),
    ]  # fmt: skip
    assert len({first, *others}) == 6


def test_the_config_drive_holds_host_key_users_and_the_marks():
    found = config_drive(entry(), "order1", KEY, ("ssh-ed25519 CCCC me",))
    assert found["meta_data"]["hostname"] == "gpu-a-01"
    head, text = found["user_data"].split("\n", 1)
    assert head == "#cloud-config"
    config = json.loads(text)
    assert config["ssh_keys"] == {"ed25519_private": KEY.private, "ed25519_public": KEY.public}
    assert config["users"] == [{"name": "root", "ssh_authorized_keys": ["ssh-ed25519 CCCC me"]}]
    marks = {each["path"]: each["content"] for each in config["write_files"]}
    assert marks == {"/etc/baremetal-inference/host": "gpu-a-01\n", "/etc/baremetal-inference/order": "order1\n"}
    other = json.loads(config_drive(entry(), "order1", KEY, ("k",), "ops")["user_data"].split("\n", 1)[1])
    assert other["users"][0]["sudo"] == "ALL=(ALL) NOPASSWD:ALL"
    assert other["disable_root"] is True


def test_neither_password_nor_private_key_is_shown():
    assert "s3cret" not in repr(ACCOUNT)
    assert "abc" not in repr(KEY)
