# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a gateway's database."""

from __future__ import annotations

import sqlite3

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.usage_host import (
    UsageError,
    read_usage,
    tokens_per_second,
)
from ansible_collections.baremetal.inference.plugins.module_utils.usage.store_host import SCHEMA


def test_a_gateway_without_a_database_says_what_to_set(tmp_path):
    with pytest.raises(UsageError, match="set gateway_tokens: true"):
        read_usage(str(tmp_path / "none"), 0, 1)
    (tmp_path / "damaged").write_text("x" * 5000)
    with pytest.raises(UsageError, match="not a database"):
        read_usage(str(tmp_path / "damaged"), 0, 1)


def test_a_rate_is_never_negative(tmp_path):
    path, hour = str(tmp_path / "usage.sqlite"), 1_764_075_600
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    for client, model, tokens in (("a", "m", 6000), ("b", "m", -9000), ("a", "n", -5)):
        row = (hour, "gw", client, "", model, 1, 0, 0, 0, 0, tokens)
        connection.execute(f"INSERT INTO usage VALUES ({', '.join('?' * len(row))})", row)
    connection.commit()
    connection.close()
    assert tokens_per_second(path, hour + 600) == {"m": 10.0, "n": 0.0}
