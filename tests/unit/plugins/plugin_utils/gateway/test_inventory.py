# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.inventory import address_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import GatewayError


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "gpu-1"),
        ({"ansible_host": "10.0.0.1"}, "10.0.0.1"),
        ({"ansible_host": "gpu-1.example", "gateway_host_address": "fd00::1"}, "fd00::1"),
    ],
)
def test_the_address_of_a_host(variables, address):
    assert address_of("gpu-1", {"gpu-1": variables}) == address


@pytest.mark.parametrize("found", ["192.0.2.7:80\nglobal\n lua-load /tmp/x", "::1% weight 9", "10.0.0.1,DNS:a", "a b"])
def test_what_is_more_than_an_address_gets_into_no_configuration(found):
    with pytest.raises(GatewayError, match=r"^gpu-1: its address is "):
        address_of("gpu-1", {"gpu-1": {"ansible_host": found}})
