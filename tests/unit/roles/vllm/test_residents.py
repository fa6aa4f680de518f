# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that share chips: real processes with the middleware, the program that decides, engines that sleep."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Listening
from ansible_collections.baremetal.inference.plugins.module_utils.instance.drain_host import Drain

from tests.fakes.sleeping_engine import Host, until


@pytest.fixture
def host(tmp_path, request):
    """Two instances; the last one that has started is awake."""
    found = Host(tmp_path, getattr(request, "param", 1.0))
    for name in ("chat", "coder"):
        found.add(name)
    found.serve()
    try:
        for name in ("chat", "coder"):
            found.start(name)
        yield found
        assert found.faults() == ""
    finally:
        found.end()


@pytest.mark.parametrize("host", [60.0], indirect=True)
def test_a_request_to_a_sleeping_model_is_answered(host):
    assert host.awake() == ["coder"]
    began = time.monotonic()
    status, body, _headers = host.complete("chat", "hello")
    assert (status, body) == (200, b"chat hello")
    # The other one is idle, so nobody waits for the patience.
    assert time.monotonic() - began < 50
    assert host.awake() == ["chat"]
    assert host.complete("chat")[0] == 200 and host.complete("coder")[1] == b"coder x"


def test_what_needs_no_chips_is_answered_while_the_model_sleeps(host):
    for path in ("/health", "/metrics", "/version", "/v1/models"):
        assert host.get("chat", path)[0] == 200
    assert host.ask("chat", "POST", "/tokenize", "x")[0] == 200
    assert host.awake() == ["coder"]


@pytest.mark.parametrize("path", ["/sleep", "/wake_up", "/is_sleeping", "/collective_rpc", "/residents", "/sleep/"])
def test_clients_cannot_reach_the_endpoints_for_operators(host, path):
    for name in ("chat", "coder"):
        for method in ("GET", "POST"):
            for headers in ({}, {"operator-token": "a" * 64}):
                assert host.ask(name, method, path, "{}", headers)[0] == 404
    assert host.awake() == ["coder"]


def load(host, name, until_time, found):
    while time.monotonic() < until_time:
        began = time.monotonic()
        status, _body, _headers = host.complete(name)
        found.append((name, status, time.monotonic() - began))


def test_under_load_on_both_no_request_fails_and_nobody_starves(host):
    found, until_time = [], time.monotonic() + 12
    threads = [
        threading.Thread(target=load, args=(host, name, until_time, found))
        for name in ("chat", "coder")
        for _client in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for _name, status, _took in found} == {200}
    for name in ("chat", "coder"):
        own = [took for each, _status, took in found if each == name]
        # A turn of the other one lasts about one second; this machine may be busy. Who starves waits for all twelve.
        assert len(own) > 10 and max(own) < 11
    assert 3 <= host.journal().count("is awake") <= 15
    assert host.faults() == ""


def test_a_busy_model_keeps_the_chips_for_the_patience_and_ends_its_requests(host):
    host.set("coder", "takes", 2.5)
    running = host.in_background("coder", "long")
    until(lambda: host.status("coder")["running"] == 1)
    began = time.monotonic()
    first = host.in_background("chat")
    time.sleep(1.5)
    # The gate of the busy one is closed now: what comes later waits behind the other model.
    late = host.in_background("coder", "late")
    until(lambda: first)
    assert first[0][0] == 200 and time.monotonic() - began > 1.5
    assert running[0][:2] == (200, b"coder long")
    until(lambda: late)
    assert late[0][:2] == (200, b"coder late")


def test_a_client_that_goes_leaves_the_queue(host):
    host.set("coder", "takes", 6)
    running = host.in_background("coder")
    until(lambda: host.status("coder")["running"] == 1)
    connection = http.client.HTTPConnection("127.0.0.1", host.ports["chat"], timeout=60)
    connection.request("POST", "/v1/completions", "gone")
    until(lambda: host.waiting("chat") == 1)
    connection.close()
    until(lambda: host.waiting("chat") == 0)
    until(lambda: running)
    assert running[0][0] == 200
    time.sleep(1.5)
    assert host.awake() == ["coder"] and not (host.top / "chat.answered").exists()
    # Where the gate had been closed for the one that went, it is open again.
    host.set("coder", "takes", None)
    assert host.complete("coder")[0] == 200


def test_the_program_is_killed_and_started_again(host):
    assert host.complete("chat")[0] == 200
    host.kill_helper()
    waits = host.in_background("coder", "patient")
    assert host.complete("chat")[0] == 200
    time.sleep(1)
    assert not waits and host.awake() == ["chat"]
    host.serve()
    until(lambda: waits)
    assert waits[0][:2] == (200, b"coder patient") and host.awake() == ["coder"]


def test_a_program_that_dies_while_it_waits_for_requests_leaves_the_gate_open(host):
    host.set("coder", "takes", 8)
    running = host.in_background("coder")
    until(lambda: host.status("coder")["running"] == 1)
    host.in_background("chat")
    until(lambda: host.status("coder")["closed"])
    host.set("coder", "takes", None)
    queued = host.in_background("coder", "queued")
    until(lambda: host.waiting("coder") == 1)
    host.kill_helper()
    until(lambda: queued)
    until(lambda: running)
    assert queued[0][0] == 200 and running[0][0] == 200


@pytest.mark.parametrize("name", ["coder", "chat"])
def test_an_instance_dies_and_comes_back(host, name):
    """Once the one that is awake, once the one that sleeps."""
    other = {"coder": "chat", "chat": "coder"}[name]
    host.crash(name)
    assert host.complete(other)[0] == 200 and host.awake() == [other]
    starting = threading.Thread(target=host.start, args=(name,))
    starting.start()
    starting.join(120)
    assert host.awake() == [name]
    assert host.complete(other)[0] == 200 and host.complete(name)[0] == 200


def test_requests_during_a_start_wait_for_its_end(host):
    host.crash("coder")
    assert host.complete("chat")[0] == 200
    stop, found = time.monotonic() + 4, []
    asking = threading.Thread(target=load, args=(host, "chat", stop, found))
    asking.start()
    host.start("coder")
    assert host.complete("coder")[0] == 200
    asking.join()
    assert {status for _name, status, _took in found} == {200}


def test_two_do_not_start_together(host):
    for name in ("chat", "coder"):
        host.crash(name)
    threads = [threading.Thread(target=host.start, args=(name,)) for name in ("chat", "coder")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(host.awake()) == 1 and host.faults() == ""


def test_the_program_dies_while_one_starts(host):
    host.crash("coder")
    host.kill_helper()
    starting = threading.Thread(target=host.start, args=("coder",))
    starting.start()
    time.sleep(0.5)
    host.serve()
    starting.join(120)
    assert host.awake() == ["coder"]


def test_a_wake_that_fails_is_repeated_and_does_not_hold_up_the_other_one(host):
    host.set("chat", "wake-fails")
    waits = host.in_background("chat")
    until(lambda: "chat does not wake up (it answers 500: no memory)" in host.journal())
    assert "systemctl restart vllm@chat" in host.journal()
    assert host.complete("coder")[0] == 200 and not waits
    host.set("chat", "wake-fails", None)
    until(lambda: waits)
    assert waits[0][0] == 200


def test_a_sleep_that_fails_keeps_the_awake_one_in_service(host):
    host.set("coder", "sleep-fails")
    waits = host.in_background("chat")
    until(lambda: "coder does not go to sleep (it answers 500: no sleep)" in host.journal())
    assert host.complete("coder")[0] == 200 and not waits and host.awake() == ["coder"]
    host.set("coder", "sleep-fails", None)
    until(lambda: waits)
    assert waits[0][0] == 200


def test_an_instance_that_sleeps_although_the_call_failed_is_asked_itself(host):
    host.set("coder", "sleep-seems-to-fail")
    assert host.complete("chat")[0] == 200 and host.awake() == ["chat"]
    host.set("coder", "sleep-seems-to-fail", None)
    assert host.complete("coder")[0] == 200


def test_an_instance_that_hangs_is_named(host):
    host.freeze("coder")
    waits = host.in_background("chat")
    until(lambda: "restart it: systemctl restart vllm@coder" in host.journal())
    assert not waits and host.awake() == ["coder"]
    host.crash("coder")
    until(lambda: waits)
    assert waits[0][0] == 200


def test_a_wait_has_an_end(host):
    host.kill_helper()
    began = time.monotonic()
    status, _body, headers = host.complete("chat")
    assert status == 503 and headers["retry-after"] == "5" and 18 < time.monotonic() - began < 100


def test_a_stop_ends_the_wait(host):
    host.kill_helper()
    waits = host.in_background("chat")
    until(lambda: host.get("chat", "/version")[0] == 200)
    (host.top / "run/chat/stopping").touch()
    # What drains an instance sees the request that waits.
    until(lambda: int(host.get("chat", "/health")[2]["open-requests"]) == 1)
    (host.top / "run/chat/closed").touch()
    until(lambda: waits)
    assert waits[0][0] == 503 and waits[0][2]["retry-after"] == "5"


def stop(host, name, seconds):
    """Return what the program says that systemd runs before it stops an instance, and how long it took."""
    listening, began = Listening("127.0.0.1", host.ports[name]), time.monotonic()
    return Drain(listening, str(host.top / "run" / name)).run(seconds, 0.1), time.monotonic() - began


def test_a_sleeping_instance_without_requests_stops_at_once(host):
    """The program on the host asks it all the time, and that counts as no request."""
    said, took = stop(host, "chat", 20)
    assert said == "Stopping: no request runs" and took < 15
    # SIGTERM: vLLM waits for its open connections, and the program has one.
    host.engines["chat"].terminate()
    assert host.engines["chat"].wait(60) is not None


def test_a_stop_of_a_sleeping_instance_lets_its_requests_be_answered(host):
    host.set("coder", "takes", 2)
    running = host.in_background("coder")
    until(lambda: host.status("coder")["running"] == 1)
    waits = host.in_background("chat")
    until(lambda: host.waiting("chat") == 1)
    said, _took = stop(host, "chat", 20)
    assert said == "Stopping: no request runs"
    assert waits[0][0] == 200 and running[0][0] == 200


def test_the_stop_of_the_awake_one_lets_the_next_one_wake(host):
    assert stop(host, "coder", 20)[0] == "Stopping: no request runs"
    waits = host.in_background("chat")
    host.stop("coder")
    until(lambda: waits)
    assert waits[0][0] == 200 and host.awake() == ["chat"]


def test_it_is_written_when_each_loop_last_worked(host):
    place = host.top / "own/chips0/worked"
    until(place.exists)
    assert {"turns", "starts"} <= set(json.loads(place.read_text()))


def test_a_body_that_comes_slowly_keeps_the_chips_from_nobody(host):
    """Neither from a request to another instance, nor from one that starts; its end has its own instance woken."""
    host.stop("chat")
    with socket.create_connection(("127.0.0.1", host.ports["coder"]), 60) as slow:
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nx")
        host.start("chat")
        assert host.awake() == ["chat"]
        slow.sendall(b"x")
        assert host.complete("coder")[0] == 200 and host.complete("chat")[0] == 200
        slow.sendall(b"x" * 998)
        assert b" 200 " in slow.recv(1000)
    assert host.awake() == ["coder"]
