# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances are restarted or still work, and where they go back to."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.filter.gateways import server_names, servers_without_slot
from ansible_collections.baremetal.inference.plugins.filter.instances import (
    busy_instances,
    instance_checks,
    instance_restarts,
    instance_restores,
)

PLANS = {
    "chat": {"instance": "chat", "container": None, "image": ""},
    "code": {"instance": "code", "container": {"name": "vllm-code"}, "image": "vllm/vllm-openai:v1"},
}
SLOTS = {"chat": {"good": {"digest": "a"}, "previous": None}, "old": {"good": {"digest": "b"}}, "new": {"good": None}}


def loop(*entries):
    return {"results": [{"item": item, "changed": changed} for item, changed in entries]}


def test_nothing_is_restarted_where_nothing_ran_and_nothing_changed():
    assert instance_restarts(PLANS, [{}, {}], {}) == []
    assert instance_restarts(PLANS, [loop(({"restarts": ["chat", "code"], "unit": True}, False))]) == []
    assert (
        instance_restarts(PLANS, [{"results": [{"item": {"restarts": ["chat"], "unit": False}, "skipped": True}]}])
        == []
    )


def test_a_changed_file_restarts_the_instances_that_it_starts_each_once():
    files = [
        loop(({"restarts": ["chat"], "unit": False}, True)),
        loop(({"restarts": ["chat", "code"], "unit": True}, True)),
    ]
    assert instance_restarts(PLANS, files) == ["chat", "code"]
    assert instance_restarts(PLANS, files[:1], units_only=True) == []


def test_what_a_running_instance_takes_over_restarts_nothing():
    item = {"restarts": ["chat"], "unit": False}
    live = {"results": [{"item": item, "changed": True, "live": True}]}
    other = {"results": [*live["results"], {"item": item, "changed": True, "live": False}]}
    assert instance_restarts(PLANS, [live]) == [] and instance_restarts(PLANS, [live], with_live=True) == ["chat"]
    # Its environment, or its unit, has changed too; or an earlier run has not restarted it.
    assert instance_restarts(PLANS, [other]) == instance_restarts(PLANS, [live], stale=["chat"]) == ["chat"]


def test_a_new_image_restarts_what_runs_in_it():
    assert instance_restarts(PLANS, images=loop(("vllm/vllm-openai:v1", True))) == ["code"]
    assert instance_restarts(PLANS, images=loop(("vllm/vllm-openai:v1", False))) == []
    assert instance_restarts(PLANS, images=loop(("", True))) == []


def test_what_runs_with_older_files_is_restarted_where_it_is_planned():
    assert instance_restarts(PLANS, stale=["unlisted", "code"]) == ["code"]


def test_every_kept_instance_goes_back_unless_single_ones_are_named():
    assert instance_restores(SLOTS) == {"chat": "good", "old": "good"}
    assert instance_restores(SLOTS, "previous") == {"chat": "previous", "old": "previous"}
    assert instance_restores(SLOTS, states={}) == {}
    assert instance_restores(SLOTS, states={"chat": "good", "new": "good", "gone": "good"}) == {"chat": "good"}
    # A digest that is not there is an error of the module, which names what is there.
    assert instance_restores(SLOTS, states={"new": "0123456789abcdef"}) == {"new": "0123456789abcdef"}


def test_servers_of_instances_that_were_never_kept():
    servers = ["h--chat", "h--new", "h--unknown"]
    assert servers_without_slot(servers, SLOTS, "h") == ["h--new"]
    assert servers_without_slot(servers, SLOTS, "g") == []
    assert servers_without_slot(["h_1--new"], SLOTS, "h@1") == ["h_1--new"]


def test_an_instance_has_the_name_of_its_server_at_the_gateways():
    assert server_names(["chat", "chat-2"], "gpu-01.site:1") == ["gpu-01.site:1--chat", "gpu-01.site:1--chat-2"]
    assert server_names(["chat"], "gpu 1@b") == ["gpu_1_b--chat"]


def test_instances_that_still_work():
    entries = [{"item": "chat", "idle": True}, {"item": "code", "idle": False}, {"item": "new", "failed": True}]
    assert busy_instances({"results": entries}) == ["code"]
    assert busy_instances({"results": [{"item": "chat", "skipped": True}]}) == []


@pytest.mark.parametrize("waited", [None, {}, {"skipped": True}])
def test_a_wait_that_did_not_run_leaves_no_instance_at_work(waited):
    assert busy_instances(waited) == []


def test_the_checks_of_an_entry_are_those_of_its_replicas():
    instances = {"vectors": {"recipe": "x/y", "checks": ["models", "embedding"]}, "chat-2": {"recipe": "x/y"}}
    assert instance_checks(instances, "vectors") == instance_checks(instances, "vectors-12") == ["models", "embedding"]
    assert instance_checks(instances, "chat-2") == instance_checks(instances, "other") == instance_checks({}, "x") == []
