# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a group needs no whole plan; test_plan.py has the plans of every strategy and rank."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTable
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.groups import check_spanning, role_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError


def test_a_release_that_cannot_span_hosts_names_the_first_that_can():
    able = OptionTable.from_data({"version": "0.13.0", "flags": {"nnodes": {"kind": "integer"}}, "env": []})
    newer = OptionTable.from_data({"version": "0.20.2", "flags": {"nnodes": {"kind": "integer"}}, "env": []})
    old = OptionTable.from_data({"version": "0.11.0", "flags": {}, "env": []})
    with pytest.raises(PlanError) as caught:
        check_spanning("multi_node_tp", old, [newer, able], "0.11.0", "vllm_instances.chat")
    assert str(caught.value) == (
        "vllm_instances.chat.strategy: multi_node_tp needs --nnodes, which vLLM 0.11.0 (release '0.11.0') does not "
        "have; choose vllm_release '0.13.0' or newer. Ray, which older releases need for it, is not set up by this "
        "collection"
    )
    check_spanning("multi_node_tp", able, [], "0.13.0", "vllm_instances.chat")
    check_spanning("single_node_tp", old, [], "0.11.0", "vllm_instances.chat")


@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("multi_node_tp", ["head", "worker"]),
        ("multi_node_tp_dp", ["head", "worker"]),
        ("multi_node_dep", ["peer", "peer"]),
    ],
)
def test_roles(strategy, roles):
    assert [role_of(strategy, rank) for rank in (0, 1)] == roles
