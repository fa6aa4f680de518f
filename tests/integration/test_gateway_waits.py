# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gateway_server with a real HAProxy: waiting for requests that run, watching a server that is back."""

from __future__ import annotations

import contextlib
import http.client
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fakes.gateways import HANGS, KEY, free_port, until
from tests.integration.gateway_engines import agent
from tests.integration.gateway_turns import (
    ONE,
    TWO,
    cut,
    drain,
    kill,
    needs_haproxy,
    owners,
    pair,
    ready,
    run,
    running,
)

pytestmark = needs_haproxy


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
            assert result["idle"] and result["servers"][ONE]["sessions"] == 0
        assert statuses == [200]


def test_a_stream_is_not_cut_by_a_drain(tmp_path):
    with pair(tmp_path) as found:
        found.tell(f"set server chat/{TWO} state drain")
        found.first.tokens, found.first.pause = 30, 0.1
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
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
        until(lambda: found.state(TWO) == "DOWN")
        assert "Service Unavailable" in run(found)["servers"][TWO]["why"]


def test_faults_of_servers_count_and_what_clients_give_up_does_not(tmp_path, monkeypatch):
    with pair(tmp_path) as found:
        drain(found, TWO)
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
        connection.request("POST", "/v1/completions", b'{"wait": 1}', {"Authorization": f"Bearer {KEY}"})
        assert found.first.running.acquire(timeout=HANGS)
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
