# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout of one host, from its beginning to its end; the action's tests have the failures."""

from __future__ import annotations

import os

from ansible_collections.baremetal.inference.plugins.module_utils.common.processes_host import boot_id
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.journal import read, state_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.progress import write_events

NOTHING = {"gateways": [], "gates": [], "baselines": {}, "step": "", "detail": "", "failed": {}, "kept": [], "wave": 0}


def test_a_rollout_is_recorded_with_the_process_that_runs_it(tmp_path):
    path = str(tmp_path / "rollout" / "journal.jsonl")
    rollout = {
        "events": [{"event": "begun", "id": "r1", "clusters": {"fra-1": "fra"}}],
        "resumes": [],
        "directory": str(tmp_path),
    }
    write_events(path, "localhost", rollout, {**NOTHING, "state": "begun"})
    write_events(path, "fra-1", rollout, {**NOTHING, "state": "noted", "step": "done"})
    write_events(path, "fra-1", rollout, {**NOTHING, "state": "waving"})
    begun, step, wave = read(path)
    assert (begun["pid"], begun["boot"]) == (os.getppid(), boot_id())
    assert (step["step"], wave["state"]) == ("done", "begun")
    write_events(path, "localhost", rollout, {**NOTHING, "state": "stopped", "detail": "enough"})
    assert state_of(read(path)).stopped == "enough"
