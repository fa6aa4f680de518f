# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.chip_counters.slowed import slowed_chips
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.counters import (
    ChipCounters,
    CountersAnswer,
)

COOL, HOT = {"hw_therm_slowdown": 7}, {"hw_therm_slowdown": 9}


def answer(*slowed, slowing=()):
    chips = [ChipCounters(f"0000:{number}b:00.0", slowed=counts) for number, counts in enumerate(slowed)]
    return CountersAnswer(tuple(replace(chip, slowing=slowing) for chip in chips))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (answer(COOL, COOL), answer(COOL, COOL), []),
        (answer(COOL, COOL), answer(COOL, HOT), ["0000:1b:00.0 (hw_therm_slowdown)"]),
        # It acts now; older drivers have no counters of it.
        (answer({}), answer({}, slowing=("hw_slowdown",)), ["0000:0b:00.0 (hw_slowdown)"]),
        # Nothing is known of before, or of after.
        (CountersAnswer(problem="no tool"), answer(COOL, COOL), []),
        (answer(COOL, COOL), CountersAnswer(problem="no tool"), []),
    ],
)
def test_a_counter_that_rose_and_a_reason_that_acts(before, after, found):
    assert slowed_chips(before, after, [0, 1]) == found


def test_only_the_chips_of_the_instance_count():
    assert slowed_chips(answer(COOL, COOL), answer(HOT, HOT), [1]) == ["0000:1b:00.0 (hw_therm_slowdown)"]
