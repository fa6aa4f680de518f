# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has, from a tree of files."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.removal.model import Site

A, B = "a" * 40, "b" * 40
VENV = "0.32.0-cpu-0123456789ab"


def test_an_instance_is_found_by_any_trace(there):
    there.template("chat")
    there.write("/etc/vllm/left.secrets", "KEY=1\n", 0o600)
    there.write("/etc/systemd/system/vllm@unit.service", "")
    there.write("/etc/containers/systemd/vllm@pod.container", "")
    there.write("/etc/systemd/system/vllm@drop.service.d/mine.conf", "")
    there.write("/var/cache/vllm/cached/kernel", "x")
    found = there.inspection().read("instance").instances
    assert sorted(found) == ["cached", "chat", "drop", "left", "pod", "unit"]
    assert found["cached"] >= 4096


def test_models_in_the_directory_of_instances_are_no_instance(there):
    there.template("chat")
    there.write("/var/lib/vllm/models/example/tiny/config.json", "{}")
    inspection = there.inspection()
    inspection.site = Site(weights_root="/var/lib/vllm/models", user="nobody-has-this-name")
    found = inspection.read("everything")
    assert list(found.instances) == ["chat"]
    assert "/var/lib/vllm" not in found.base


def test_revisions_are_told_apart(there):
    there.weights(A)
    there.weights(B, stamp=False)
    there.write(f"/srv/models/example/tiny/.{'c' * 40}.partial/x", "x")
    there.write("/srv/models/example/tiny/notes/x", "x")
    (model,) = there.inspection().models()
    assert (model.name, model.shared) == ("example/tiny", False)
    assert [(each.name, each.state) for each in model.revisions] == [
        (f".{'c' * 40}.partial", "abandoned"),
        (A, "complete"),
        (B, "foreign"),
    ]


def test_a_model_that_is_a_link_is_somebody_elses(there):
    there.weights(A)
    there.at("/srv/models/example/link").symlink_to("tiny")
    assert [model.name for model in there.inspection().models()] == ["example/tiny"]


def test_a_model_on_a_network_file_system_is_shared(there):
    there.weights(A)
    (there.proc / "self/mountinfo").write_text("1 1 0:1 / / rw - nfs4 server:/ rw\n")
    assert there.inspection().models()[0].shared


def test_environments_and_the_remains_of_killed_runs(there):
    for name in (VENV, f".{VENV}.removed", "uv-0.9.0", "mine", f".{VENV}.odd"):
        there.venv(name)
    found = there.inspection().environments()
    assert [(each.name, each.state) for each in found] == [(VENV, "abandoned"), (VENV, "complete")]


@pytest.mark.parametrize("kind", ["model", "environment"])
def test_instances_kept_states_and_processes_are_users(there, kind):
    there.template(venv=VENV, revision=A)
    slot = f"/var/lib/vllm/chat/slots/{'0' * 16}"
    there.at(slot).mkdir(parents=True)
    there.at(f"{slot}/model").symlink_to(there.weights(B))
    process = there.proc / "71"
    process.mkdir()
    (process / "cmdline").write_text(f"{there.root}/opt/vllm/{VENV}/bin/python\0{A}\0")
    (process / "comm").write_text("python\n")
    uses = there.inspection().read(kind).uses
    assert {use.by for use in uses} == {"instance chat", f"the kept state {'0' * 16} of chat", "process 71 (python)"}
    assert f"/srv/models/example/tiny/{B}" in {use.model for use in uses}
    assert f"/opt/vllm/{VENV}" in {use.venv for use in uses}


def test_a_rollout_at_work_is_seen(there):
    assert there.inspection().rollout() == ""
    there.write("/var/lib/baremetal-rollout/fra1.json", "{}")
    assert "/var/lib/baremetal-rollout/fra1.json" in there.inspection().rollout()
    there.write("/var/lib/vllm/rollout.json", '{"id": "x"}')
    assert "rollout.json" in there.inspection().rollout()
