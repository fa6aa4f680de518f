# SPDX-License-Identifier: GPL-3.0-or-later
"""What a gateway's HAProxy answers, and what is said where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import haproxy_host
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.haproxy_host import (
    GatewayPaths,
    HaproxyHost,
    NoAnswerError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import ServersError

# What HAProxy 2.6.12 answers; the first server is drained by hand.
ANSWER = (Path(__file__).resolve().parents[4] / "fixtures/haproxy/2.6.12.txt").read_text()
STATES = ANSWER[ANSWER.index("\n1\n# be_id") + 1 : ANSWER.index("\n# pxname")]
FIRST, SECOND = "gw--chat-1", "gw--chat-2"


@pytest.fixture
def host(tmp_path):
    names = {"state_file": "server-state", "arrivals_file": "arrivals", "tool": "tool.py"}
    return HaproxyHost(GatewayPaths(**{name: str(tmp_path / file) for name, file in names.items()}))


@pytest.fixture
def answers(monkeypatch):
    """The answers of HAProxy, the last one for ever; an exception is raised. No replaced worker has a request."""
    left = []

    def ask(_path, _command):
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(haproxy_host, "ask_root", ask)
    monkeypatch.setattr(haproxy_host, "replaced_sessions", lambda _pid, _ports: {})
    monkeypatch.setattr(haproxy_host, "_PAUSE_SECONDS", 0.001)
    return left


def test_a_haproxy_that_does_not_answer_is_another_error_than_a_lack_of_rights(host, answers):
    """The first may pass: it restarts. The second does not."""
    answers[:] = [ConnectionRefusedError(111, "Connection refused")]
    with pytest.raises(NoAnswerError, match=r"HAProxy does not answer at /run/haproxy/admin.sock \(Connection refused"):
        host.view()
    answers[:] = [PermissionError(13, "Permission denied")]
    with pytest.raises(ServersError, match="only root may use it; run the task with become: true") as raised:
        host.view()
    assert not isinstance(raised.value, NoAnswerError)


@pytest.mark.parametrize("answer", [ANSWER[:-200], "", "Unknown command\n\n", ANSWER.replace("Pid: ", "Pod: ")])
def test_half_an_answer_is_none(host, answers, answer):
    answers[:] = [answer]
    with pytest.raises(ServersError, match=r"admin.sock: .*, expected the answer of HAProxy 2\.6 or later"):
        host.view()


def test_requests_of_a_replaced_worker_still_run_at_the_server(host, answers, monkeypatch):
    """A drain that did not see them would let a host restart under them."""
    answers[:] = [ANSWER]
    server = host.view().servers[FIRST]
    monkeypatch.setattr(haproxy_host, "replaced_sessions", lambda _pid, _ports: {(server.host, server.port): 3})
    view = host.view()
    assert view.servers[FIRST].sessions == server.sessions + 3
    assert view.servers[SECOND].sessions == 0


def test_a_kernel_that_does_not_say_who_is_connected_is_an_error(host, answers, monkeypatch):
    def silent(_pid, _ports):
        raise OSError("netlink")

    answers[:] = [ANSWER]
    monkeypatch.setattr(haproxy_host, "replaced_sessions", silent)
    with pytest.raises(ServersError, match=r"replaced workers .* \(netlink\).*load the kernel's module tcp_diag"):
        host.view()


def test_a_reload_is_waited_for_and_anything_else_is_not(host, answers, monkeypatch):
    answers[:] = [ConnectionRefusedError(), FileNotFoundError(), ANSWER]
    assert set(host.wait_for_view().servers) >= {FIRST, SECOND}
    answers[:] = [PermissionError()]
    with pytest.raises(ServersError, match="only root"):
        host.wait_for_view()
    monkeypatch.setattr(haproxy_host, "PART_SECONDS", 0.0)
    answers[:] = [ConnectionRefusedError()]
    with pytest.raises(NoAnswerError):
        host.wait_for_view()


def test_states_are_saved_by_the_tool_of_the_role(host, tmp_path):
    (tmp_path / "tool.py").write_text(
        "import sys; verb, socket, state, _config = sys.argv[1:]; open(state, 'w').write(verb + socket)"
    )
    host.save_states()
    assert (tmp_path / "server-state").read_text() == "save/run/haproxy/admin.sock"


@pytest.mark.parametrize(
    "tool", ["import sys; sys.exit('disk\\x1b full')", "import sys; print('warned', file=sys.stderr)"]
)
def test_states_that_could_not_be_saved_are_an_error_that_says_what_holds(host, tmp_path, tool):
    (tmp_path / "tool.py").write_text(tool)
    with pytest.raises(ServersError, match=r"HAProxy has the new server states, but .* could not save them") as raised:
        host.save_states()
    assert str(raised.value).isprintable()


def test_a_tool_that_hangs_is_not_waited_for(host, tmp_path, monkeypatch):
    monkeypatch.setattr(haproxy_host, "SAVE_SECONDS", 0.01)
    (tmp_path / "tool.py").write_text("import time; time.sleep(60)")
    with pytest.raises(ServersError, match="could not save them"):
        host.save_states()


@pytest.mark.parametrize(
    ("text", "count"), [(None, 0), ("7\n", 7), ("", 0), ("-1", 0), ("x", 0), ("\u0667", 0), ("9" * 5000, 0)]
)
def test_how_often_the_shared_address_has_come(host, tmp_path, text, count):
    if text is not None:
        (tmp_path / "arrivals").write_text(text, encoding="utf-8")
    assert host.address_arrivals() == count


def test_a_server_whose_state_is_not_saved_is_found(host, answers, tmp_path):
    answers[:] = [ANSWER]
    view = host.view()
    # Without the file all servers would be ready after a restart, also the drained one.
    assert host.unsaved_servers(view, [FIRST, SECOND]) == [FIRST]
    (tmp_path / "server-state").write_text(STATES)
    assert host.unsaved_servers(view, [FIRST, SECOND]) == []
    (tmp_path / "server-state").write_text("damaged")
    assert host.unsaved_servers(view, [FIRST, SECOND]) == [FIRST]
    assert host.unsaved_servers(view, [SECOND]) == []
