# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.state_dir import (
    PLACES,
    StateDirError,
    state_dir,
)

TOP = Path(__file__).resolve().parents[5]


def test_one_variable_moves_every_directory():
    assert {state_dir(name, {"BAREMETAL_STATE_DIR": "/state/"}) for name in PLACES} == {
        "/state/rollouts", "/state/discovery", "/state/gateway-ca", "/state/gateway-secret", "/state/accept-results",
        "/state/bench-results", "/state/bmc-logs", "/state/evaluate-results", "/state/tune-results",
    }  # fmt: skip


@pytest.mark.parametrize("unset", [{}, {"BAREMETAL_STATE_DIR": ""}])
def test_without_the_variable_nothing_moves(unset):
    found = {name: state_dir(name, {"HOME": "/home/alice", **unset}) for name in PLACES}
    assert found == {
        "rollouts": "/home/alice/.local/state/baremetal-inference/rollouts",
        "discovery": "~/.ansible/accelerators",
        "gateway-ca": "",
        "gateway-secret": "",
        "accept-results": "accept-results",
        "bench-results": "bench-results",
        "bmc-logs": "bmc-logs",
        "evaluate-results": "evaluate-results",
        "tune-results": "tune-results",
    }
    moved = state_dir("rollouts", {"HOME": "/home/alice", "XDG_STATE_HOME": "/var/alice", **unset})
    assert moved == "/var/alice/baremetal-inference/rollouts"


def test_the_users_home_may_be_written_short(monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    assert state_dir("rollouts", {"BAREMETAL_STATE_DIR": "~/state"}) == "/home/alice/state/rollouts"


def test_a_relative_path_would_mean_another_directory_for_each_run():
    with pytest.raises(StateDirError) as caught:
        state_dir("rollouts", {"BAREMETAL_STATE_DIR": "state"})
    assert str(caught.value) == "BAREMETAL_STATE_DIR: found 'state', expected an absolute path"


def test_an_unknown_directory_is_named_with_its_nearest():
    with pytest.raises(StateDirError) as caught:
        state_dir("rollout", {})
    assert str(caught.value) == "state_dir: there is no directory 'rollout'; nearest: 'rollouts'"


def test_the_page_of_the_execution_environment_lists_every_directory():
    page = (TOP / "docs/operate/execution-environment.md").read_text()
    assert [name for name in PLACES if f"| `{name}` |" not in page] == []


def test_the_documentation_of_the_lookup_lists_every_directory():
    source = (TOP / "plugins/lookup/state_dir.py").read_text().split('"""')[1]
    assert yaml.safe_load(source)["options"]["_terms"]["choices"] == list(PLACES)
