# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from tests.fakes.wheelhouse import run_module


@pytest.mark.parametrize(
    ("address", "fails"),
    [("127.0.0.1", False), ("192.0.2.1", True), ("0.0.0.0", True)],
)
def test_the_host_must_have_the_address(address, fails):
    found = run_module("provisioner_preflight", listens={"provisioner_address": address})
    message = f": provisioner_address: found '{address}', expected an address of this host ("
    assert (message in found.get("msg", "")) is fails and "0.0.0.0 or ::" not in found.get("msg", "")
