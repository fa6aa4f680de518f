# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever HAProxy answers and a gateway's files hold: a view, or one sentence; never a crash."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.admin_socket_host import unread_files
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.drain_host import GatewayServers
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.haproxy_host import GatewayPaths
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.records_host import OwnersFile
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import (
    DRAINED,
    RETURNED,
    STATUS,
    Selection,
    ServersError,
    ServersRequest,
    describe_server,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.state import (
    StateError,
    read_kept_states,
    read_view,
)

from tests.fakes.fuzz import (
    NASTY_TEXTS,
    assert_enough,
    assert_presentable,
    cases,
    mutated,
    mutated_text,
    told_apart,
    within,
)

RECORDED = (Path(__file__).parents[4] / "fixtures" / "haproxy" / "2.6.12.txt").read_text()
OWNERS = {
    "schema": 1,
    "servers": {
        "gpu-1--chat": {"owner": "admin:alice", "reason": "fans", "since": "2026-11-22T03:01:00Z", "state": "drain"}
    },
}


def answer(choose):
    """Return a recorded answer with changes; most of them leave its end as it is."""
    text = mutated_text(choose, RECORDED)
    return text if choose.random() < 0.3 else text.rstrip("\n") + "\n\n"


def test_the_recording_is_a_view():
    assert read_view(RECORDED).servers


def test_whatever_haproxy_answers_it_is_a_view_or_one_sentence():
    read = 0
    for label, choose in cases("haproxy", 300):
        with told_apart(label):
            text = answer(choose)
            try:
                view = within(60, lambda text=text: read_view(text))
            except StateError as exc:
                assert_presentable(str(exc), 1000)
                assert not any(word in str(exc) for word in ("Error(", "KeyError", "NoneType", "int()"))
                continue
            read += 1
            json.dumps(view.backends())
            for server in view.servers.values():
                assert_presentable(describe_server(server, {}), 500)
                assert server.sessions >= 0 and 0 <= server.port < 65536
    assert_enough(read, 30, "read")


def test_whatever_the_saved_states_hold_they_are_read_or_count_for_nothing():
    _info, _mark, states = RECORDED.partition("\n# be_id ")
    kept = f"1\n# be_id {states.partition(chr(10) * 2)[0]}\n"
    assert read_kept_states(kept)
    for label, choose in cases("server-state", 300):
        with told_apart(label):
            found = within(60, lambda text=mutated_text(choose, kept): read_kept_states(text))  # noqa: B008
            assert set(found.values()) <= {"ready", "drain", "maint"}


def test_whatever_the_owners_file_holds_it_is_read_or_one_warning(tmp_path):
    path = tmp_path / "drained.json"
    for label, choose in cases("owners", 300):
        with told_apart(label):
            text = json.dumps(mutated(choose, OWNERS), default=lambda _value: None, skipkeys=True)
            text = mutated_text(choose, text) if choose.random() < 0.3 else text
            path.write_text(text, encoding="utf-8")
            owners = OwnersFile(str(path), "gw-1")
            within(60, owners.read)
            for warning in owners.warnings:
                assert_presentable(warning, 2000)


def test_whatever_haproxy_answers_to_commands_a_drain_ends_with_one_sentence(tmp_path, monkeypatch):
    """Each connection gets another answer."""
    paths = GatewayPaths(
        *(str(tmp_path / name) for name in ("socket", "config", "state", "drained.json", "arrivals", "tool"))
    )
    monkeypatch.setattr(
        "ansible_collections.baremetal.inference.plugins.module_utils.gateway.haproxy_host.PART_SECONDS", 0.3
    )
    Path(paths.tool).write_text("")
    ended = 0
    for label, choose in cases("drain", 40):
        with told_apart(label), Haproxy(paths.socket, choose):
            gateway = GatewayServers(paths)
            state = choose.choice((DRAINED, RETURNED, STATUS))
            request = ServersRequest(state, "admin:alice", "fans", 0, True, "2026-11-22T03:01:00Z")
            names = [choose.choice(sorted(read_view(RECORDED).servers))]
            try:
                outcome = within(60, lambda: gateway.change(Selection(names), request, False))  # noqa: B023 - runs at once
                within(60, lambda: gateway.wait(outcome, request, 0.2))  # noqa: B023
            except ServersError as exc:
                assert_presentable(str(exc).replace("\n", " "), 2000)
            else:
                ended += 1
            unread_files(paths.socket, [paths.config])
        for path in (paths.owners_file, paths.socket):
            Path(path).unlink(missing_ok=True)
    assert_enough(ended, 3, "ended well")


class Haproxy:
    """An admin socket that gives changed answers now and then."""

    def __init__(self, path, choose):
        self._choose = choose
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(16)

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_exc):
        # A thread in accept() holds the socket open; this ends it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self):
        while True:
            try:
                connection, _address = self._listener.accept()
                with connection:
                    command = connection.recv(65536)
                    connection.sendall(self._answer(command).encode("utf-8", "surrogateescape"))
            except OSError:
                return

    def _answer(self, command):
        if command.startswith(b"show"):
            return answer(self._choose) if self._choose.random() < 0.3 else RECORDED
        return self._choose.choice(("\n", "\n", "\n", "No such server.\n", *NASTY_TEXTS))
