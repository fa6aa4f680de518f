# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gateway_server and its playbooks with a real HAProxy, in front of servers that answer everything."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.gateways import HAPROXY, KEY, ROLE, free_port, gateway, until
from tests.fakes.wheelhouse import run_module
from tests.integration.gateway_engines import agent, engine

TOP = Path(__file__).resolve().parents[2]
ONE, TWO = "gw--chat-1", "gw--chat-2"

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


def run(found, **arguments):
    """Run the module at a gateway; without ``state`` it only looks."""
    result = run_module(
        "gateway_server",
        socket=found.paths["socket"],
        config=str(found.directory / "haproxy.cfg"),
        state_file=found.paths["state"],
        owners_file=str(found.directory / "drained.json"),
        arrivals_file=str(found.directory / "arrivals"),
        tool=str(ROLE / "files/gateway-tool.py"),
        **arguments,
    )
    result.pop("invocation", None)
    return result


def drain(found, *servers, owner="rollout:1", **more):
    return run(found, servers=list(servers), state="drained", owner=owner, **{"wait": 0, **more})


def ready(found, *servers, owner="rollout:1", **more):
    return run(found, servers=list(servers), state="ready", owner=owner, **more)


def owners(found):
    return json.loads((found.directory / "drained.json").read_text())["servers"]


@contextlib.contextmanager
def pair(directory, **more):
    """Two engines behind a gateway."""
    with contextlib.ExitStack() as stack:
        first, second = stack.enter_context(engine()), stack.enter_context(engine())
        found = stack.enter_context(gateway(directory, [first.server_port, second.server_port], **more))
        until(lambda: found.state(ONE) == found.state(TWO) == "UP")
        found.first, found.second = first, second
        yield found


@contextlib.contextmanager
def running(found, server):
    """A request that an engine works on until it is freed; the answer's status is in the list."""
    statuses = []
    while server.running.acquire(blocking=False):
        pass

    def ask():
        # It is cut where HAProxy is killed.
        with contextlib.suppress(OSError, http.client.HTTPException):
            statuses.append(found.ask("POST", "/v1/completions", KEY, b'{"wait": 1}')[0])

    asked = threading.Thread(target=ask)
    asked.start()
    assert server.running.acquire(timeout=20)
    try:
        yield statuses
    finally:
        server.freed.set()
        asked.join()
        server.freed.clear()


def kill(found):
    """End HAProxy as a crash does."""
    worker = int(found.tell("show info").split("Pid: ")[1].split()[0])
    for pid in (found.process.pid, worker):
        os.kill(pid, signal.SIGKILL)
    found.process.wait(10)
    found.process = None


def test_a_server_goes_out_and_comes_back_and_the_second_time_changes_nothing(tmp_path):
    with pair(tmp_path) as found:
        result = drain(found, ONE, reason="a new flag", _ansible_diff=True)
        assert result["changed"] and result["idle"] and not result["up"] and result["held"] == {}, result
        assert result["diff"] == {"before": f"{ONE}: ready\n", "after": f"{ONE}: drained by rollout:1 (a new flag)\n"}
        (entry,) = result["servers"].values()
        assert (entry["state"], entry["up"], entry["owner"], entry["reason"]) == (
            "drain",
            True,
            "rollout:1",
            "a new flag",
        )
        assert entry["since"].endswith("Z") and entry["address"] == f"127.0.0.1:{found.first.server_port}"
        assert result["backends"] == {"chat": {"ready": 1, "servers": 2}}
        assert stat.S_IMODE((tmp_path / "drained.json").stat().st_mode) == 0o600
        assert {found.ask("GET", "/v1/models", KEY)[0] for _n in range(4)} == {200}
        assert found.first.asked == [] and len(found.second.asked) == 4
        assert not drain(found, ONE, reason="a new flag")["changed"]
        assert run(found)["servers"][ONE]["since"] == entry["since"]
        back = ready(found, ONE, _ansible_diff=True)
        assert back["changed"] and back["up"], back
        assert back["diff"] == {"before": f"{ONE}: drained by rollout:1 (a new flag)\n", "after": f"{ONE}: ready\n"}
        assert back["servers"][ONE]["owner"] == "" and owners(found) == {}
        assert not ready(found, ONE)["changed"]


def test_every_server_of_a_host_and_no_other(tmp_path):
    with pair(tmp_path) as found:
        result = run(found, hosts=["gw"], state="drained", owner="admin:al", min_available=0, wait=0)
        assert sorted(result["servers"]) == [ONE, TWO] and result["backends"]["chat"]["ready"] == 0
        wrong = run(found, hosts=["gw2"], state="ready", owner="admin:al")
        assert (
            wrong["rc"] and "has no server of the host gw2 (nearest: 'gw'); run playbooks/gateway.yml" in wrong["msg"]
        )


def test_what_cannot_be_is_one_sentence_and_changes_nothing(tmp_path):
    with pair(tmp_path) as found:
        for result, words in (
            (
                drain(found, "gw--chat-3"),
                f"has no server gw--chat-3 (nearest: '{TWO}'); run playbooks/gateway.yml first",
            ),
            (drain(found, ONE, owner="bob"), "owner: found 'bob', expected rollout:ID or admin:USER"),
            (drain(found, ONE, min_available=-1), "min_available: found -1, expected 0 or more"),
            (run(found, state="drained", owner="admin:al"), "servers: the list is empty"),
            (
                drain(found, ONE, TWO),
                f"service chat: without {ONE}, {TWO}, no server would remain, but min_available is 1",
            ),
            (drain(found, ONE, min_available=2), f"without {ONE}, {TWO} would remain, but min_available is 2"),
        ):
            assert result["rc"] and words in result["msg"], result
        assert run(found)["backends"]["chat"]["ready"] == 2
        assert not (tmp_path / "drained.json").exists()


def test_of_two_runs_at_a_time_one_gets_the_last_pair(tmp_path):
    with pair(tmp_path) as found, ThreadPoolExecutor(2) as pool:
        lock = tmp_path / "drained.json.lock"
        # Both stand before the door, then it is opened.
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            runs = [pool.submit(drain, found, name, owner=f"rollout:{name}") for name in (ONE, TWO)]
            until(lambda: others_with(lock) == 2)
            assert run(found)["backends"]["chat"]["ready"] == 2
        results = [each.result() for each in runs]
        assert sorted(result["rc"] for result in results) == [0, 1], results
        (refused,) = [result for result in results if result["rc"]]
        assert (
            "no server would remain, but min_available is 1" in refused["msg"]
            and "is drained by rollout:" in refused["msg"]
        )
        assert run(found)["backends"]["chat"]["ready"] == 1


def others_with(path):
    """Return how many other processes have a file open; the modules are no children of this one."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        # Processes come and go.
        with contextlib.suppress(OSError):
            opened = {os.readlink(each) for each in (process / "fd").iterdir()}
            count += int(process.name) != os.getpid() and str(path) in opened
    return count


@pytest.mark.parametrize("by_hand", ["state drain", "state maint", "weight 0"])
def test_what_was_drained_by_hand_at_the_socket_is_left_alone(tmp_path, by_hand):
    with pair(tmp_path) as found:
        found.tell(f"set server chat/{ONE} {by_hand}")
        nobody = {"owner": "", "reason": "", "since": ""}
        for result in (drain(found, ONE), ready(found, ONE, wait=0)):
            assert result["held"] == {ONE: nobody} and result["rc"] == 0, result
            assert result["servers"][ONE]["state"] == ("maint" if "maint" in by_hand else "drain")
        # An admin may put a name to it, and bring it back.
        result = drain(found, ONE, owner="admin:al", reason="fan")
        assert result["changed"] and result["servers"][ONE]["owner"] == "admin:al"
        assert drain(found, ONE)["held"][ONE]["owner"] == "admin:al"
        assert ready(found, ONE, wait=0)["held"][ONE]["reason"] == "fan"
        assert drain(found, ONE, owner="admin:bob")["held"][ONE]["owner"] == "admin:al"
        result = ready(found, ONE, owner="admin:bob")
        assert result["changed"] and result["up"], result
        assert {found.ask("GET", "/v1/models", KEY)[0] for _n in range(4)} == {200} and found.first.asked


def test_a_hand_makes_a_record_void(tmp_path):
    with pair(tmp_path) as found:
        drain(found, ONE)
        found.tell(f"set server chat/{ONE} state maint")
        assert drain(found, ONE, owner="rollout:2")["held"][ONE]["owner"] == ""
        found.tell(f"set server chat/{ONE} state ready")
        assert run(found)["servers"][ONE]["owner"] == ""


def test_a_rollout_goes_on_with_what_another_one_drained(tmp_path):
    with pair(tmp_path) as found:
        since = drain(found, ONE)["servers"][ONE]["since"]
        result = drain(found, ONE, owner="rollout:2", _ansible_diff=True)
        assert result["changed"] and result["held"] == {}
        assert result["servers"][ONE]["owner"] == "rollout:2" and result["servers"][ONE]["since"] == since
        assert ready(found, ONE, owner="admin:al", wait=0)["held"][ONE]["owner"] == "rollout:2"
        assert drain(found, ONE, owner="admin:al")["held"][ONE]["owner"] == "rollout:2"
        assert drain(found, ONE, owner="admin:al", force=True)["servers"][ONE]["owner"] == "admin:al"
        assert ready(found, ONE, owner="rollout:3", wait=0)["held"][ONE]["owner"] == "admin:al"
        assert ready(found, ONE, owner="rollout:3", force=True)["up"]


def test_a_haproxy_that_does_not_run_is_told_of(tmp_path):
    with pair(tmp_path) as found:
        found.stop()
        result = drain(found, ONE)
        assert result["rc"] and "HAProxy does not answer at" in result["msg"], result
        assert "systemctl status haproxy" in result["msg"] and not (tmp_path / "drained.json").exists()


def test_after_a_crash_a_server_is_still_drained_by_the_same_owner_and_counters_begin_anew(tmp_path):
    with pair(tmp_path) as found:
        found.ask("GET", "/v1/models", KEY)
        before = drain(found, ONE, reason="a new flag")
        assert before["frontends"]["chat"]["ok"] == 1 and run(found)["started"] == before["started"]
        kill(found)
        found.start()
        after = run(found)
        assert after["started"] != before["started"] and after["frontends"]["chat"]["requests"] == 0
        assert after["servers"][ONE]["owner"] == "rollout:1" and after["servers"][ONE]["reason"] == "a new flag"
        assert not drain(found, ONE, reason="a new flag")["changed"]
        assert ready(found, ONE)["up"]
        kill(found)
        found.start()
        assert run(found)["servers"][ONE]["state"] == "ready"


def test_a_run_that_was_killed_before_it_kept_the_state_is_made_good(tmp_path):
    with pair(tmp_path) as found:
        found.save()
        kept = Path(found.paths["state"]).read_text()
        drain(found, ONE)
        Path(found.paths["state"]).write_text(kept)
        assert drain(found, ONE)["changed"] and Path(found.paths["state"]).read_text() != kept
        assert not drain(found, ONE)["changed"]


def test_a_record_alone_drains_nothing(tmp_path):
    with pair(tmp_path) as found:
        drain(found, ONE)
        found.tell(f"set server chat/{ONE} state ready")
        assert run(found)["servers"][ONE]["owner"] == ""
        drain(found, TWO)
        assert list(owners(found)) == [TWO]


def test_a_request_that_runs_is_waited_for_until_the_deadline(tmp_path):
    with pair(tmp_path) as found:
        found.tell(f"set server chat/{TWO} state drain")
        with running(found, found.first) as statuses:
            found.tell(f"set server chat/{TWO} state ready")
            result = drain(found, ONE, wait=2)
            assert result["rc"] == 0 and not result["idle"] and result["waited_s"] >= 2
            assert result["servers"][ONE]["sessions"] == 1
            timer = threading.Timer(1, found.first.freed.set)
            timer.start()
            result = drain(found, ONE, wait=60)
            assert result["idle"] and result["servers"][ONE]["sessions"] == 0 and result["waited_s"] < 30
        assert statuses == [200]


def test_a_stream_is_not_cut_by_a_drain(tmp_path):
    with pair(tmp_path) as found:
        found.tell(f"set server chat/{TWO} state drain")
        found.first.tokens, found.first.pause = 30, 0.1
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=20)
        connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        answer.readline()
        found.tell(f"set server chat/{TWO} state ready")
        read = ThreadPoolExecutor(1).submit(answer.read)
        assert drain(found, ONE, wait=60)["idle"]
        assert read.result().count(b"data:") == 29
        connection.close()


def test_what_runs_in_a_worker_that_a_reload_replaced_counts(tmp_path):
    with pair(tmp_path) as found:
        found.tell(f"set server chat/{TWO} state drain")
        with running(found, found.first) as statuses:
            found.tell(f"set server chat/{TWO} state ready")
            found.reload()
            assert found.stat(ONE, "scur") == "0"
            result = until(lambda: (seen := run(found))["servers"][ONE]["sessions"] == 1 and seen)
            assert not result["idle"] and result["servers"][TWO]["sessions"] == 0
            assert not drain(found, ONE, wait=1)["idle"]
            found.first.freed.set()
            assert drain(found, ONE, wait=60)["idle"]
        assert statuses == [200]


def test_a_drain_that_a_reload_lost_is_set_again(tmp_path):
    with pair(tmp_path) as found, ThreadPoolExecutor(1) as pool:
        found.save()
        kept = Path(found.paths["state"]).read_text()
        found.tell(f"set server chat/{TWO} state drain")
        with running(found, found.first):
            found.tell(f"set server chat/{TWO} state ready")
            waiting = pool.submit(drain, found, ONE, wait=60)
            until(lambda: found.state(ONE).startswith("DRAIN") and Path(found.paths["state"]).read_text() != kept)
            # As a reload that read the state before the drain had kept it.
            Path(found.paths["state"]).write_text(kept)
            before = found.tell("show info").split("Pid: ")[1].split()[0]
            found.process.send_signal(signal.SIGUSR2)
            until(lambda: found.answers() and found.tell("show info").split("Pid: ")[1].split()[0] != before)
            until(lambda: found.state(ONE).startswith("DRAIN"))
            assert not waiting.done()
            found.first.freed.set()
            result = waiting.result()
        assert result["idle"] and result["servers"][ONE]["owner"] == "rollout:1", result
        assert Path(found.paths["state"]).read_text() != kept


def test_whoever_brings_a_server_back_meanwhile_is_believed(tmp_path):
    with pair(tmp_path) as found, ThreadPoolExecutor(1) as pool:
        found.tell(f"set server chat/{TWO} state drain")
        with running(found, found.first):
            found.tell(f"set server chat/{TWO} state ready")
            waiting = pool.submit(drain, found, ONE, wait=60)
            until(lambda: (tmp_path / "drained.json").exists() and found.state(ONE).startswith("DRAIN"))
            assert ready(found, ONE, owner="admin:al", force=True, wait=0)["changed"]
            result = waiting.result()
        assert result["rc"] and f"{ONE} was made ready by another user while it was being drained" in result["msg"]
        assert run(found)["servers"][ONE]["state"] == "ready"


def test_a_haproxy_that_is_started_again_during_the_wait_is_waited_for(tmp_path):
    with pair(tmp_path) as found, ThreadPoolExecutor(1) as pool:
        found.tell(f"set server chat/{TWO} state drain")
        with running(found, found.first):
            found.tell(f"set server chat/{TWO} state ready")
            waiting = pool.submit(drain, found, ONE, wait=60)
            until(lambda: Path(found.paths["state"]).exists() and found.state(ONE).startswith("DRAIN"))
            kill(found)
            assert not waiting.done()
            found.start()
            result = waiting.result()
        assert result["rc"] == 0 and result["idle"] and result["servers"][ONE]["state"] == "drain", result


def test_a_server_that_the_agent_or_a_check_takes_out_is_not_up_and_does_not_count(tmp_path):
    port = free_port()
    with pair(tmp_path, agent_port=port) as found, agent(tmp_path, port, found.ports):
        found.first.stuck.set()
        found.first.metrics["vllm:num_requests_running"] = 3.0
        until(lambda: found.state(ONE) == "DOWN (agent)")
        entry = run(found)["servers"][ONE]
        assert not entry["up"] and "requests run and nothing has moved" in entry["why"]
        result = drain(found, TWO)
        assert result["rc"] and f"({ONE} is down (L7STS" in result["msg"], result
        # What is down serves nobody: it may go, and is not up when it is back.
        assert drain(found, ONE)["changed"]
        back = ready(found, ONE, wait=1)
        assert back["rc"] == 0 and back["changed"] and not back["up"] and back["waited_s"] >= 1
        found.first.stuck.clear()
        found.first.metrics["vllm:generation_tokens_total"] += 1
        found.first.metrics["vllm:num_requests_running"] = 0.0
        assert ready(found, ONE, wait=60)["up"]
        found.second.healthy = False
        until(lambda: found.state(TWO) == "DOWN", 60)
        assert "Service Unavailable" in run(found)["servers"][TWO]["why"]


def test_faults_of_servers_count_and_what_clients_give_up_does_not(tmp_path, monkeypatch):
    with pair(tmp_path) as found:
        drain(found, TWO)
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=10)
        connection.request("POST", "/v1/completions", b'{"wait": 1}', {"Authorization": f"Bearer {KEY}"})
        assert found.first.running.acquire(timeout=10)
        connection.close()
        until(lambda: found.stat(ONE, "scur") == "0")
        found.first.freed.set()
        entry = run(found)["servers"][ONE]
        assert (entry["requests"], entry["errors"]) == (1, 0)
        # A server that cuts its answer.
        with monkeypatch.context() as patch:
            patch.setattr(found.first.RequestHandlerClass, "send", cut)
            with contextlib.suppress(http.client.IncompleteRead):
                found.ask("GET", "/v1/models", KEY)
        until(lambda: run(found)["servers"][ONE]["errors"] == 1)


def test_a_server_that_is_back_is_watched(tmp_path, monkeypatch):
    with pair(tmp_path) as found, ThreadPoolExecutor(1) as pool:
        drain(found, ONE)
        began = time.monotonic()
        assert ready(found, ONE, watch=1.5)["up"] and time.monotonic() - began >= 1.5
        drain(found, ONE)
        found.tell(f"set server chat/{TWO} state drain")
        monkeypatch.setattr(found.first.RequestHandlerClass, "send", cut)
        watched = pool.submit(ready, found, ONE, watch=60)
        until(lambda: found.state(ONE) == "UP")
        with contextlib.suppress(http.client.IncompleteRead):
            found.ask("GET", "/v1/models", KEY)
        result = watched.result()
        assert result["rc"] and result["failed"], result
        assert f"{ONE}: 1 errors in 1 requests since it returned, expected none" in result["msg"], result
        assert result["servers"][ONE]["state"] == "ready" and result["up"]


def test_a_haproxy_that_is_started_again_while_a_server_is_watched_is_no_fault_of_it(tmp_path):
    with pair(tmp_path) as found, ThreadPoolExecutor(1) as pool:
        drain(found, ONE)
        watched = pool.submit(ready, found, ONE, watch=8)
        # The record goes last.
        until(lambda: owners(found) == {})
        kill(found)
        found.start()
        result = watched.result()
        assert result["rc"] == 0 and result["up"], result


def cut(handler, text, status=200):
    """Promise more than comes, but to HAProxy's checks."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(text) if handler.path == "/health" else 100_000))
    handler.end_headers()
    handler.wfile.write(text.encode())
    handler.close_connection = True


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"schema": 1, "servers": {"gw--ch',
        "[]",
        '{"schema": 1, "servers": {"gw--chat-1": {"owner": 5}}}',
        "\x00\x01",
    ],
)
def test_a_damaged_file_of_owners_is_told_of_and_written_anew(tmp_path, text):
    with pair(tmp_path) as found:
        drain(found, ONE)
        (tmp_path / "drained.json").write_text(text)
        looked = run(found)
        assert looked["rc"] == 0 and looked["servers"][ONE]["owner"] == "", looked
        assert "drained.json" in str(looked["warnings"]) and "counts as drained by hand" in str(looked["warnings"])
        # Nobody knows who did it, so no rollout brings it back.
        assert ready(found, ONE, wait=0)["held"][ONE]["owner"] == ""
        result = ready(found, ONE, owner="admin:al")
        assert result["up"] and owners(found) == {}, result
        assert "warnings" not in run(found)


def test_bytes_that_are_no_text_in_the_file_of_owners(tmp_path):
    with pair(tmp_path) as found:
        (tmp_path / "drained.json").write_bytes(b"\xff\xfe\x00")
        result = drain(found, ONE)
        assert result["changed"] and list(owners(found)) == [ONE] and result["warnings"]


def test_a_server_that_left_the_configuration(tmp_path):
    with pair(tmp_path) as found:
        drain(found, TWO, owner="admin:al")
        found.ports = found.ports[:1]
        found.write()
        found.reload()
        assert list(run(found)["servers"]) == [ONE]
        assert f"no server {TWO} (nearest: '{ONE}')" in ready(found, TWO, owner="admin:al")["msg"]
        drain(found, ONE, min_available=0)
        assert list(owners(found)) == [ONE]


def test_check_mode_says_the_same_and_does_nothing(tmp_path):
    with pair(tmp_path) as found:
        checked = drain(found, ONE, reason="fan", _ansible_check_mode=True, _ansible_diff=True)
        assert checked["changed"] and checked["servers"][ONE]["state"] == "ready", checked
        assert checked["diff"] == {"before": f"{ONE}: ready\n", "after": f"{ONE}: drained by rollout:1 (fan)\n"}
        assert not list(tmp_path.glob("drained.json*")) and found.state(ONE) == "UP"
        assert drain(found, ONE, TWO, _ansible_check_mode=True)["rc"] == 1
        drain(found, ONE)
        for checked in (drain(found, ONE, _ansible_check_mode=True), ready(found, TWO, _ansible_check_mode=True)):
            assert not checked["changed"]
        checked = ready(found, ONE, _ansible_check_mode=True, _ansible_diff=True)
        assert checked["changed"] and checked["diff"]["after"] == f"{ONE}: ready\n"
        assert found.state(ONE).startswith("DRAIN") and list(owners(found)) == [ONE]


def test_a_tool_that_cannot_keep_the_state_is_no_success(tmp_path):
    with pair(tmp_path) as found:
        found.paths["state"] = str(tmp_path / "nowhere/state")
        result = drain(found, ONE)
        assert result["rc"] and "could not save them in" in result["msg"], result
        # The record was made first, so that the next run knows whose it is.
        assert list(owners(found)) == [ONE]


def test_another_run_that_does_not_end_is_told_of(tmp_path, monkeypatch):
    from ansible_collections.baremetal.inference.plugins.module_utils.gateway import (
        drain_host,
        haproxy_host,
        records_host,
    )
    from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import (
        ServersError,
        ServersRequest,
    )

    monkeypatch.setattr(records_host, "LOCK_SECONDS", 0.2)
    paths = haproxy_host.GatewayPaths(socket="/nowhere", owners_file=str(tmp_path / "drained.json"))
    with (tmp_path / "drained.json.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ServersError, match=r"another run has changed servers here .* is locked"):
            drain_host.GatewayServers(paths).change([ONE], [], ServersRequest("drained", "rollout:1"), False)


# --- the playbooks, with the paths of a gateway bound to those of the test


@pytest.fixture
def site(tmp_path):
    """An inventory of a host with two instances and its gateway, both this machine, and a systemctl."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    groups = {
        "inference": {"hosts": {"gw": local, "far": {**local, "cluster": "b"}}},
        "cluster_a": {"hosts": {"gw": {"cluster": "a"}}},
        "cluster_b": {"hosts": {"far": {}}},
        "gateways": {"hosts": {"gate": {**local, "cluster": "a"}}},
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text("#!/bin/sh\necho ActiveState=$(cat $(dirname $0)/active)\n")
    (programs / "systemctl").chmod(0o755)
    (programs / "active").write_text("inactive")
    return tmp_path


def play(found, site, name, *arguments, **variables):
    """Run a playbook; return its status and what it said."""
    lib = site / "lib"
    lib.mkdir(exist_ok=True)
    (lib / "gateway-tool.py").write_text((ROLE / "files/gateway-tool.py").read_text())
    binds = {
        found.directory: "/var/lib/haproxy", f"{found.directory}/run": "/run/haproxy", lib: "/usr/local/lib",
        f"{found.directory}/etc": "/etc/haproxy",
    }  # fmt: skip
    for source in binds:
        Path(source).mkdir(exist_ok=True)
    (found.directory / "etc/haproxy.cfg").write_text((found.directory / "haproxy.cfg").read_text())
    mounts = " && ".join(f"mount --bind {source} {target}" for source, target in binds.items())
    words = [sys.executable, "-m", "ansible", "playbook", f"playbooks/{name}.yml", "-i", str(site / "hosts.json")]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", *words, "-e", json.dumps(variables), *arguments],
        cwd=TOP, check=False, capture_output=True, text=True,
        env={
            **os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(site / "tmp"),
            "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "SUDO_USER": "alice",
            "PATH": f"{site}/bin:{os.environ['PATH']}",
        },
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@contextlib.contextmanager
def gate(directory):
    """A pair whose socket and state lie where the playbooks expect them, seen from within."""
    directory.mkdir()
    (directory / "run").mkdir()
    with pair(directory) as found:
        os.link(found.paths["socket"], directory / "run/admin.sock")
        yield found


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/etc/haproxy").is_dir() or not Path("/run/haproxy").is_dir(),
    reason="needs root and the directories of HAProxy",
)


@needs_mounts
def test_the_playbooks_drain_show_and_bring_back(site):
    with gate(site / "gate") as found:
        rc, said = play(found, site, "drain")
        assert rc and "This would include every host in the inventory" in said, said
        rc, said = play(found, site, "drain", "-l", "far")
        assert rc and "far: no gateway sends requests to it" in said and "cluster b of the host" in said, said
        rc, said = play(found, site, "drain", "-l", "gw")
        assert rc and "no server would remain, but min_available is 1" in said and found.state(ONE) == "UP", said
        rc, said = play(found, site, "drain", "-l", "gw", "--check", drain_min_available=0)
        assert rc == 0 and found.state(ONE) == "UP", said
        rc, said = play(
            found,
            site,
            "drain",
            "-l",
            "gw",
            # As people type it: -e drain_reason='new fans'.
            "-e",
            "drain_reason=new fans",
            drain_min_available=0,
            drain_timeout=20,
        )
        assert rc == 0 and "changed=1" in said and "chat has 0 of 2 servers in service at gate" in said, said
        assert {
            entry["owner"] for entry in json.loads((found.directory / "drained.json").read_text())["servers"].values()
        } == {"admin:alice"}
        rc, said = play(found, site, "gateway_status")
        assert rc == 0 and "changed=0" in said and "new fans" in said and "admin:alice" in said, said
        rc, said = play(found, site, "drain", "-l", "gw", drain_least=0, drain_reason="new fans")
        assert rc == 0 and "changed=0" in said and "drain_least is now called drain_min_available" in said, said
        rc, said = play(found, site, "undrain", "-l", "gw", "--check")
        assert rc == 0 and found.state(ONE).startswith("DRAIN"), said
        rc, said = play(found, site, "undrain", "-l", "gw")
        assert rc == 0 and "chat has 2 of 2 servers in service at gate" in said, said
        rc, said = play(found, site, "undrain", "-l", "gw")
        assert rc == 0 and "changed=0" in said, said


@needs_mounts
def test_the_playbooks_say_what_still_runs_and_what_a_rollout_keeps(site):
    with gate(site / "gate") as found:
        found.tell(f"set server chat/{TWO} state drain")
        with running(found, found.first):
            found.tell(f"set server chat/{TWO} state ready")
            rc, said = play(found, site, "drain", "-l", "gw", drain_min_available=0, drain_timeout=1)
            assert rc and "gate: after 1 s requests still run, see the table" in said, said
        play(found, site, "undrain", "-l", "gw")
        drain(found, ONE, owner="rollout:7")
        rc, said = play(found, site, "undrain", "-l", "gw", undrain_timeout=5)
        assert rc and f"{ONE} stays drained, because a rollout drained it" in said, said
        rc, said = play(found, site, "undrain", "-l", "gw", undrain_force=True)
        assert rc == 0 and found.state(ONE) == "UP", said


@needs_mounts
def test_a_host_that_is_off_is_drained_all_the_same(site):
    inventory = json.loads((site / "hosts.json").read_text())
    off = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory["all"]["children"]["inference"]["hosts"]["gw"].update(off)
    (site / "hosts.json").write_text(json.dumps(inventory))
    with gate(site / "gate") as found:
        rc, said = play(found, site, "drain", "-l", "gw", drain_min_available=0)
        assert rc == 0 and "Fail if engines still work" in said and "ignored=1" in said, said
        assert "chat has 0 of 2 servers in service at gate" in said and found.state(ONE).startswith("DRAIN")


@needs_mounts
def test_an_instance_that_is_removed_leaves_its_gateways_first(site):
    role = {"name": "baremetal.inference.vllm", "tasks_from": "leave_gateways"}
    tasks = [{"name": "Leave", "ansible.builtin.include_role": role}]
    playbook = TOP / "playbooks/leave-in-a-test.yml"
    variables = {"vllm_drain_timeout": 20}
    with gate(site / "gate") as found:
        try:
            playbook.write_text(json.dumps([{"hosts": "gw", "gather_facts": False, "tasks": tasks}]))
            rc, said = play(found, site, playbook.stem, __vllm_name="chat-9", **variables)
            assert rc == 0 and "changed=0" in said, said
            rc, said = play(found, site, playbook.stem, "--check", __vllm_name="chat-1", **variables)
            assert rc == 0 and "changed=1" in said and found.state(ONE) == "UP", said
            with running(found, found.first):
                found.first.freed.set()
                rc, said = play(found, site, playbook.stem, __vllm_name="chat-1", **variables)
            assert rc == 0 and "changed=1" in said and found.state(ONE).startswith("DRAIN"), said
            assert found.state(TWO) == "UP"
            entry = run(found)["servers"][ONE]
            assert (entry["reason"], entry["sessions"]) == ("no longer in vllm_instances", 0)
            # Its service ends with it, and a gateway that does not answer stops nothing.
            rc, said = play(found, site, playbook.stem, __vllm_name="chat-2", **variables)
            assert rc == 0 and found.state(TWO).startswith("DRAIN"), said
            found.stop()
            rc, said = play(found, site, playbook.stem, __vllm_name="chat-2", **variables)
            assert rc == 0 and "changed=0" in said, said
        finally:
            playbook.unlink(missing_ok=True)
