# SPDX-License-Identifier: GPL-3.0-or-later
"""Which unit tests are slow: `make fast` leaves them out, `make unit` and CI do not."""

from __future__ import annotations

import gc
from functools import partial

import pytest
import yaml

from tools.fast_tests import is_slow

# The tests read thousands of documents, with libyaml in a seventh of the time.
if hasattr(yaml, "CSafeLoader"):
    yaml.safe_load = partial(yaml.load, Loader=yaml.CSafeLoader)

# The thousands of tests that collecting makes stay to the end. To search them for garbage takes seconds, and a fork of
# this process copies every page that such a search touches.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
    # A twentieth of the time of all fast tests: many parse files, whose nodes are no garbage while they are looked at.
    gc.set_threshold(20_000, 20, 20)


def pytest_ignore_collect(collection_path, config):
    # Every process of pytest-xdist would import what nobody asks for.
    return True if "not slow" in config.option.markexpr and is_slow(collection_path) else None


# Seconds, on a busy machine. The slowest unit test takes two minutes on a quiet one.
HANGS = 900


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("long") is None:
            item.add_marker(pytest.mark.timeout(HANGS))
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    # Slow files first, or one of them would be left to the end, and one processor idle (--no-loadscope-reorder).
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
