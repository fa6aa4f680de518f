# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.answers import nvidia_knobs

ANSWER = """00000000:1B:00.0, Disabled, 700.00, 200.00, 700.00
00000000:5D:00.0, Enabled, [N/A], [N/A], [N/A]
No devices were found
"""


def test_each_chip_has_persistence_and_where_it_has_one_a_power_limit():
    found = [(knob.setting, knob.place, knob.value, knob.least, knob.most) for knob in nvidia_knobs(ANSWER)]
    assert found == [
        ("persistence", "00000000:1B:00.0", "Disabled", 0.0, 0.0),
        ("power_cap", "00000000:1B:00.0", "700", 200.0, 700.0),
        ("persistence", "00000000:5D:00.0", "Enabled", 0.0, 0.0),
    ]
