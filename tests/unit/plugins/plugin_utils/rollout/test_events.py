# SPDX-License-Identifier: GPL-3.0-or-later
"""What is recorded of a host, and how its end is told."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.events import (
    baselines_of,
    events_of,
    label_of,
    last_step,
    what_failed,
)

TURN = {"servers": ["fra-1--chat", "fra-1--quick"], "gateways": ["gw-a", "gw-b"]}


@pytest.mark.parametrize(("at", "up", "step", "label", "where"), [
    # Whoever cannot be reached from the controller may serve all the same.
    ("drain", ("gw-a", "gw-b"), "failed", "unreachable", "; it is in service at gw-a, gw-b"),
    ("gate", ("gw-b",), "out", "unreachable", "; it is in service at gw-b"),
    ("drain", (), "out", "OUT OF SERVICE", "; it is out of service"),
])  # fmt: skip
def test_the_gateways_say_whether_a_host_that_is_gone_serves(at, up, step, label, where):
    other = {"up": True, "state": "ready"}
    gateways = [
        {"item": name, "servers": {"fra-1--chat": {"up": name in up, "state": "ready"}, "fra-2--chat": other}}
        for name in TURN["gateways"]
    ]
    event = last_step("fra-1", at, TURN, [*gateways, {"item": "gw-c", "unreachable": True}])
    assert (event["step"], event["detail"]) == (step, f"the host cannot be reached since the step {at}{where}")
    assert label_of(event["step"], event["detail"]) == label


def test_a_server_that_does_not_come_up_is_named_with_what_the_gateway_says():
    server = {"up": False, "state": "ready", "why": "L4CON Connection refused"}
    result = {"results": [{"failed": True, "item": "gw-a", "servers": {"fra-1--chat": server}}]}
    assert what_failed(result) == "not in service at the gateway gw-a: fra-1--chat (L4CON Connection refused)"


def test_figures_measured_at_the_beginning_of_an_update_take_precedence_over_kept_ones():
    slots = {"chat": {"good": {"record": {"tokens_per_s": 10}}}, "quick": {"good": {"record": {"tokens_per_s": 20}}}}
    measured = [{"item": "chat", "figures": {"tokens_per_s": 11}}, {"skipped": True}]
    assert baselines_of(slots, measured) == {"chat": {"tokens_per_s": 11}, "quick": {"tokens_per_s": 20}}


def test_a_step_has_the_states_that_it_leaves():
    options = {"gateways": [], "gates": [], "baselines": {}, "step": "done", "detail": "", "failed": {}}
    kept = [{"item": {"key": "chat"}, "digest": "d1"}, {"item": {"key": "quick"}}]
    (event,) = events_of("fra-1", {**options, "kept": kept})
    assert event == {"event": "step", "host": "fra-1", "step": "done", "detail": "", "states": {"chat": "d1"}}
    assert events_of("fra-1", {**options, "step": "", "kept": kept}) == []
