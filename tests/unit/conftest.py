# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which unit tests are slow: `make fast` leaves them out, `make unit` and CI do not."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Each test here starts Ansible or another program, or makes thousands of hosts.
SLOW = tuple((HERE / "slow.txt").read_text().split())

# The thousands of tests that collecting makes stay to the end: nobody has to search them for garbage, and a fork, of
# which these tests make many, does not copy the pages that such a search writes to.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.relative_to(HERE).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)
