# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.figures import figures_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.goal import METRICS

from tests.fakes.benches import record


def test_a_complete_record_has_every_figure_that_a_goal_can_name():
    found = figures_of({**record(speed=100.0, ttft=20.0, itl=5.0, joules=1536), "start_seconds": 40})
    assert set(found) == set(METRICS)
    assert (found["output_tokens_per_second"], found["ttft_ms"], found["itl_p99_ms"]) == (100.0, 20.0, 5.0)
    assert (found["joules_per_token"], found["start_seconds"]) == (1.0, 40.0)


def test_what_is_not_known_is_left_out():
    assert not {"joules_per_token", "start_seconds"} & set(figures_of({**record(), "start_seconds": None}))
