# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys

from ansible_collections.baremetal.inference.plugins.module_utils.host_group.sockets import address_of, connections

PEER = "10.0.0.2"


def test_addresses_of_the_kernel_s_tables():
    assert address_of("0100007F" if sys.byteorder == "little" else "7F000001") == "127.0.0.1"
    mapped = "0000000000000000FFFF00000200000A" if sys.byteorder == "little" else "00000000000000000000FFFF0A000002"
    assert address_of(mapped) == PEER
    own = "B80D0120000000000000000001000000" if sys.byteorder == "little" else "20010DB8000000000000000000000001"
    assert address_of(own) == "2001:db8::1"


def test_requests_at_the_served_port_are_no_connections_of_the_group():
    row = (
        "  0: 0100000A:{port} 0200000A:9C40 01 00000000:00000000 00:00000000 00000000  1000 0 {inode} 1 0 20 4 30 10 -1"
    )
    lines = ["header", row.format(port="1F40", inode=7), row.format(port="733D", inode=8)]
    table = "\n".join([*lines, row.format(port="733D", inode=9), lines[2].replace(" 01 ", " 08 ")])
    if sys.byteorder == "little":
        assert connections(table, {"7", "8"}, 8000) == {PEER: 1}
        assert connections(table, {"7", "8"}, 0) == {PEER: 2}
