# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.starts import describe_starts


def start(*phases, ready=True, seconds=74.0):
    return {"ready": ready, "seconds": seconds, "phases": [list(phase) for phase in phases]}


def test_a_line_for_each_instance_and_each_host_that_was_not_read():
    results = {
        "gpu-2": {"msg": "timed\nout"},
        "gpu-1": {
            "instances": {
                "code": start(("imports", 6.2), ready=False, seconds=9.5),
                "chat": start(("imports", 6.2), ("ready", 67.8)),
                "new": start(ready=False, seconds=0.0),
            }
        },
    }
    assert describe_starts(results) == [
        "gpu-1, chat: started in 74 s: imports 6.2, ready 67.8",
        "gpu-1, code: not started after 9.5 s: imports 6.2",
        "gpu-1, new: the journal has nothing about its start",
        "gpu-2 was not read: timed out",
    ]
