# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of the gateway's unit, roles/gateway/files/gateway-tool.py."""

from __future__ import annotations

import errno

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.haproxy_host import GatewayPaths, HaproxyHost

from tests.fakes.gateways import loaded
from tests.fakes.kills import killed_at

tool = loaded("gateway-tool")

CONFIG = "backend chat\n    server gpu-01:chat 10.0.0.1:8000 check agent-port 9000\n"
HEAD = "1\n# be_name srv_name srv_admin_state srv_port srv_agent_port\n"
STATE = f"{HEAD}chat gpu-01:chat 1 7999 8999\nchat gone 0 7999 8999\n\n"
FITTED = f"{HEAD}chat gpu-01:chat 1 8000 9000\n\n"


def test_a_saved_state_gets_the_ports_of_the_configuration_and_loses_servers_that_left_it():
    assert tool.fitted(STATE, CONFIG) == FITTED


def test_a_text_that_is_no_state_stays_as_it_is():
    assert tool.fitted("", CONFIG) == ""
    assert tool.fitted("1\nno header\n", CONFIG) == "1\nno header\n"


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
    monkeypatch.setattr(tool, "_send", lambda _admin, _command: STATE.rstrip("\n"))
    with pytest.raises(SystemExit, match="incomplete"):
        tool.save("admin.sock", str(path), str(config))
    assert path.read_text() == "before"
    monkeypatch.setattr(tool, "_send", lambda _admin, _command: STATE)
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


def test_a_kill_at_any_step_leaves_the_old_text_or_the_new_one(tmp_path):
    path, seen = tmp_path / "state", set()
    for call in range(1, 100):
        path.write_text("old")
        was_killed = killed_at(call, lambda: tool._write(str(path), "new"))
        seen.add(path.read_text())
        if not was_killed:
            break
    assert not was_killed
    assert path.read_text() == "new"
    assert seen == {"old", "new"}


def test_a_full_disk_leaves_the_old_text_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "state"
    path.write_text("old")

    def refuse(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tool.os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        tool._write(str(path), "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    assert path.read_text() == "old"


class TestTool:
    STATE = (
        "1\n# be_id be_name srv_id srv_name srv_admin_state srv_port srv_agent_port\n"
        "4 chat 1 a--chat 8 8000 1\n4 chat 2 gone 8 8000 1\n\n"
    )

    def test_a_state_gets_the_ports_of_the_configuration(self):
        config = "backend other\n    server a--chat 10.0.0.1:1\nbackend chat\n    default-server agent-port 8405\n"
        config += "    server a--chat [::1]:9 x\n"
        assert tool.fitted(self.STATE, config).splitlines()[2:] == ["4 chat 1 a--chat 8 9 8405", ""]

    def test_arrivals_of_the_shared_address_are_counted(self, tmp_path):
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

    def test_a_worker_that_does_not_answer_is_none(self, tmp_path):
        assert tool._worker(str(tmp_path / "none")) == ""

    def test_what_is_no_state_is_left_alone(self):
        assert tool.fitted("x\n", "") == "x\n"
