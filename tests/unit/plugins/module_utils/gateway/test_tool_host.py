# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of the gateway's unit."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import tool_host as tool
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.haproxy_host import GatewayPaths, HaproxyHost

CONFIG = "backend chat\n    server gpu-01:chat 10.0.0.1:8000 check agent-port 9000\n"
HEAD = "1\n# be_name srv_name srv_admin_state srv_port srv_agent_port\n"
STATE = f"{HEAD}chat gpu-01:chat 1 7999 8999\nchat gone 0 7999 8999\n\n"
FITTED = f"{HEAD}chat gpu-01:chat 1 8000 9000\n\n"


def test_fit_changes_a_file_once_and_does_not_make_one(tmp_path):
    state, config = tmp_path / "state", tmp_path / "haproxy.cfg"
    config.write_text(CONFIG)
    tool.fit(str(state), str(config))
    assert not state.exists()
    state.write_text(STATE)
    tool.fit(str(state), str(config))
    assert state.read_text() == FITTED
    before = state.stat().st_ino
    tool.fit(str(state), str(config))
    assert state.stat().st_ino == before


def test_a_truncated_answer_of_haproxy_is_not_saved(tmp_path, monkeypatch):
    path, config = tmp_path / "state", tmp_path / "haproxy.cfg"
    config.write_text(CONFIG)
    path.write_text("before")
    monkeypatch.setattr(tool, "ask_root", lambda _admin, _command: STATE.rstrip("\n"))
    with pytest.raises(SystemExit, match="incomplete"):
        tool.save("admin.sock", str(path), str(config))
    assert path.read_text() == "before"
    monkeypatch.setattr(tool, "ask_root", lambda _admin, _command: STATE)
    tool.save("admin.sock", str(path), str(config))
    assert path.read_text() == FITTED


def test_without_haproxy_the_last_saved_states_are_kept(tmp_path, capsys):
    (tmp_path / "state").write_text("before")
    tool.save(str(tmp_path / "no.sock"), str(tmp_path / "state"), str(tmp_path / "haproxy.cfg"))
    assert (tmp_path / "state").read_text() == "before"
    assert "are kept" in capsys.readouterr().err


@pytest.mark.parametrize(("before", "after"), [(None, "1\n"), ("4\n", "5\n"), ("damaged", "1\n")])
def test_an_arrival_of_the_shared_address_is_counted(tmp_path, before, after):
    path = tmp_path / "arrivals"
    if before is not None:
        path.write_text(before)
    tool.arrived(str(path))
    assert path.read_text() == after


def test_a_configuration_that_cannot_be_read_loses_no_state(tmp_path, monkeypatch):
    (tmp_path / "state").write_text("before")
    monkeypatch.setattr(tool, "ask_root", lambda _admin, _command: STATE)
    with pytest.raises(FileNotFoundError):
        tool.save("admin.sock", str(tmp_path / "state"), str(tmp_path / "none.cfg"))
    assert (tmp_path / "state").read_text() == "before"


def test_arrivals_of_the_shared_address_are_counted(tmp_path):
    path = tmp_path / "arrivals"
    paths = GatewayPaths(arrivals_file=str(path))
    counts = []
    for text in (None, "2\n", "x", "9" * 20):
        if text is not None:
            path.write_text(text)
        counts.append(HaproxyHost(paths).address_arrivals())
        tool.arrived(str(path))
        counts.append(int(path.read_text()))
    assert counts == [0, 1, 2, 3, 0, 1, 0, 1]


def test_a_worker_that_does_not_answer_is_none(tmp_path):
    assert tool._worker(str(tmp_path / "none")) == ""
