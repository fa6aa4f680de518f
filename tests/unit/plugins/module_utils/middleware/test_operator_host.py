# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may call vLLM's endpoints for operators."""

from __future__ import annotations

import os
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import operator_host
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import RECORDS_PATH

TOKEN = "a" * 32


@pytest.fixture
def guard(tmp_path, monkeypatch):
    monkeypatch.setenv(operator_host.VARIABLE, "1")
    return operator_host.Guard(str(tmp_path))


def request(path, token=None, **more):
    headers = [] if token is None else [(b"operator-token", token.encode())]
    return {"type": "http", "path": path, "headers": headers, **more}


CLOSED = ["/sleep", "/wake_up", "/collective_rpc", "/reset_prefix_cache", "/v1/load_lora_adapter", "/server_info"]
CLOSED += ["/v1/unload_lora_adapter", "/v1/load_lora_adapter/", "/SLEEP", "//sleep", "/sleep/", "/new_in_some_release"]


@pytest.mark.parametrize("path", CLOSED)
def test_clients_do_not_reach_what_is_for_operators(guard, tmp_path, path):
    assert guard.forbids(request(path))
    (tmp_path / "operator").write_text(TOKEN + "\n")
    assert guard.forbids(request(path))
    assert guard.forbids(request(path, "b" * 32))
    assert not guard.forbids(request(path, TOKEN))
    (tmp_path / "operator").unlink()
    assert guard.forbids(request(path, TOKEN))


@pytest.mark.parametrize("text", ["", "short", "\n"])
def test_an_empty_or_short_token_opens_nothing(guard, tmp_path, text):
    (tmp_path / "operator").write_text(text)
    assert guard.forbids(request("/sleep", text.strip()))


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/health", "/metrics", "/tokenize", RECORDS_PATH]
)
def test_what_clients_and_monitoring_need_stays_open(guard, path):
    assert not guard.forbids(request(path))


def test_a_root_path_is_not_a_way_around(guard):
    assert guard.forbids(request("/llm/sleep", root_path="/llm"))
    assert not guard.forbids(request("/llm/v1/models", root_path="/llm"))


def test_without_such_endpoints_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv(operator_host.VARIABLE, raising=False)
    assert not operator_host.Guard(str(tmp_path)).forbids(request("/sleep"))


@pytest.mark.parametrize(("age", "is_open"), [(0, True), (3500, True), (3700, False)])
def test_an_old_token_that_a_killed_program_has_left_opens_nothing(guard, tmp_path, age, is_open):
    (tmp_path / "operator").write_text("t" * 64)
    os.utime(tmp_path / "operator", (time.time() - age,) * 2)
    assert guard.forbids(request("/sleep", "t" * 64)) is not is_open
