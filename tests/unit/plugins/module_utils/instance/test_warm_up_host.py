# SPDX-License-Identifier: GPL-3.0-or-later
"""The warm-up of an instance, against a stand-in for vLLM."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import warm_up_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Listening
from ansible_collections.baremetal.inference.plugins.module_utils.instance.warm_up import (
    GRAIN,
    PATIENCE,
    REPEATS,
    Limits,
    Progress,
    lengths,
    read_kept,
)

from tests.fakes.stopping_engine import stopping_engine

NOWHERE = Listening("127.0.0.1", 1)


def test_every_size_comes_once_before_any_comes_again(monkeypatch):
    asked = []
    monkeypatch.setattr(warm_up_host.WarmUp, "_ask", lambda *_: {"data": [{"id": "m"}]})
    monkeypatch.setattr(warm_up_host.WarmUp, "request", lambda _self, _model, _tokens, number: asked.append(number))
    warm_up = warm_up_host.WarmUp(NOWHERE, Limits(max_num_seqs=16), 1000, 60)
    monkeypatch.setattr(Progress, "warm", lambda _self, at_once: at_once == 1)
    monkeypatch.setattr(warm_up_host.WarmUp, "all_lengths", lambda _self, _model: asked.append(-1))
    assert "4 requests at a time still get faster" in warm_up.run()
    # The lengths come between the first time of all sizes and the second.
    assert asked.index(-1) == 21 and asked.count(-1) == 1
    asked.remove(-1)
    runs = [1, 4, 16, *[4, 16] * (REPEATS - 1)]
    assert len(asked) == sum(runs) == warm_up.progress.requests
    assert sorted(asked[:21]) == sorted([0, *range(4), *range(16)])
    assert {at_once: len(times) for at_once, times in warm_up.progress.times.items()} == {1: 1, 4: 4, 16: 4}


@pytest.mark.parametrize(("known", "ran"), [
    ({1: 0.1, 4: 0.1, 16: 0.1}, [1, 4]),
    # A size that is slower than before, and one that nobody knows.
    ({1: 0.1, 4: 0.01, 16: 0.1}, [1, 4, 16, 4]),
    ({1: 0.1, 4: 0.1}, [1, 4, 16, 16]),
], ids=["as before", "slower", "unknown"])  # fmt: skip
def test_the_largest_size_does_not_run_where_the_others_take_what_they_took(monkeypatch, known, ran):
    sizes = []
    warm_up = warm_up_host.WarmUp(NOWHERE, Limits(max_num_seqs=16), 1000, 60, known)
    monkeypatch.setattr(warm_up, "_ask", lambda *_: {"data": [{"id": "m"}]})
    monkeypatch.setattr(warm_up, "all_lengths", lambda _model: None)

    def step(_model, at_once, _tokens):
        sizes.append(at_once)
        warm_up.progress.add_step(at_once, 0.1)

    monkeypatch.setattr(warm_up, "_step", step)
    assert "every size is warm" in warm_up.run()
    assert sizes == ran and set(read_kept(warm_up.progress.to_keep("one"), "one")) == {1, 4, 16}


def test_an_answer_that_is_an_error_is_quoted(tmp_path):
    with stopping_engine(tmp_path) as engine:
        (tmp_path / "closed").touch()
        warm_up = warm_up_host.WarmUp(Listening("127.0.0.1", engine.port), Limits(), 1000, 5)
        with pytest.raises(warm_up_host.WarmUpError, match="GET /v1/models answers 503: this instance is stopping"):
            warm_up.run()


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
        warm_up = warm_up_host.WarmUp(Listening("127.0.0.1", listener.getsockname()[1]), Limits(), 1000, 5)
        with pytest.raises(warm_up_host.WarmUpError, match="GET /v1/models names no model"):
            warm_up.run()
    assert b"Authorization: Bearer s3cret" in asked[0]


def lengths_of(monkeypatch, seconds_of):
    """Run single prompts against a vLLM that takes ``seconds_of(tokens)``; return the warm-up."""
    clock = [0.0]
    monkeypatch.setattr(warm_up_host.time, "monotonic", lambda: clock[0])

    def request(self, _model, tokens, _number, output):
        assert output == 1
        clock[0] += seconds_of(tokens)

    monkeypatch.setattr(warm_up_host.WarmUp, "request", request)
    found = warm_up_host.WarmUp(NOWHERE, Limits(), 1000, 20)
    found.all_lengths("m")
    return found


def test_single_prompts_end_when_they_compile_nothing(monkeypatch):
    found = lengths_of(monkeypatch, lambda tokens: 0.01 + tokens / 80000)
    assert len(found.progress.alone) == PATIENCE and not found.progress.compiled


@pytest.mark.parametrize(("more", "ends", "compiled"), [(0.4, 60, True), (0.1, 20, False)], ids=["compiled", "read"])
def test_single_prompts_go_on_while_kernels_come(monkeypatch, more, ends, compiled):
    """While they are compiled, for three times as long as when they only come from the disk."""
    seen = set()

    def seconds_of(tokens):
        grain = -(-tokens // GRAIN)
        new = grain > 32 and grain not in seen
        seen.add(grain)
        return 0.01 + tokens / 80000 + (more if new else 0)

    found = lengths_of(monkeypatch, seconds_of)
    assert time.monotonic() == pytest.approx(ends, abs=1)
    assert (len(found.progress.compiled) > 40) == compiled and len(found.progress.alone) < len(lengths(found.limits))
