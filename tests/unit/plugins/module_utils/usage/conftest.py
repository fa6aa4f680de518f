# SPDX-License-Identifier: GPL-3.0-or-later
"""A database of tokens."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.usage.store_host import Store


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "usage.sqlite"), 13)
