# SPDX-License-Identifier: GPL-3.0-or-later
"""The door of a host over real connections; a systemctl that keeps its units in files stands in for systemd."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import scale_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance import scale_door_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.scale_door import RefusedError

SECRET = "s" * 32
SYSTEMCTL = """#!/bin/sh
verb=$1
for word in "$@"; do
  case $word in
    vllm@*.service)
      name=${word#vllm@}; file=$UNITS/${name%.service}
      case $verb in
        show) printf 'Id=%s\\n' "$word"; cat "$file"; echo ;;
        start) printf 'ActiveState=activating\\nSubState=start\\nActiveEnterTimestampMonotonic=0\\n' > "$file" ;;
        stop) printf 'ActiveState=inactive\\nSubState=dead\\nActiveEnterTimestampMonotonic=0\\n' > "$file" ;;
      esac ;;
  esac
done
"""
UP = "ActiveState=active\nSubState=running\nActiveEnterTimestampMonotonic=1000000\n"


class Host:
    """A host with the instances chat, which stops, and small, which sleeps."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for name in ("bin", "units", "etc", "run/chat", "run/small", "stopped"):
            (top / name).mkdir(parents=True)
        (top / "bin/systemctl").write_text(SYSTEMCTL)
        (top / "bin/systemctl").chmod(0o755)
        for name in ("chat", "small"):
            (top / "units" / name).write_text(UP)
        (top / "etc/scale.key").write_text(f"{SECRET} {'o' * 32}\n")
        self.door = scale_door_host.Door(
            {
                "host": "gpu-a",
                "listen": "127.0.0.1",
                "port": 0,
                "instances": {"chat": {"resident": False}, "small": {"resident": True}},
            }
        )
        self.address = f"127.0.0.1:{self.door.server_address[1]}"
        self.thread = threading.Thread(target=self.door.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def ask(self, gateway: str = "gw-a", secret: str = SECRET, host: str = "gpu-a", **more: Any) -> dict[str, Any]:
        return scale_host.ask_door(self.address, secret, {"gateway": gateway, "host": host, "report": {}, **more})

    def end(self) -> None:
        self.door.shutdown()
        self.door.server_close()
        self.thread.join()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(scale_door_host, "KEYS_FILE", str(tmp_path / "etc/scale.key"))
    monkeypatch.setattr(scale_door_host, "RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(scale_door_host, "STOPPED_DIR", str(tmp_path / "stopped"))
    monkeypatch.setattr(scale_door_host, "KEPT", 0)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("UNITS", str(tmp_path / "units"))
    found = Host(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_it_reports_the_instances_and_what_the_gateways_report(host: Host) -> None:
    host.ask("gw-b", report={"waiting": {"chat": 3}})
    answer = host.ask(report={"waiting": {"chat": 1}})
    assert {each["holder"] for each in answer["instances"].values()} == {"gw-a"}
    assert answer["reports"] == {"gw-a": {"waiting": {"chat": 1}}, "gw-b": {"waiting": {"chat": 3}}}
    chat = answer["instances"]["chat"]
    assert (chat["active"], chat["sub"], chat["spare"], chat["stopped"]) == ("active", "running", False, False)
    assert chat["seconds"] > 0


def test_it_stops_and_starts_what_its_file_names(host: Host) -> None:
    chat = host.ask(verb="stop", instance="chat")["instances"]["chat"]
    assert (chat["active"], chat["stopped"]) == ("inactive", True)
    assert host.ask(verb="start", instance="chat")["instances"]["chat"]["active"] == "activating"
    (host.top / "units/chat").write_text(UP.replace("=1000000", f"={time.monotonic() * 1e6:.0f}"))
    chat = host.ask()["instances"]["chat"]
    assert (chat["active"], chat["stopped"]) == ("active", False)


def test_a_stop_that_is_still_in_the_queue_of_systemd_is_not_forgotten(host: Host) -> None:
    (host.top / "bin/systemctl").write_text(SYSTEMCTL.replace("stop) printf", "stop-later) printf"))
    chat = host.ask(verb="stop", instance="chat")["instances"]["chat"]
    assert (chat["active"], chat["stopped"]) == ("active", True)
    (host.top / "units/chat").write_text(UP.replace("active", "inactive"))
    assert host.ask()["instances"]["chat"]["stopped"]
    # Somebody starts it: what that person stops later stays stopped.
    (host.top / "units/chat").write_text(UP.replace("=1000000", f"={time.monotonic() * 1e6 + 1e6:.0f}"))
    assert not host.ask()["instances"]["chat"]["stopped"]


def test_a_stop_that_systemd_refuses_leaves_no_note(host: Host) -> None:
    (host.top / "bin/systemctl").write_text(SYSTEMCTL.replace("stop) printf", "stop) exit 1; printf"))
    with pytest.raises(RefusedError, match=r"systemctl stop vllm@chat\.service failed"):
        host.ask(verb="stop", instance="chat")
    # So what a person stops now stays stopped.
    (host.top / "units/chat").write_text(UP.replace("active", "inactive"))
    assert not host.ask()["instances"]["chat"]["stopped"]


def test_a_replica_whose_engine_ends_at_each_start_says_so(host: Host) -> None:
    assert not host.ask()["instances"]["chat"]["restarts"]
    (host.top / "units/chat").write_text(f"{UP}NRestarts=2\n")
    assert host.ask()["instances"]["chat"]["restarts"]


def test_what_a_person_has_stopped_is_not_started(host: Host) -> None:
    (host.top / "units/chat").write_text(UP.replace("active", "inactive"))
    chat = host.ask(verb="start", instance="chat")["instances"]["chat"]
    assert (chat["active"], chat["stopped"]) == ("inactive", False)


def test_it_takes_an_instance_that_shares_chips_out_and_in_by_a_mark(host: Host) -> None:
    assert host.ask(verb="sleep", instance="small")["instances"]["small"]["spare"]
    assert (host.top / "run/small/spare").exists()
    assert not host.ask(verb="wake", instance="small")["instances"]["small"]["spare"]
    # The directory is vLLM's: a link is not followed.
    (host.top / "run/small/spare").symlink_to(host.top / "elsewhere")
    with pytest.raises(RefusedError):
        host.ask(verb="sleep", instance="small")
    assert not (host.top / "elsewhere").exists()


def test_a_run_of_the_playbook_wakes_every_instance_of_the_host(host: Host) -> None:
    # Also one that the file of the door no longer names.
    (host.top / "run/gone").mkdir()
    for name in ("small", "gone"):
        (host.top / f"run/{name}/spare").touch()
    (host.top / "elsewhere").mkdir()
    (host.top / "elsewhere/spare").touch()
    (host.top / "run/link").symlink_to(host.top / "elsewhere")
    assert scale_door_host.wake_all() == ["gone", "small"]
    assert scale_door_host.wake_all() == []
    assert (host.top / "elsewhere/spare").exists()
    assert not host.ask()["instances"]["small"]["spare"]


def test_a_rollout_starts_what_gateways_have_stopped_and_nothing_else(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_door_host, "CONFIG_DIR", str(host.top / "etc"))
    config = {"instances": {"chat": {"resident": False}, "other": {"resident": False}}}
    (host.top / "etc/scale.json").write_text(json.dumps(config))
    host.ask(verb="stop", instance="chat")
    # A person has stopped this one, and the host no longer has that one.
    (host.top / "units/other").write_text(UP.replace("active", "inactive"))
    (host.top / "stopped/gone").touch()
    assert scale_door_host.start_all() == ["chat"]
    assert host.ask()["instances"]["chat"]["active"] == "activating"
    assert "inactive" in (host.top / "units/other").read_text()
    (host.top / "etc/scale.json").unlink()


def test_only_the_gateway_that_decides_changes_something(host: Host) -> None:
    host.ask("gw-a")
    with pytest.raises(RefusedError, match="gw-a decides"):
        host.ask("gw-b", verb="stop", instance="chat")
    assert host.ask()["instances"]["chat"]["active"] == "active"


def test_gateways_with_different_services_decide_each_about_its_own(host: Host) -> None:
    for _round in range(2):
        host.ask("gw-a", instances=["chat", "of-another-host"])
        answer = host.ask("gw-b", instances=["small"])
    assert {name: each["holder"] for name, each in answer["instances"].items()} == {"chat": "gw-a", "small": "gw-b"}
    assert host.ask("gw-b", instances=["small"], verb="sleep", instance="small")["instances"]["small"]["spare"]
    with pytest.raises(RefusedError, match="gw-b decides"):
        host.ask("gw-a", instances=["chat"], verb="wake", instance="small")
    with pytest.raises(RefusedError, match="instances: expected a list of names"):
        host.ask("gw-a", instances="chat")


def test_without_the_secret_there_is_no_answer(host: Host) -> None:
    with pytest.raises(OSError, match="no complete line"):
        host.ask(secret="x" * 32, verb="stop", instance="chat")
    with pytest.raises(RefusedError, match="host: expected gpu-a"):
        host.ask(host="gpu-b", verb="stop", instance="chat")
    # The second one of two while it changes.
    assert host.ask(secret="o" * 32)["instances"]["chat"]["holder"] == "gw-a"
    for file in (host.top / "etc").iterdir():
        file.unlink()
    with pytest.raises(RefusedError, match="the gateway has no key of this host"):
        host.ask(secret="", verb="stop", instance="chat")
    assert (host.top / "units/chat").read_text() == UP


def test_a_line_that_was_overheard_does_nothing(host: Host) -> None:
    sent: list[bytes] = []

    class Overheard(socket.socket):
        def sendall(self, data: Any, *_flags: Any) -> None:
            sent.append(bytes(data))
            super().sendall(data)

    with contextlib.closing(Overheard()) as connection:
        connection.connect(("127.0.0.1", int(host.address.partition(":")[2])))
        nonce = connection.recv(100).decode().strip()
        line = scale_host.seal(SECRET, nonce, {"gateway": "gw-a", "host": "gpu-a", "verb": "stop", "instance": "chat"})
    with socket.create_connection(("127.0.0.1", int(host.address.partition(":")[2]))) as connection:
        assert connection.recv(100).decode().strip() != nonce
        connection.sendall(line)
        assert connection.recv(100) == b""
    assert (host.top / "units/chat").read_text() == UP


def silent_ones(host: Host, stack: contextlib.ExitStack, source: str = "127.0.0.1") -> None:
    """Take all places with connections that send no line."""
    for number in range(3 * scale_door_host.MOST):
        silent = stack.enter_context(
            socket.create_connection(("127.0.0.1", int(host.address.partition(":")[2])), 30, (source, 0))
        )
        silent.sendall(b"x" if number % 2 else b"")


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
@pytest.mark.parametrize("was_here", [False, True])
def test_those_who_say_nothing_keep_no_gateway_out(host: Host, source: str, was_here: bool) -> None:
    """Others at the gateway's own address, or elsewhere; also before a gateway has proven its key."""
    with contextlib.ExitStack() as stack:
        if was_here:
            host.ask()
        silent_ones(host, stack, source)
        for _number in range(20):
            assert host.ask()["instances"]["chat"]["holder"] == "gw-a"


def test_the_longest_reports_of_all_gateways_fit_into_an_answer(host: Host) -> None:
    # In the answer each of these letters takes three times as many bytes.
    report = {"waiting": {}, "held": ["\u00e9" * 10000]}
    for number in range(16):
        answer = host.ask(f"gw-{number:02}", report=report)
    assert len(answer["reports"]) == 16


def test_a_line_is_bounded_in_bytes_and_in_time() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"x" * 101)
        began = time.monotonic()
        with pytest.raises(OSError, match="no complete line"):
            scale_door_host.read_line(near, began + 60, most=100)
        assert time.monotonic() - began < 30
        far.sendall(b"x")
        with pytest.raises(OSError, match="no complete line"):
            scale_door_host.read_line(near, time.monotonic() - 1)


def test_a_line_without_end_is_cut_off(host: Host) -> None:
    with socket.create_connection(("127.0.0.1", int(host.address.partition(":")[2]))) as connection:
        connection.settimeout(30)
        connection.recv(100)
        with contextlib.suppress(OSError):
            for _part in range(100):
                connection.sendall(b"x" * 65536)
            assert connection.recv(100) == b""
    assert json.dumps(host.ask()["instances"])
