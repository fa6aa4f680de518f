# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as its own process, against a server that answers as vLLM does."""

from __future__ import annotations

import json
import threading

import pytest

from tests.fakes.vllm import MODEL, USAGE, chat_body, fake_vllm, stream_chunks
from tests.fakes.wheelhouse import run_module

KEY = "sk-planted-0123456789"
FLEET = {"prompt": "Is the fleet ready?", "expect": "The fleet is ready."}


@pytest.fixture
def fake():
    with fake_vllm() as server:
        yield server


@pytest.fixture
def gate(fake, tmp_path):
    """Run the module on an instance whose files name the server."""
    (tmp_path / "chat.yaml").write_text(
        f"host: 127.0.0.1\nport: {fake.server.server_port}\nserved-model-name:\n- {MODEL}\n"
    )
    return lambda **options: run_module(
        "instance_gate", **{"instance": "chat", "config_dir": str(tmp_path), "pause": 0, **options}
    )


def payloads(fake):
    return [payload for path, payload, _key in fake.asked if path == "/v1/chat/completions"]


def verdicts(result):
    return {verdict["name"]: verdict["ok"] for verdict in result["verdicts"]}


def test_a_model_that_does_not_chat_is_neither_asked_nor_measured(gate, fake, tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    with (tmp_path / "chat.yaml").open("a") as file:
        file.write(f"model: {tmp_path}\n")
    result = gate(prompts=[FLEET])
    assert result["passed"] and result["figures"] == {} and payloads(fake) == []
    assert result["verdicts"] == [{"name": "chat", "ok": True, "detail": "not asked: the model answers embedding"}]
    # The site knows better.
    assert verdicts(gate(checks=["models", "chat_stream"], measure={"prompts": 0})) == {"warm": True}


def test_an_instance_that_answers_passes_and_is_measured(gate, fake):
    result = gate(prompts=[FLEET], measure={"streams": 2, "prompts": 5, "max_tokens": 32}, tries=1)
    assert result["passed"] and not result["changed"] and result["rc"] == 0, result
    assert verdicts(result) == {"warm": True, "prompt 1": True, "measure": True}
    figures = result["figures"]
    assert (figures["requests"], figures["tokens"]) == (5, 5 * USAGE["completion_tokens"])
    assert (figures["prompts"], figures["streams"], figures["max_tokens"]) == (5, 2, 32)
    # Seconds are told to the millisecond, and five answers of the stand-in take but a few of them.
    assert figures["tokens"] / figures["tokens_per_second"] == pytest.approx(figures["seconds"], abs=0.0006)
    assert 0 < figures["first_token_s"] <= figures["first_token_p90_s"] <= figures["seconds"]
    assert result["msg"].startswith(f"Instance chat at {fake.url} passes 3 gates: ")
    asked = payloads(fake)
    assert [bool(payload.get("stream")) for payload in asked] == [True, True, False] + [True] * 5
    assert asked[2] == {
        "model": MODEL,
        "temperature": 0,
        "max_tokens": 256,
        "messages": [{"role": "user", "content": FLEET["prompt"]}],
    }
    streamed = [payload["messages"][0]["content"] for payload in asked if payload.get("stream")]
    # None of them begins as another one does, in this run or a later one.
    assert len({text.split(".")[0] for text in streamed}) == 7
    gate(warm=0, measure={"prompts": 5})
    assert not {payload["messages"][0]["content"] for payload in payloads(fake)[8:]} & set(streamed)


def test_only_so_many_streams_run_at_a_time(gate, fake):
    lock, running, most = threading.Lock(), [], []
    # Both have to be there before either is answered: with one at a time the barrier would break.
    both = threading.Barrier(2)

    def stream(handler):
        with lock:
            running.append(1)
            most.append(len(running))
        both.wait(20)
        with lock:
            running.pop()
        handler.send_stream(stream_chunks())

    fake.behaviour["stream"] = stream
    result = gate(warm=0, measure={"streams": 2, "prompts": 6})
    assert result["passed"] and max(most) == 2


def test_a_wrong_answer_fails_and_is_told_with_all_else(gate, fake):
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json(chat_body("The fleet is on fire."))
    baseline = gate(measure={"prompts": 2, "streams": 1})["figures"]
    faster = {**baseline, "tokens_per_second": baseline["tokens_per_second"] * 1000}
    result = gate(
        prompts=[FLEET, {"prompt": "On?", "expect_any": ["off", "fire"]}, {"prompt": "Any?", "system": "Be brief."}],
        measure={"prompts": 2, "streams": 1},
        baseline=faster,
    )
    assert result["failed"] and not result["passed"]
    assert verdicts(result) == {
        "warm": True, "prompt 1": False, "prompt 2": True, "prompt 3": True,
        "measure": True, "throughput": False, "first_token": True,
    }  # fmt: skip
    lines = result["msg"].splitlines()
    assert lines[0] == f"Instance chat at {fake.url} does not pass 2 of 7 gates:"
    assert lines[1] == (
        "- prompt 1: 'Is the fleet ready?': answered 'The fleet is on fire.', "
        "expected it to contain 'The fleet is ready.'"
    )
    assert lines[2].startswith("- throughput: ") and "expected at least 0.8" in lines[2]
    assert lines[3].startswith(f"Before: {faster['tokens_per_second']} tokens/s") and lines[4].startswith("Now: ")
    assert payloads(fake)[-1]["stream"] and any(
        payload["messages"][0] == {"role": "system", "content": "Be brief."} for payload in payloads(fake)
    )


def test_a_measurement_that_falls_short_is_made_again(gate, fake):
    asked = []

    def stream(handler):
        asked.append(1)
        handler.send_stream(stream_chunks(), pause=0.1 if len(asked) <= 2 else 0)

    measure = {"streams": 1, "prompts": 2}
    before = gate(warm=0, measure=measure)["figures"]
    # With the pauses no machine is above it, without them none so slow as to be below it.
    baseline = {**before, "tokens_per_second": 15.0, "first_token_s": 5.0}
    fake.behaviour["stream"] = stream
    result = gate(warm=0, measure=measure, baseline=baseline, throughput_share=1)
    assert result["passed"] and len(asked) == 4
    assert "measured for the 2. time" in result["verdicts"][0]["detail"]
    asked.clear()
    result = gate(warm=0, measure=measure, baseline=baseline, throughput_share=1, tries=1)
    assert len(asked) == 2
    assert result["failed"] and verdicts(result) == {"measure": True, "throughput": False, "first_token": True}


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (lambda handler: handler.send_stream(stream_chunks(), done=False), "without 'data: [DONE]'"),
        (lambda handler: handler.send_json({"error": {"message": "engine dead"}}, 500), "answered 500: engine dead"),
        (lambda handler: handler.send_stream(stream_chunks(texts=())), "held no token (finish_reason stop)"),
        (lambda handler: handler.send_stream(stream_chunks(usage=False)), "no chunk held usage.completion_tokens"),
    ],
)
def test_a_stream_that_is_not_whole_fails(gate, fake, behaviour, said):
    fake.behaviour["stream"] = behaviour
    result = gate(prompts=[FLEET])
    # Nothing more is asked of an instance that cannot even be warmed.
    assert result["failed"] and verdicts(result) == {"warm": False} and said in result["msg"]
    assert len(payloads(fake)) == 1
    result = gate(prompts=[FLEET], warm=0, measure={"streams": 1})
    assert verdicts(result) == {"prompt 1": True, "measure": False} and said in result["msg"]
    assert result["figures"] == {} and "stream 1 of 8, 1 at a time" in result["msg"]


def test_an_instance_that_hangs_is_asked_once(gate, fake):
    release = threading.Event()
    fake.behaviour["/v1/chat/completions"] = lambda _handler: release.wait(30)
    result = gate(warm=0, prompts=[FLEET, FLEET], request_timeout=3)
    release.set()
    assert verdicts(result) == {"prompt 1": False} and "no answer within 3 s" in result["msg"]
    assert len(payloads(fake)) == 1


def test_a_model_that_only_thinks_is_measured(gate, fake):
    def thinking(handler):
        chunks = stream_chunks(texts=())
        chunks[1:1] = [
            {**chunks[0], "choices": [{"index": 0, "delta": {"reasoning": "Hm"}, "finish_reason": None}]},
        ]
        handler.send_stream(chunks)

    fake.behaviour["stream"] = thinking
    assert gate()["passed"]


def test_other_settings_are_not_compared(gate):
    fast = {**gate(measure={"prompts": 2})["figures"], "tokens_per_second": 1e9}
    result = gate(baseline=fast, measure={"prompts": 3})
    assert result["passed"] and result["verdicts"][-1]["name"] == "baseline", result
    assert "measured with prompts 2, now it is 3" in result["verdicts"][-1]["detail"]


def test_answers_may_be_asked_to_go_on(gate, fake):
    plain = gate(measure={"prompts": 2})["figures"]
    assert "ignore_eos" not in plain and not any("ignore_eos" in payload for payload in payloads(fake))
    fake.asked.clear()
    result = gate(prompts=[FLEET], measure={"prompts": 2, "ignore_eos": True}, baseline=plain, tries=1)
    assert [payload.get("ignore_eos") for payload in payloads(fake)] == [True, True, None, True, True]
    assert result["figures"]["ignore_eos"] == 1 and "with ignore_eos unknown, now it is 1" in str(result["verdicts"])


def test_the_key_is_sent_and_in_nothing_that_is_printed(gate, fake, tmp_path):
    (tmp_path / "chat.secrets").write_text(f"VLLM_API_KEY={KEY}\n")
    fake.api_key = KEY
    result = gate(prompts=[FLEET], measure={"prompts": 1})
    assert result["passed"] and {key for path, _payload, key in fake.asked if "/v1" in path} == {f"Bearer {KEY}"}
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json(chat_body(f"It is {KEY}."))
    result = gate(prompts=[FLEET], measure={"prompts": 0})
    assert result["failed"] and "It is ********." in result["msg"] and KEY not in json.dumps(result)


def test_check_mode_skips_what_is_not_there_and_asks_what_is(gate, fake, tmp_path):
    options = {"_ansible_check_mode": True, "measure": {"prompts": 0}, "prompts": [FLEET]}
    assert gate(**options)["passed"] is True
    fake.behaviour["/health"] = lambda handler: handler.send_text("", 503)
    result = gate(**options)
    assert result["skipped"] and result["passed"] is None and "does not answer" in result["msg"]
    result = run_module("instance_gate", instance="chat", config_dir="/nowhere", _ansible_check_mode=True)
    assert result["skipped"] and "/nowhere/chat.yaml is not there" in result["msg"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompts": [{"expect": "x"}]}, "prompts: entry 1 has no prompt, expected a text."),
        ({"prompts": [FLEET, {"prompt": "a", "expected": "b"}]}, "prompts: entry 2 has expected, expected only prompt"),
        ({"prompts": [{**FLEET, "expect_any": ["x"]}]}, "has expect and expect_any, expected one of them."),
        ({"prompts": [{"prompt": "a", "expect_any": "x"}]}, "has expect_any 'x', expected a list of texts."),
        ({"prompts": [{"prompt": "a", "max_tokens": 0}]}, "has max_tokens 0, expected a whole number from 1"),
        ({"measure": {"prompts": -1}}, "measure: has prompts -1, expected a whole number from 0 to 4096."),
        ({"measure": {"streams": "many"}}, "measure: has streams 'many', expected a whole number from 1 to 256."),
        ({"measure": {"tokens": 1}}, "measure: has tokens, expected only streams, prompts, max_tokens, ignore_eos."),
        ({"measure": {"ignore_eos": "maybe"}}, "measure: has ignore_eos 'maybe', expected true or false."),
        ({"throughput_share": 80}, "throughput_share: found 80, expected a share from 0"),
        ({"pause": -1}, "pause: found -1, expected 0 or more."),
        ({"tries": 0}, "tries: found 0, expected 1 or more."),
        ({"request_timeout": 0}, "request_timeout: found 0, expected more than 0 seconds."),
        ({"instance": "../x"}, "instance: found '../x', expected a name such as chat."),
        ({"config_dir": "/nowhere"}, "instance chat is not installed on this host: /nowhere/chat.yaml is not there."),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_asked(gate, fake, options, said):
    result = gate(**options)
    assert result["failed"] and said in result["msg"] and not fake.asked
