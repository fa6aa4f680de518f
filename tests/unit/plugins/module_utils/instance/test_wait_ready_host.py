# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit asks, and has vLLM do, before it counts as active."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import wait_ready_host, warm_up, warm_up_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import InstanceError, Listening

from tests.fakes.stopping_engine import stopping_engine


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The directories of an instance ``chat``, whose unit has just started this process."""
    for name, place in (("CONFIG_DIR", "etc"), ("STATE_DIR", "lib"), ("RUN_DIR", "run"), ("GROUP_RUN_DIR", "group"),
                        ("CACHE_DIR", "cache")):  # fmt: skip
        monkeypatch.setattr(wait_ready_host, name, str(tmp_path / place))
    for place in ("etc", "lib/chat/model", "run/chat"):
        (tmp_path / place).mkdir(parents=True)
    return tmp_path


def configure(host, engine, **more):
    lines = {"host": "0.0.0.0", "port": engine.port, **more}
    (host / "etc/chat.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))


def health(engine):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
    connection.request("GET", "/health")
    return connection.getresponse().status


def run(seconds=0.0, main_pid="self"):
    return wait_ready_host.wait_ready("chat", main_pid, seconds)


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
        said = run()
        assert (host / "run/chat/ready").exists()
        assert tls or health(engine) == 200
        assert not engine.completions and not said


def test_the_next_start_with_the_same_caches_runs_each_size_at_most_once(host, monkeypatch):
    monkeypatch.setattr(warm_up, "STEADY", 0.1)
    (host / "cache/chat/vllm").mkdir(parents=True)
    requests = []
    for _start in range(2):
        with stopping_engine(host / "run/chat", ready=False) as engine:
            configure(host, engine, **{"max-num-seqs": 4, "max-model-len": "128"})
            assert "every size is warm" in run(300)
            requests.append(sum(asked["max_tokens"] == warm_up.OUTPUT for asked in engine.completions))
    assert requests == [2 * (1 + 4), 1]
    assert sorted(json.loads((host / "cache/chat/vllm/warm-up.json").read_text())["seconds"]) == ["1", "4"]


def test_every_size_of_batch_is_run_until_it_gets_no_faster(host, monkeypatch, capsys):
    (host / "lib/chat/model/config.json").write_text('{"text_config": {"vocab_size": 500}}')
    # The engine compiles for a second; what a busy machine adds is less than that.
    monkeypatch.setattr(warm_up, "STEADY", 0.7)
    with stopping_engine(host / "run/chat", ready=False) as engine:
        engine.compiles = 1.0
        configure(host, engine, **{"max-num-seqs": 6, "max-model-len": "128"})
        said = run(300)  # it ends when every size is warm
        assert engine.most == 6 and health(engine) == 200
    assert said.startswith("Warm-up: ") and "every size is warm (1: " in said and "lengths alone" in said
    # Prompt and answer fit into the model's context.
    sizes = {output: {len(asked["prompt"]) for asked in engine.completions if asked["max_tokens"] == output}
             for output in (1, warm_up.OUTPUT)}  # fmt: skip
    assert sizes[warm_up.OUTPUT] == {128 - warm_up.OUTPUT - 1}
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
        said = run(1.2)
        assert time.monotonic() - began < 60 and health(engine) == 200
    assert "the time was up at " in said


def test_a_model_that_completes_nothing_serves_all_the_same(host, monkeypatch, capsys):
    with stopping_engine(host / "run/chat", ready=False) as engine:
        configure(host, engine)
        monkeypatch.setattr(warm_up_host.WarmUp, "request", refused)
        assert run(5) == "Warm-up ended: POST /v1/completions answers 404: nothing here"
        assert health(engine) == 200


def refused(*_arguments):
    raise warm_up_host.WarmUpError("POST /v1/completions answers 404: nothing here")


def test_a_kept_state_of_an_earlier_release_starts_too(host, monkeypatch):
    (host / "run/chat").rmdir()
    with stopping_engine() as engine:
        configure(host, engine)
        run()


def test_vllm_that_has_ended_is_not_waited_for(host, monkeypatch):
    with stopping_engine() as engine:
        configure(host, engine)
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(wait_ready_host.EndedError, match="vLLM ended before it answered"):
        run(main_pid=str(ended.pid))


def test_what_is_no_http_is_not_healthy():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _address = listener.accept()
            connection.recv(1000)
            connection.sendall(b"no http at all\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert not wait_ready_host.healthy(Listening("127.0.0.1", listener.getsockname()[1]))


@pytest.mark.parametrize(("text", "expected"), [
    (json.dumps({"vocab_size": 32}), 32), ("{}", 1000), ("not JSON", 1000), (json.dumps({"text_config": 1}), 1000),
    # A prompt of random tokens below these is no prompt, or takes all memory.
    *((f'{{"vocab_size": {size}}}', 1000) for size in ("1e999", "-5", "1" + "0" * 4000, "true", '"x"', "[1]")),
])  # fmt: skip
def test_the_vocabulary_is_the_models(host, text, expected):
    (host / "lib/chat/model/config.json").write_text(text)
    assert wait_ready_host.vocabulary_of("chat") == expected


def join(host, role, complete, invocation="one"):
    (host / "etc/chat.group.json").write_text(json.dumps({"role": role}))
    (host / "group/chat").mkdir(parents=True, exist_ok=True)
    state = {"invocation": invocation, "complete": complete}
    (host / "group/chat/state").write_text(json.dumps(state))


def test_a_worker_is_ready_when_it_has_joined(host, monkeypatch, capsys):
    monkeypatch.setenv("INVOCATION_ID", "one")
    join(host, "worker", True)
    assert run() == "Joined the head"
    assert not (host / "run/chat/ready").exists()


@pytest.mark.parametrize("state", [("worker", False), ("worker", True, "another run"), ("head", False)], ids=str)
def test_a_host_of_a_group_is_not_ready_before_all_are_connected(host, monkeypatch, state):
    monkeypatch.setenv("INVOCATION_ID", "one")
    monkeypatch.setattr(wait_ready_host, "healthy", lambda _listening: True)
    (host / "etc/chat.yaml").write_text("host: 127.0.0.1\nport: 9\n")
    join(host, *state)
    with pytest.raises(wait_ready_host.EndedError, match="vLLM ended before it answered"):
        run(main_pid="0")


def test_a_head_is_ready_when_it_answers_and_all_are_connected(host, monkeypatch):
    monkeypatch.setenv("INVOCATION_ID", "one")
    monkeypatch.setattr(wait_ready_host, "healthy", lambda _listening: True)
    (host / "etc/chat.yaml").write_text("host: 127.0.0.1\nport: 9\n")
    join(host, "head", True)
    run()
    assert (host / "run/chat/ready").exists()


@pytest.mark.parametrize("odd", ["link", "FIFO"])
def test_what_lies_in_the_place_of_the_mark_is_replaced(host, monkeypatch, odd):
    monkeypatch.setattr(wait_ready_host, "healthy", lambda _listening: True)
    (host / "etc/chat.yaml").write_text("port: 9\n")
    mark = host / "run/chat/ready"
    os.mkfifo(mark) if odd == "FIFO" else mark.symlink_to(host / "nologin")
    run()
    assert mark.is_file() and not mark.is_symlink() and not (host / "nologin").exists()


def test_an_instance_that_nobody_could_ask_is_named(host):
    (host / "etc/chat.yaml").write_text("uds: /run/x\n")
    with pytest.raises(InstanceError, match=r"etc/chat.yaml: uds: found a Unix socket"):
        run()


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"complete": 1}'])
def test_a_state_of_a_group_that_is_none_is_not_connected(host, state):
    (host / "group/chat").mkdir(parents=True)
    (host / "group/chat/state").write_text(state)
    assert not wait_ready_host.connected("chat")


def test_another_model_or_argument_is_another_engine(host, monkeypatch, tmp_path):
    (host / "etc/chat.yaml").write_text("max-num-seqs: 4\n")
    first = wait_ready_host.engine_of("chat")
    (host / "etc/chat.yaml").write_text("max-num-seqs: 8\n")
    assert wait_ready_host.engine_of("chat") not in (first, wait_ready_host.engine_of("missing"))
    (host / "etc/chat.yaml").write_text("host: 10.0.0.7\nmax-num-seqs: 4\nport: 9\n")
    assert wait_ready_host.engine_of("chat") == first
    model = tmp_path / "state/chat/model"
    monkeypatch.setattr(wait_ready_host, "STATE_DIR", str(tmp_path / "state"))
    model.parent.mkdir(parents=True)
    found = set()
    for target in ("a", "b"):
        (tmp_path / target).mkdir()
        model.unlink(missing_ok=True)
        model.symlink_to(tmp_path / target)
        found.add(wait_ready_host.engine_of("chat"))
    assert len(found) == 2
