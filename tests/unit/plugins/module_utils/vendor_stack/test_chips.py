# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.chips import Chip, chips_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue

DETECTED = {
    "devices": [
        {"address": "0000:01:00.0", "model": "h200"},
        {"address": "0000:41:00.0", "model": "mi300x"},
        {"address": "0000:81:00.0", "model": "h200"},
    ]
}


def test_only_chips_of_the_stack_are_returned_in_their_order():
    catalogue = load_catalogue([])
    assert chips_of("cuda", DETECTED, catalogue) == (
        Chip("0000:01:00.0", "h200", "hopper"),
        Chip("0000:81:00.0", "h200", "hopper"),
    )
    assert chips_of("rocm", DETECTED, catalogue) == (Chip("0000:41:00.0", "mi300x", "gfx942"),)
    assert chips_of("cann", DETECTED, catalogue) == ()
