# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import (
    KEYS,
    ProvisionError,
    read_entry,
    refuse_shared,
)

from tests.fakes.provision_entries import VALUES, entry


def test_an_entry_is_read_with_its_disk_in_words_and_as_a_hint():
    found = entry()
    assert (found.bmc, found.mac) == ("https://10.1.0.11", "52:54:00:12:34:56")
    assert (str(found.address), str(found.gateway)) == ("10.0.1.11/24", "10.0.1.1")
    assert (found.root, found.disk) == ({"serial": "S6CKNX0T"}, "serial number S6CKNX0T")
    assert entry(root_serial=None, root_wwn="eui.0025388b71b2").root == {"wwn": "eui.0025388b71b2"}
    assert entry(bmc="10.1.0.11", mac="52:54:00:AB:cd:EF").mac == "52:54:00:ab:cd:ef"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"root_serial": None}, "provision: found no root disk, expected root_serial or root_wwn"),
        ({"root_wwn": "0x5000c500a1b2c3d4"}, "provision: found root_serial and root_wwn, expected"),
        ({"mac": None}, "provision.mac: is missing; expected the MAC address"),
        ({"mac": 5254001}, "provision.mac: found 5254001, expected the MAC address"),
        ({"mac": "52-54-00-12-34-56"}, "provision.mac: found '52-54-00-12-34-56'"),
        ({"mac": "ff:ff:ff:ff:ff:ff"}, "provision.mac: found 'ff:ff:ff:ff:ff:ff'"),
        ({"mac": "01:00:5e:00:00:fb"}, "provision.mac: found '01:00:5e:00:00:fb'"),
        ({"mac": "00:00:00:00:00:00"}, "provision.mac: found '00:00:00:00:00:00'"),
        ({"bmc": "10.0.1.11"}, "provision.address: found 10.0.1.11, the address of provision.bmc; expected"),
        ({"bmc": "10.0.1.1"}, "provision.gateway: found 10.0.1.1, the address of provision.bmc"),
        ({"root_serial": "S4"}, "provision.root_serial: found 'S4', expected the serial number of the disk to write"),
        ({"root_serial": 12345}, "provision.root_serial: found 12345, expected the serial number of"),
        ({"root_serial": "<in> S6"}, "provision.root_serial: found '<in> S6'"),
        ({"root_serial": "s== x"}, "provision.root_serial"),
        ({"root_serail": "X"}, "provision.root_serail: there is no such key; nearest: 'root_serial'"),
        ({"address": "10.0.1.11"}, "provision.address: found '10.0.1.11', expected the IPv4 address of the host"),
        ({"address": "10.0.1.0/24"}, "provision.address: found 10.0.1.0/24, expected an address of a host"),
        ({"address": "10.0.1.255/24"}, "expected an address of a host in 10.0.1.0/24"),
        ({"address": "fd00::1/64"}, "provision.address: found 'fd00::1/64'"),
        ({"gateway": "10.0.2.1"}, "provision.gateway: found 10.0.2.1, expected another address of the network"),
        ({"gateway": "10.0.1.11"}, "provision.gateway"),
        ({"bmc": "http://10.1.0.11"}, "provision.bmc: the address 'http://10.1.0.11' would send the password"),
        ({"bmc": "https://10.1.0.11/redfish"}, "provision.bmc"),
        ({"mtu": True}, "provision.mtu: found true, expected a whole number from 576 to 9216"),
        ({"mtu": "9000"}, "provision.mtu"),
        ({"nameservers": "10.0.1.1"}, "provision.nameservers: found '10.0.1.1', expected a list"),
        ({"system": "/redfish/v1/../Systems/1"}, "provision.system"),
        ({"image": "../debian13"}, "provision.image"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_sentence_that_names_the_key(change, said):
    with pytest.raises(ProvisionError) as error:
        entry(**change)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [True, "yes", [], 7])
def test_what_is_no_mapping_is_refused(value):
    with pytest.raises(ProvisionError, match="expected a mapping with bmc"):
        read_entry("gpu-a-01", value)


def test_a_name_that_cannot_be_a_host_name_is_refused():
    with pytest.raises(ProvisionError, match="cannot be a host name"):
        read_entry("gpu a 01", VALUES)


def test_a_password_in_the_address_of_a_bmc_is_not_repeated():
    with pytest.raises(ProvisionError) as error:
        entry(bmc="https://admin:s3cret@10.1.0.11")
    assert "provision.bmc" in str(error.value)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("key", ["bmc", "mac", "address", "root_serial", "bmc_serial"])
def test_two_hosts_never_share_a_bmc_an_address_or_a_disk(key):
    other = {
        "bmc": "https://10.1.0.12", "mac": "52:54:00:12:34:57", "address": "10.0.1.12/24", "root_serial": "OTHER1",
        "bmc_serial": "SRV2",
    }  # fmt: skip
    mine = {"bmc_serial": "SRV1"}
    refuse_shared([entry(**mine), entry("gpu-a-02", **other)])
    del other[key]
    if key == "bmc_serial":
        other[key] = "SRV1"
    with pytest.raises(ProvisionError, match=rf"provision\.{key}: found .* at the hosts gpu-a-01, gpu-a-02"):
        refuse_shared([entry(**mine), entry("gpu-a-02", **other)])


def test_every_key_has_what_it_expects():
    for key in KEYS:
        with pytest.raises(ProvisionError, match=rf"provision\.{key}: found .*, expected"):
            entry(**{"root_serial": None, "root_wwn": "0x50", key: object()} if key == "root_wwn" else {key: object()})
