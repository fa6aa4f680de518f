# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.ip_addresses import is_ip, read_ip


def test_addresses_are_read():
    assert str(read_ip("10.0.0.1")) == "10.0.0.1" and str(read_ip("FD00:0::1")) == "fd00::1" and is_ip("::")


@pytest.mark.parametrize("text", ["", "gpu-1", "10.0.0.1/24", "::1%eth0", "::1%\nglobal", "fd00::7%x drop\n accept #"])
def test_what_is_more_than_an_address_is_none(text):
    assert not is_ip(text)
    with pytest.raises(ValueError):
        read_ip(text)
