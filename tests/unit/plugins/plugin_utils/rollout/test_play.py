# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.play import base_of, order_of, why_nobody
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.waves import Wave


def test_why_no_host_was_checked():
    assert why_nobody(["a", "b"]).startswith("none of 2 hosts could be checked (a, b): each was unreachable or failed")
    assert "group 'inference'" in why_nobody([])


def test_a_directory_without_rollouts_leaves_nothing(tmp_path):
    base = base_of(str(tmp_path), {"a"})
    assert (base["resumes"], base["left"], base["stale"]) == ([], [], [])


def test_each_wave_begins_with_an_entry_for_the_controller():
    seen = {"a": {"options": {"pause": 5, "confirm": False}}, "b": {"options": {"pause": 5, "confirm": False}}}
    found = order_of([Wave(True, {"fra": ["a"]}), Wave(False, {"fra": ["b"]})], {"fra": seen})
    assert found["order"] == ["rollout-wave-1", "a", "rollout-wave-2", "b"]
    assert found["serial"] == [2, 2]
    assert [(wave["canary"], wave["pause"], wave["confirm"]) for wave in found["waves"]] == [
        (True, 5, False),
        (False, 5, False),
    ]
