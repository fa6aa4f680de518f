# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a gateway's database."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.usage_host import UsageError, read_usage


def test_a_gateway_without_a_database_says_what_to_set(tmp_path):
    with pytest.raises(UsageError, match="set gateway_tokens: true"):
        read_usage(str(tmp_path / "none"), 0, 1)
    (tmp_path / "damaged").write_text("x" * 5000)
    with pytest.raises(UsageError, match="not a database"):
        read_usage(str(tmp_path / "damaged"), 0, 1)
