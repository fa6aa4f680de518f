# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.server_report import owner_of, planned


def outcome(state="drain"):
    return SimpleNamespace(change=SimpleNamespace(records={"a--chat": {"state": state}}))


def request(state, reason=""):
    return SimpleNamespace(state=state, owner="admin:alice", reason=reason)


def test_check_mode_says_what_a_server_would_be():
    assert planned(outcome(), "a--chat", request("ready")) == "ready"
    assert planned(outcome(), "a--chat", request("drained", "new fans")) == "drained by admin:alice (new fans)"
    assert planned(outcome("maint"), "a--chat", request("drained")) == "in maintenance by admin:alice"


def test_a_server_without_a_record_has_no_owner():
    server = SimpleNamespace(name="a--chat", backend="chat", state="ready")
    assert owner_of(server, {}) == {"owner": "", "reason": "", "since": ""}
