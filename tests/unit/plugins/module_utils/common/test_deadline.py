# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.deadline import finish_within


def test_what_is_done_in_time_is_returned_or_raised():
    assert finish_within(5, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        finish_within(5, lambda: 1 / 0)


def test_the_end_of_a_module_is_its_end():
    with pytest.raises(SystemExit, match="1"):
        finish_within(5, lambda: sys.exit(1))


def test_what_is_late_ends_in_time():
    ends, began = threading.Event(), time.monotonic()
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        finish_within(0.1, ends.wait)
    assert time.monotonic() - began < 5
    ends.set()
