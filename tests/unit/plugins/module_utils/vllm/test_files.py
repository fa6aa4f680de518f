# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import (
    chat_templates,
    instance_files,
    middleware_of,
    unit_kind,
)

TEMPLATES = Path(__file__).resolve().parents[5] / "roles/vllm/templates"
VENV = {"instance": "chat", "runtime": "venv"}
CONTAINER = {"instance": "chat", "runtime": "container"}
COMMON = ["/etc/vllm/chat.env", "/etc/vllm/chat.yaml", "/etc/vllm/chat.secrets"]
OWN = ["/var/lib/vllm/chat/serve", "/etc/systemd/system/vllm@chat.service"]
ALL = [
    (VENV, {}, ["/var/lib/vllm/chat/serve", "/etc/systemd/system/vllm@.service"]),
    (CONTAINER, {}, OWN),
    (CONTAINER, {"engine": "podman", "quadlet": False}, OWN),
    (CONTAINER, {"engine": "podman", "quadlet": True}, ["/etc/containers/systemd/vllm@chat.container"]),
]


@pytest.mark.parametrize(("plan", "settings", "rest"), ALL)
def test_an_instance_has_the_same_files_whatever_runs_it(plan, settings, rest):
    files = instance_files(plan, {"user": "vllm", **settings})
    assert [entry["path"] for entry in files] == [*COMMON, *rest]
    assert all((TEMPLATES / entry["template"]).is_file() for entry in files)
    assert [entry["unit"] for entry in files] == [False] * (len(files) - 1) + [True]


def test_secrets_are_roots_alone():
    files = instance_files(VENV, {"user": "ai"})
    secret = [entry for entry in files if entry["secret"]]
    assert [(entry["owner"], entry["group"], entry["mode"]) for entry in secret] == [("root", "root", "0600")]
    assert [entry["group"] for entry in files[:2]] == ["ai", "ai"]


def test_a_host_that_nobody_asked_has_a_current_engine():
    assert unit_kind(CONTAINER, {}) == "unit"
    assert unit_kind(CONTAINER, {"engine": "podman"}) == "quadlet"
    assert unit_kind(VENV, {"engine": "podman"}) == "template"


GROUPED = {**VENV, "group": {"role": "worker"}}
GROUP = [
    "/etc/vllm/chat.group.json",
    "/etc/vllm/chat.nft",
    "/etc/systemd/system/vllm-group@.service",
    "/etc/systemd/system/vllm@chat.service.d/group.conf",
]


@pytest.mark.parametrize(("plan", "settings", "rest"), ALL)
def test_an_instance_that_spans_hosts_has_more_files(plan, settings, rest):
    files = instance_files({**plan, "group": {"role": "head"}}, {"user": "vllm", **settings})
    assert [entry["path"] for entry in files] == [*GROUP, *COMMON, *rest]
    assert all((TEMPLATES / entry["template"]).is_file() for entry in files)


ABLE = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "OPERATOR_GUARD": "1"}


@pytest.mark.parametrize(
    ("env", "adapters", "expected"),
    [
        (ABLE, ["sql=/a", {"name": "x", "path": "/x"}], ["lora-modules"]),
        (ABLE, None, ["lora-modules"]),
        # What the endpoint cannot be given comes with a restart.
        (ABLE, [{"name": "x", "path": "/x", "base_model_name": "m"}], []),
        (ABLE, ["sql=/a", "sql=/b"], []),
        ({}, ["sql=/a"], []),
        ({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}, ["sql=/a"], []),
    ],
)
def test_a_change_of_adapters_alone_restarts_nothing_where_the_engine_takes_it_over(env, adapters, expected):
    plan = {**VENV, "env": env, "args": {"lora-modules": adapters} if adapters else {}}
    found = {entry["path"]: entry.get("live_keys", []) for entry in instance_files(plan, {"user": "vllm"})}
    assert found.pop("/etc/vllm/chat.yaml") == expected and not any(found.values())


EXTRAS = {"residents": "gpu0", "preload": True}


def extra(kind):
    return [f"/etc/systemd/system/vllm-{kind}@.service", f"/etc/systemd/system/vllm@chat.service.d/{kind}.conf"]


@pytest.mark.parametrize("kind", EXTRAS)
@pytest.mark.parametrize(("plan", "settings", "rest"), ALL)
def test_an_instance_that_shares_its_chips_or_leaves_its_weights_there_has_two_more_files(plan, settings, rest, kind):
    files = instance_files({**plan, kind: EXTRAS[kind]}, {"user": "vllm", **settings})
    assert [entry["path"] for entry in files] == [*extra(kind), *COMMON, *rest]
    assert all((TEMPLATES / entry["template"]).is_file() for entry in files)


def test_hosts_that_compute_for_others_know_which_caches_to_fetch():
    group = {"role": "decode", "prefill": ["10.0.0.3:8000", "[fd00::4]:8000"]}
    found = middleware_of("chat", group)
    # vLLM calls the last one first: it restores the path that the other one checks.
    assert list(found.words) == ["--middleware", "availability.Availability", "--middleware", "routed.Routed"]
    assert found.env["PREFILL_HOSTS"] == "10.0.0.3 fd00::4"
    assert middleware_of("chat", {**group, "role": "prefill"}).env["PREFILL_HOSTS"] == ""
    assert "PREFILL_HOSTS" not in middleware_of("chat", {**group, "role": "head"}).env


def test_an_instance_that_names_a_chat_template_of_the_role_gets_its_file():
    path = "/usr/local/lib/vllm/tool_chat_template_gemma4.jinja"
    (entry,) = chat_templates({"args": {"chat-template": path}})
    assert (entry["path"], entry["src"]) == (path, "tool_chat_template_gemma4.jinja")
    assert chat_templates({"args": {"chat-template": "/srv/own.jinja"}}) == []
    assert chat_templates({}) == []
