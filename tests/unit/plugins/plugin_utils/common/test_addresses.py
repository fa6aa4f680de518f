# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.addresses import (
    AddressError,
    is_host,
    is_listen,
    refuse_login,
)


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


@pytest.mark.parametrize("name", ["gpu-1", "gpu_1.cluster.example.", "10.0.0.1", "fd00::1", f"{63 * 'a'}.a", "1a"])
def test_names_and_addresses_of_hosts(name):
    assert is_host(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "-a", "a..b", ".a", "10.0.0", "a" * 64, "a b", "a\n", "::1%x", "192.0.2.7:80\nglobal", "gpu-1:443",
        "gpu-node-07.cluster.example.internal/24", ("a" * 60 + ".") * 4 + "!",
    ],
)  # fmt: skip
def test_what_no_host_can_be_called_is_refused_at_once(name):
    began = time.monotonic()
    assert not is_host(name)
    # Each further letter took twice the time of those before it: days for the longest of these.
    assert time.monotonic() - began < 1


def test_a_program_listens_at_addresses_only():
    assert is_listen("*") and is_listen("localhost") and is_listen("::")
    assert not is_listen("gpu-1") and not is_listen("::%\nglobal")
