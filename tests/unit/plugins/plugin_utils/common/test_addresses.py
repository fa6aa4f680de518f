# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.addresses import AddressError, refuse_login


@pytest.mark.parametrize(
    "address",
    [
        "https://site:geheim@mirror.example/vendors",
        "http://geheim@mirror",
        " ftp://a:ge@heim@mirror/x",
        "https://:geheim@h",
    ],
)
def test_a_login_is_refused_and_not_repeated(address):
    with pytest.raises(AddressError, match=r"^rocm_mirror: found an address with a user or a password") as caught:
        refuse_login("rocm_mirror", address)
    assert "heim" not in str(caught.value)


@pytest.mark.parametrize("address", ["", "https://mirror.example/vendors", "http://mirror:8080/a@b", "file:///srv/x@y"])
def test_other_addresses_are_accepted(address):
    refuse_login("rocm_mirror", address)
