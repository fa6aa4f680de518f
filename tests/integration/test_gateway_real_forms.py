# SPDX-License-Identifier: GPL-3.0-or-later
"""Real vLLM: whatever endpoint and form of a request, complete or broken off, the record has what vLLM counts."""

from __future__ import annotations

import http.client
import json
import time
import urllib.request

import pytest

from tests.fakes.gateways import until
from tests.integration.real_engines import real_engines
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import environment

COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
TEXT = "The fleet is ready. " * 20
CHAT = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 8, "ignore_eos": True}
PLAIN = {"prompt": TEXT, "max_tokens": 8, "ignore_eos": True}
LONG = {"max_tokens": 1500, "ignore_eos": True}
GENERATE = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat as a stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "chats in a batch": ("/v1/chat/completions/batch", {**CHAT, "messages": [CHAT["messages"]] * 3}),
    "completion": ("/v1/completions", PLAIN),
    "completion as a stream": ("/v1/completions", {**PLAIN, "stream": True}),
    "prompts": ("/v1/completions", {**PLAIN, "prompt": [TEXT, "The fleet.", TEXT * 2]}),
    "prompts as a stream": ("/v1/completions", {**PLAIN, "prompt": [TEXT, "The fleet."] * 5, "stream": True}),
    "tokens": ("/v1/completions", {**PLAIN, "prompt": [[1, 2, 3, 4], [5, 6, 7]]}),
    "echo": ("/v1/completions", {**PLAIN, "echo": True, "max_tokens": 0}),
    "prompt_logprobs": ("/v1/completions", {**PLAIN, "prompt_logprobs": 1}),
    "response": ("/v1/responses", {"input": TEXT, "max_output_tokens": 8}),
    "response as a stream": ("/v1/responses", {"input": TEXT, "max_output_tokens": 8, "stream": True}),
    "message": ("/v1/messages", {**CHAT, "ignore_eos": None}),
    "message as a stream": ("/v1/messages", {**CHAT, "ignore_eos": None, "stream": True}),
    "SageMaker": ("/invocations", CHAT),
}
POOLED = {"input": [TEXT, "The fleet."]}
RANKED = {"query": "What is ready?", "documents": [TEXT, "The fleet."]}
POOL = {
    **{
        f"embedding as {form}": ("/v1/embeddings", {**POOLED, "encoding_format": form})
        for form in ("float", "base64", "bytes", "bytes_only")
    },
    **{
        f"pooling as {form}": ("/pooling", {**POOLED, "task": "embed", "encoding_format": form})
        for form in ("float", "bytes_only")
    },
    "score": ("/v1/score", {"queries": "ready?", "documents": [TEXT, "The fleet."]}),
    "rank": ("/v1/rerank", RANKED),
    "rank of Cohere": ("/v2/rerank", RANKED),
    "embedding of Cohere": ("/v2/embed", {"texts": [TEXT], "embedding_types": ["float"]}),
}
BROKEN_OFF = {
    "chat": ("/v1/chat/completions", {**CHAT, **LONG, "stream": True}),
    "prompts": ("/v1/completions", {**PLAIN, **LONG, "prompt": [TEXT, "The fleet."] * 8, "stream": True}),
    "chat whose second part would be the last": (
        "/v1/chat/completions",
        {**CHAT, **LONG, "stream": True, "stream_interval": 100_000},
    ),
    "prompts whose second part would be the last": (
        "/v1/completions",
        {**PLAIN, **LONG, "prompt": [TEXT, "The fleet."], "stream": True, "stream_interval": 100_000},
    ),
    "chat that is no stream": ("/v1/chat/completions", {**CHAT, **LONG, "n": 2}),
    "prompts that are no stream": ("/v1/completions", {**PLAIN, **LONG, "prompt": [TEXT, "The fleet."] * 4}),
}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["llama", "bert"])
def engine(request, tmp_path_factory):
    python, directory = fetched(environment), tmp_path_factory.mktemp(request.param)
    write(FAMILIES[request.param](), directory / "model")
    arguments = {"llama": ("--max-num-seqs", "32", "--max-model-len", "4096"), "bert": ("--runner", "pooling")}
    env = {"VLLM_MAX_COMPLETION_PROMPTS": "10000"}
    with real_engines(python, directory, directory / "model", 1, *arguments[request.param], env=env) as (found,):
        found.family = request.param
        yield found


def asked(engine, path, body, **more):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=300)
    headers = {"X-Gateway-Usage": "gw1 alice research", "Content-Type": "application/json", **more}
    connection.request("POST", path, json.dumps({"model": "m", **body}), headers)
    return connection


def records(engine, number):
    url = f"http://127.0.0.1:{engine.port}/gateway/usage"
    lines = [json.loads(line) for line in urllib.request.urlopen(url, timeout=30).read().splitlines()]
    return [line for line in lines if line.get("number", 0) > number]


def counted(engine):
    until(lambda: engine.counter("vllm:num_requests_running") == 0, 60)
    # The engine tells its counters with the next step.
    time.sleep(0.5)
    return [engine.counter(name) for name in COUNTERS]


def test_each_form_of_each_endpoint_has_the_tokens_that_vllm_counts(engine):
    wrong = {}
    for name, (path, body) in (GENERATE if engine.family == "llama" else POOL).items():
        before, number = counted(engine), len(records(engine, 0))
        connection = asked(engine, path, body)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        found = [now - then for now, then in zip(counted(engine), before)]
        told = [(each["state"], each["model"], each["prompt"], each["completion"]) for each in records(engine, number)]
        print(name, answer.status, found, told)
        if answer.status != 200 or not found[0] or told != [("complete", "m", *found)]:
            wrong[name] = (answer.status, text[-200:], found, told)
    assert wrong == {}


def test_what_is_broken_off_has_the_tokens_that_vllm_counts(engine):
    wrong = {}
    for name, (path, body) in (BROKEN_OFF if engine.family == "llama" else {}).items():
        before, number = counted(engine), len(records(engine, 0))
        connection = asked(engine, path, body)
        if body.get("stream") and "stream_interval" not in body:
            connection.getresponse().read(4000)
        else:
            time.sleep(1.5)
        connection.sock.close() if connection.sock else None
        connection.close()
        (told,) = until(lambda after=number: records(engine, after), 60)
        found = [now - then for now, then in zip(counted(engine), before)]
        # vLLM counts the prompt of each choice.
        choices = body.get("n", 1)
        near = 0 < found[1] - told["completion"] + 1 <= 4 * 16 and told["completion"] > 4
        print(name, found, told)
        if told["state"] != "aborted" or told["prompt"] * choices != found[0] or not near:
            wrong[name] = (found, told)
    assert wrong == {}


def test_beams_count_their_prompt_once(engine):
    if engine.family != "llama":
        return
    before = len(records(engine, 0))
    body = {"prompt": [TEXT, TEXT], "max_tokens": 6, "use_beam_search": True, "n": 3, "temperature": 0.0}
    connection = asked(engine, "/v1/completions", body)
    usage = json.loads(connection.getresponse().read())["usage"]
    connection.close()
    (told,) = records(engine, before)
    print(usage, told)
    assert told["prompt"] == usage["prompt_tokens"] and told["completion"] >= usage["completion_tokens"]


def test_no_id_of_a_client_makes_its_prompts_one(engine):
    if engine.family != "llama":
        return
    for chosen in ("a-beam-b", "0123456789abcdef-beam-0"):
        before = len(records(engine, 0))
        body = {"prompt": [TEXT] * 20, "max_tokens": 1}
        # As a gateway of an earlier release hands it on.
        connection = asked(engine, "/v1/completions", body, **{"X-Request-Id": f"{chosen}-0123456789ab"})
        usage = json.loads(connection.getresponse().read())["usage"]
        connection.close()
        (told,) = records(engine, before)
        print(usage, told)
        assert told["prompt"] == usage["prompt_tokens"]


def assert_refused(engine, bodies, words):
    """Each request gets 400 with these words, and leaves no record."""
    number, wrong = len(records(engine, 0)), {}
    for name, (path, body) in bodies.items():
        began, connection = time.monotonic(), asked(engine, path, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        print(name, answer.status, text[:300], time.monotonic() - began)
        if answer.status != 400 or words not in text:
            wrong[name] = (answer.status, text[:300])
    assert (wrong, records(engine, number)) == ({}, [])


def test_more_prompts_and_choices_than_the_engine_takes_at_a_time_are_refused_and_not_counted(engine):
    """For everybody else a list of 32,000 prompts cost 30 ms at each step."""
    many = ["a"] * 2049
    short = {"max_tokens": 1, "ignore_eos": True}
    chat = {"messages": CHAT["messages"], **short}
    bodies = {
        "llama": {
            # Newer releases have a bound of their own (VLLM_MAX_COMPLETION_PROMPTS), which the test raises.
            "prompts": ("/v1/completions", {**short, "prompt": many}),
            "prompts as a stream": ("/v1/completions", {**short, "prompt": many, "stream": True}),
            "prompts x choices": ("/v1/completions", {**short, "prompt": ["a"] * 129, "n": 16}),
            "choices": ("/v1/chat/completions", {**chat, "n": 2049}),
            "chats": ("/v1/chat/completions/batch", {**chat, "messages": [CHAT["messages"]] * 2049}),
        },
        "bert": {
            "embeddings": ("/v1/embeddings", {"input": many}),
            "pooling": ("/pooling", {"input": many, "task": "embed"}),
            "score": ("/v1/score", {"queries": "a", "documents": many}),
            "rank": ("/v1/rerank", {"query": "a", "documents": many}),
        },
    }[engine.family]
    assert_refused(engine, bodies, "at most 2048 prompts at a time")
    assert engine.counter("vllm:num_requests_running") == 0


def test_a_schema_or_choice_of_a_megabyte_is_refused_and_not_compiled(engine):
    """Of 100,000 words it took seconds of a thread that compiles for all clients, also when this client had gone."""
    if engine.family != "llama":
        pytest.skip("a pooling model generates nothing")
    words = [f"q{number}" for number in range(100_000)]
    schema = {"type": "object", "properties": {"a": {"enum": words}}, "required": ["a"]}
    chat = {"messages": CHAT["messages"], "max_tokens": 5}
    named = {"type": "json_schema", "name": "s", "schema": schema}
    bodies = {
        "choice": ("/v1/chat/completions", {**chat, "structured_outputs": {"choice": words}}),
        "a completion": ("/v1/completions", {"prompt": "a", "structured_outputs": {"regex": "|".join(words)}}),
        "a grammar": (
            "/v1/completions",
            {"prompt": "a", "structured_outputs": {"grammar": 'root ::= "a"' + ' | "b"' * 30_000}},
        ),
        "a format": (
            "/v1/chat/completions",
            {**chat, "response_format": {"type": "json_schema", "json_schema": named}},
        ),
        "a response": ("/v1/responses", {"input": "a", "max_output_tokens": 5, "text": {"format": named}}),
    }
    assert_refused(engine, bodies, "too long: together")
