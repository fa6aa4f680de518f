# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning import agent_network_host as network
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.node import network_data

from tests.fakes.provision_entries import entry


def test_the_network_of_an_order_becomes_files_of_networkd():
    files = network.files_of(network_data(entry(nameservers=["10.0.1.2"], mtu=9000)))
    assert list(files) == ["50-port0.network"]
    lines = files["50-port0.network"].splitlines()
    for line in (
        "MACAddress=52:54:00:12:34:56",
        "MTUBytes=9000",
        "Address=10.0.1.11/24",
        "Gateway=10.0.1.1",
        "DNS=10.0.1.2",
    ):
        assert line in lines
    assert not any(line.startswith("Destination") for line in lines)


@pytest.mark.parametrize("change", [{"ethernet_mac_address": "x\n[Match]"}, {"id": "../x"}])
def test_network_data_that_would_write_elsewhere_is_refused(change):
    data = network_data(entry())
    data["links"][0].update(change)
    with pytest.raises(ValueError, match="has no valid address"):
        network.files_of(data)
