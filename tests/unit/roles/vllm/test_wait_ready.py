# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit asks, and has vLLM do, before it counts as active."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.stopping_engine import stopping_engine

SCRIPT = Path(__file__).resolve().parents[4] / "roles/vllm/files/vllm-wait-ready.py"
SPEC = importlib.util.spec_from_file_location("wait_ready", SCRIPT)
wait_ready = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = wait_ready
SPEC.loader.exec_module(wait_ready)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The directories of an instance ``chat``, whose unit has just started this process."""
    for name, place in (("CONFIG", "etc"), ("STATE", "lib"), ("RUN", "run")):
        monkeypatch.setattr(wait_ready, name, tmp_path / place)
    for place in ("etc", "lib/chat/model", "run/chat"):
        (tmp_path / place).mkdir(parents=True)
    monkeypatch.setenv("MAINPID", str(os.getpid()))
    return tmp_path


def configure(host, engine, **more):
    lines = {"host": "0.0.0.0", "port": engine.port, **more}
    (host / "etc/chat.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))


def health(engine):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
    connection.request("GET", "/health")
    return connection.getresponse().status


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vllm-wait-ready.py", "chat", *arguments])
    wait_ready.main()


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_gateways_see_an_instance_when_its_unit_is_active(host, monkeypatch, capsys, tls):
    files = {}
    if tls:
        command = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=chat.example.net"]
        subprocess.run([*command, "-keyout", host / "key", "-out", host / "crt"], check=True, capture_output=True)
        files = {"ssl_keyfile": str(host / "key"), "ssl_certfile": str(host / "crt")}
    with stopping_engine(host / "run/chat", ready=False, **files) as engine:
        configure(host, engine, **{name.replace("_", "-"): value for name, value in files.items()})
        assert tls or health(engine) == 503
        run(monkeypatch)
        assert (host / "run/chat/ready").exists()
        assert tls or health(engine) == 200
        assert not engine.completions and not capsys.readouterr().out


def test_every_size_of_batch_is_run_until_it_gets_no_faster(host, monkeypatch, capsys):
    (host / "lib/chat/model/config.json").write_text('{"text_config": {"vocab_size": 500}}')
    # The engine compiles for half a second; what a busy machine adds is less than that.
    monkeypatch.setattr(wait_ready, "STEADY", 0.3)
    with stopping_engine(host / "run/chat", ready=False) as engine:
        engine.compiles = 0.5
        configure(host, engine, **{"max-num-seqs": 6, "max-model-len": "128"})
        run(monkeypatch, "20")
        assert engine.most == 6 and health(engine) == 200
    said = capsys.readouterr().out
    assert said.startswith("Warm-up: ") and "every size is warm (1: " in said and "lengths alone" in said
    # Prompt and answer fit into the model's context.
    sizes = {output: {len(asked["prompt"]) for asked in engine.completions if asked["max_tokens"] == output}
             for output in (1, wait_ready.OUTPUT)}  # fmt: skip
    assert sizes[wait_ready.OUTPUT] == {128 - wait_ready.OUTPUT - 1}
    assert {16, 96} < sizes[1] and max(sizes[1]) + 1 < 128
    assert all(50 <= token < 500 for asked in engine.completions for token in asked["prompt"])
    assert {asked["model"] for asked in engine.completions} == {"lab/model"}
    assert {asked["temperature"] for asked in engine.completions} == {0, 1}
    # No prompt begins like another, so that none is read from the cache of prompts.
    assert len({tuple(asked["prompt"][:16]) for asked in engine.completions}) == len(engine.completions)


def test_a_warm_up_ends_when_its_time_is_up(host, monkeypatch, capsys):
    with stopping_engine(host / "run/chat", ready=False) as engine:
        engine.compiles = 0.4
        configure(host, engine)
        began = time.monotonic()
        run(monkeypatch, "1.2")
        assert time.monotonic() - began < 10 and health(engine) == 200
    assert "the time was up at " in capsys.readouterr().out


def test_every_size_comes_once_before_any_comes_again(monkeypatch):
    instance = wait_ready.Instance("127.0.0.1", 1, False, max_num_seqs=16)
    asked = []
    monkeypatch.setattr(wait_ready.Instance, "ask", lambda *_: {"data": [{"id": "m"}]})
    monkeypatch.setattr(wait_ready.WarmUp, "request", lambda _self, _model, _tokens, number: asked.append(number))
    warm_up = wait_ready.WarmUp(instance, 1000, 60)
    monkeypatch.setattr(wait_ready.WarmUp, "warm", lambda _self, at_once: at_once == 1)
    monkeypatch.setattr(wait_ready.WarmUp, "all_lengths", lambda _self, _model: asked.append(-1))
    assert "4 requests at a time still get faster" in warm_up.run()
    # The lengths come between the first time of all sizes and the second.
    assert asked.index(-1) == 21 and asked.count(-1) == 1
    asked.remove(-1)
    runs = [1, 4, 16, *[4, 16] * (wait_ready.REPEATS - 1)]
    assert len(asked) == sum(runs) == warm_up.requests
    assert sorted(asked[:21]) == sorted([0, *range(4), *range(16)])
    assert {at_once: len(times) for at_once, times in warm_up.times.items()} == {1: 1, 4: 4, 16: 4}


def test_a_model_that_completes_nothing_serves_all_the_same(host, monkeypatch, capsys):
    with stopping_engine(host / "run/chat", ready=False) as engine:
        configure(host, engine)
        monkeypatch.setattr(wait_ready.Instance, "ask", refused)
        run(monkeypatch, "5")
        assert health(engine) == 200
    assert capsys.readouterr().out == "Warm-up ended: POST /v1/completions answers 404: nothing here\n"


def refused(self, method, path, deadline, body=None):
    if path == "/v1/models":
        return {"data": [{"id": "lab/embeddings"}]}
    raise wait_ready.WarmUpError("POST /v1/completions answers 404: nothing here")


def test_an_answer_that_is_an_error_is_quoted(host):
    with stopping_engine(host / "run/chat") as engine:
        (host / "run/chat/closed").touch()
        instance = wait_ready.Instance("127.0.0.1", engine.port, False)
        with pytest.raises(wait_ready.WarmUpError, match="GET /v1/models answers 503: this instance is stopping"):
            instance.ask("GET", "/v1/models", time.monotonic() + 5)


def test_the_key_of_the_api_is_sent(monkeypatch):
    asked = []

    def answer(listener):
        connection, _address = listener.accept()
        asked.append(connection.recv(10000))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        connection.close()

    monkeypatch.setenv("VLLM_API_KEY", "s3cret")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        instance = wait_ready.Instance("127.0.0.1", listener.getsockname()[1], False)
        assert instance.ask("GET", "/v1/models", time.monotonic() + 5) == {}
    assert b"Authorization: Bearer s3cret" in asked[0]


def test_a_kept_state_of_an_earlier_release_starts_too(host, monkeypatch):
    (host / "run/chat").rmdir()
    with stopping_engine() as engine:
        configure(host, engine)
        run(monkeypatch)


def test_vllm_that_has_ended_is_not_waited_for(host, monkeypatch):
    with stopping_engine() as engine:
        configure(host, engine)
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setenv("MAINPID", str(ended.pid))
    with pytest.raises(SystemExit, match="vLLM ended before it answered"):
        run(monkeypatch)


def test_what_is_no_http_is_not_healthy():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _address = listener.accept()
            connection.recv(1000)
            connection.sendall(b"no http at all\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert not wait_ready.Instance("127.0.0.1", listener.getsockname()[1], False).healthy()


@pytest.mark.parametrize(("bounds", "first", "last"), [
    ({}, (1, 1024), (512, 64)),
    ({"max_num_seqs": 8, "max_model_len": 131072}, (1, 1024), (8, 1024)),
    ({"max_num_seqs": 1, "max_model_len": 16}, (1, 7), (1, 7)),
    ({"max_num_seqs": 4096}, (1, 1024), (512, 64)),
])  # fmt: skip
def test_steps_stay_within_what_the_instance_takes(bounds, first, last):
    found = list(wait_ready.steps(wait_ready.Instance("x", 1, False, **bounds)))
    assert (found[0], found[-1]) == (first, last)
    assert [at_once for at_once, _tokens in found] == sorted({at_once for at_once, _tokens in found})


@pytest.mark.parametrize(("bounds", "last"), [
    ({}, 8192), ({"max_num_batched_tokens": 2048}, 2048), ({"max_model_len": 1000}, 992), ({"max_model_len": 16}, 0),
    ({"max_num_batched_tokens": 65536}, 8192),
])  # fmt: skip
def test_lengths_cover_each_number_of_tokens_that_a_batch_can_have(bounds, last):
    found = wait_ready.lengths(wait_ready.Instance("x", 1, False, **bounds))
    assert max(found, default=0) <= last
    grains = {-(-tokens // wait_ready.GRAIN) for tokens in found}
    assert grains == set(range(1, last // wait_ready.GRAIN + 1))
    if last == 8192:
        # Each quarter of the range comes early, and has lengths of each kind.
        assert {tokens // 2049 for tokens in found[19:27]} == {0, 1, 2, 3}
        kinds = {(tokens // 2049, tokens % 16 == 0, tokens % 4 == 0, tokens % 2) for tokens in found[19:]}
        assert len(kinds) == 4 * 4


def lengths_of(monkeypatch, seconds_of):
    """Run single prompts against a vLLM that takes ``seconds_of(tokens)``; return the warm-up."""
    clock = [0.0]
    monkeypatch.setattr(wait_ready.time, "monotonic", lambda: clock[0])

    def request(self, _model, tokens, _number, output):
        assert output == 1
        clock[0] += seconds_of(tokens)

    monkeypatch.setattr(wait_ready.WarmUp, "request", request)
    found = wait_ready.WarmUp(wait_ready.Instance("x", 1, False), 1000, 20)
    found.all_lengths("m")
    return found


def test_single_prompts_end_when_they_compile_nothing(monkeypatch):
    found = lengths_of(monkeypatch, lambda tokens: 0.01 + tokens / 80000)
    assert len(found.alone) == wait_ready.PATIENCE and not found.compiled


@pytest.mark.parametrize(("more", "ends", "compiled"), [(0.4, 60, True), (0.1, 20, False)], ids=["compiled", "read"])
def test_single_prompts_go_on_while_kernels_come(monkeypatch, more, ends, compiled):
    """While they are compiled, for three times as long as when they only come from the disk."""
    seen = set()

    def seconds_of(tokens):
        grain = -(-tokens // wait_ready.GRAIN)
        new = grain > 32 and grain not in seen
        seen.add(grain)
        return 0.01 + tokens / 80000 + (more if new else 0)

    found = lengths_of(monkeypatch, seconds_of)
    assert time.monotonic() == pytest.approx(ends, abs=1)
    assert (len(found.compiled) > 40) == compiled and len(found.alone) < len(wait_ready.lengths(found.instance))


@pytest.mark.parametrize(("text", "expected"), [
    (json.dumps({"vocab_size": 32}), 32), ("{}", 1000), ("not JSON", 1000), (json.dumps({"text_config": 1}), 1000),
])  # fmt: skip
def test_the_vocabulary_is_the_models(host, text, expected):
    (host / "lib/chat/model/config.json").write_text(text)
    assert wait_ready.vocabulary_of("chat") == expected


def join(host, role, complete, invocation="one"):
    (host / "etc/chat.group.json").write_text(json.dumps({"role": role}))
    (host / "group/chat").mkdir(parents=True, exist_ok=True)
    state = {"invocation": invocation, "complete": complete}
    (host / "group/chat/state").write_text(json.dumps(state))


def test_a_worker_is_ready_when_it_has_joined(host, monkeypatch, capsys):
    monkeypatch.setattr(wait_ready, "GROUP", host / "group")
    monkeypatch.setenv("INVOCATION_ID", "one")
    join(host, "worker", True)
    run(monkeypatch)
    assert capsys.readouterr().out == "Joined the head\n"
    assert not (host / "run/chat/ready").exists()


@pytest.mark.parametrize("state", [("worker", False), ("worker", True, "another run"), ("head", False)], ids=str)
def test_a_host_of_a_group_is_not_ready_before_all_are_connected(host, monkeypatch, state):
    monkeypatch.setattr(wait_ready, "GROUP", host / "group")
    monkeypatch.setenv("INVOCATION_ID", "one")
    monkeypatch.setenv("MAINPID", "0")
    monkeypatch.setattr(wait_ready.Instance, "healthy", lambda _self: True)
    (host / "etc/chat.yaml").write_text("host: 127.0.0.1\nport: 9\n")
    join(host, *state)
    with pytest.raises(SystemExit, match="vLLM ended before it answered"):
        run(monkeypatch)


def test_a_head_is_ready_when_it_answers_and_all_are_connected(host, monkeypatch):
    monkeypatch.setattr(wait_ready, "GROUP", host / "group")
    monkeypatch.setenv("INVOCATION_ID", "one")
    monkeypatch.setattr(wait_ready.Instance, "healthy", lambda _self: True)
    (host / "etc/chat.yaml").write_text("host: 127.0.0.1\nport: 9\n")
    join(host, "head", True)
    run(monkeypatch)
    assert (host / "run/chat/ready").exists()
