# SPDX-License-Identifier: GPL-3.0-or-later
"""The service of shared chips; test_residents.py of the role runs it as a process."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd import Unit
from ansible_collections.baremetal.inference.plugins.module_utils.residents import service_host
from ansible_collections.baremetal.inference.plugins.module_utils.residents.turns import Action


def test_the_instances_of_a_group_are_found_in_their_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(service_host, "CONFIG_DIR", str(tmp_path))
    for name, text in {
        "a": 'RESIDENTS="x"',
        "b": "A=1\nRESIDENTS=x",
        "c": 'RESIDENTS="xy"',
        "d": "# RESIDENTS=x",
    }.items():
        (tmp_path / f"{name}.env").write_text(text + "\n")
    assert service_host.read_names("x") == ["a", "b"]


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A service whose group has no instance."""
    for name, place in (("CONFIG_DIR", "etc"), ("OWN", "own")):
        (tmp_path / place / "chips0").mkdir(parents=True)
        monkeypatch.setattr(service_host, name, str(tmp_path / place))
    monkeypatch.setattr(service_host, "IDLE", 0.01)
    return service_host.Service("chips0", 1.0)


@pytest.mark.parametrize("error", [KeyError("name"), TypeError("odd"), RecursionError("deep"), AssertionError()])
def test_a_round_that_fails_is_reported_and_the_next_one_follows(service, monkeypatch, capsys, error):
    rounds = []

    def step():
        rounds.append(1)
        if len(rounds) < 3:
            raise error
        return False

    monkeypatch.setattr(service, "step", step)
    monkeypatch.setattr(service_host.Program, "replaced", lambda _self: len(rounds) >= 4)
    service.run()
    assert len(rounds) == 4
    assert f"The round failed, and is tried again: {type(error).__name__}" in capsys.readouterr().out


def test_systemd_without_an_answer_decides_nothing(service, monkeypatch, capsys):
    monkeypatch.setattr(
        service, "refresh", lambda names=False: (each for each in ()).throw(OSError("systemd does not answer"))
    )
    assert service.step() is False
    assert capsys.readouterr().out == "systemd does not answer\n"


def test_it_says_when_each_loop_last_worked(service, tmp_path):
    service.loops["turns"].worked_at = 5.0
    service._write_worked()
    assert json.loads((tmp_path / "own/chips0/worked").read_text())["turns"] == 5.0


def connected(place):
    """Connect as soon as the service listens."""
    deadline = time.monotonic() + 60
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(place))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return connection


@pytest.mark.parametrize("word", [b"\xff\xff\n", b"x" * 100_000, b"\n", b""])
def test_odd_words_at_the_socket_end_no_thread_and_hold_nobody_up(service, tmp_path, word):
    threading.Thread(target=service.listen, daemon=True).start()
    place, deadline = tmp_path / "own/chips0/socket", time.monotonic() + 60
    with connected(place) as odd:
        odd.sendall(word)
    with connected(place) as connection:
        connection.settimeout(60)
        connection.sendall(b"chat\n")
        while "chat" not in service.granted:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        service.units["chat"] = Unit()
        service.start("chat")
        assert connection.recv(10) == b"go\n"


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (Unit("activating", "start", "one"), ""),
        (Unit("activating", "start-post", "one"), ""),
        (Unit("active", "running", "one"), "chat has started\n"),
        (Unit("failed", "failed", "one"), "chat did not start; the others may have the chips\n"),
        (Unit("activating", "auto-restart", "one"), "chat did not start; the others may have the chips\n"),
        # The next attempt has to ask for its own turn.
        (Unit("activating", "start", "two"), "chat did not start; the others may have the chips\n"),
        (Unit("active", "running", "two"), "chat did not start; the others may have the chips\n"),
    ],
    ids=lambda found: f"{found.sub} {found.invocation}" if isinstance(found, Unit) else "",
)
def test_a_start_holds_the_chips_until_its_run_has_started_or_ended(service, capsys, unit, said):
    service.turns.starting, service.held = "chat", Unit("activating", "start", "one")
    service.units = {"chat": unit}
    service.follow_start()
    assert (service.turns.starting, capsys.readouterr().out) == ("" if said else "chat", said)


def test_actions_have_a_method(service):
    assert all(callable(getattr(service, Action(verb, "a").verb)) for verb in ("sleep", "wake", "open", "start"))
