# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever an endpoint answers, it is judged: head, body and timing end in a finding that can be shown."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.answers import (
    finished_requests,
    model_length,
)
from ansible_collections.baremetal.inference.plugins.module_utils.containers.layouts import children
from ansible_collections.baremetal.inference.plugins.module_utils.containers.oci_index import OciError, parse_index
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply, TimedClient
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.idle import read_load
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.questions import (
    Question,
    judge,
    request_of,
)

from tests.fakes.fuzz import (
    HostileServer,
    assert_enough,
    assert_presentable,
    cases,
    mutated,
    mutated_text,
    told_apart,
    within,
)
from tests.fakes.vllm import call_body, chat_body, embedding_body, pooled_body, rerank_body

QUESTION = Question(("org/model",), "Is the fleet ready?", "The fleet", "ready", 64)
USAGE = {"prompt_tokens": 9, "completion_tokens": 5}
CHAT = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "It is ready."}, "finish_reason": "stop"}],
    "usage": USAGE,
}
CHUNK = {"choices": [{"index": 0, "delta": {"content": "It is ready."}, "finish_reason": "stop"}]}
BODIES = {
    "models": {"object": "list", "data": [{"id": "org/model", "max_model_len": 4096}]},
    "chat": CHAT,
    "responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "It is ready."}]}],
        "usage": {"output_tokens": 5},
    },
    "completions": {"choices": [{"index": 0, "text": "is ready.", "finish_reason": "length"}], "usage": USAGE},
    "chat_stream": [CHUNK, {"choices": [], "usage": USAGE}],
    "tool_call": call_body(),
    "image": chat_body("Red."),
    "embedding": embedding_body(),
    "rerank": rerank_body(),
    "classify": pooled_body(label="joy", probs=[0.9, 0.1]),
    "pooling": pooled_body(data=[[0.1, 0.2], [0.3, 0.4]]),
    "transcription": {"text": "la", "usage": {"seconds": 1}},
}
METRICS = (
    'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting{engine="0"} 0.0\n'
    'vllm:request_success_total{finished_reason="stop"} 17.0\n'
)
DIGEST = f"sha256:{'0' * 64}"
BLOB = {"digest": DIGEST, "size": 700, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}
INDEX = {"manifests": [{**BLOB, "annotations": {"org.opencontainers.image.ref.name": "v0.33.0"}}]}


def body_of(choose, kind):
    data = mutated(choose, BODIES[kind]) if choose.random() < 0.8 else BODIES[kind]
    if kind == "chat_stream":
        data = data if isinstance(data, list) else [data]
        text = "".join(f"data: {dumped(chunk)}\n\n" for chunk in data) + "data: [DONE]\n\n"
    else:
        text = dumped(data)
    return mutated_text(choose, text) if choose.random() < 0.3 else text


def dumped(data):
    return json.dumps(data, default=lambda _value: None, skipkeys=True)


@pytest.mark.parametrize("kind", BODIES)
def test_whatever_the_body_holds_there_is_a_finding(kind):
    good = 0
    for label, choose in cases(f"answer-{kind}", 200):
        with told_apart(label):
            body = body_of(choose, kind).encode("utf-8", "surrogatepass")
            lines = tuple((0.1 * number, line) for number, line in enumerate(body.split(b"\n")))
            status = choose.choice((200, 200, 200, 200, 404, 500))
            reply = Reply(status, lines, 1.0, "" if choose.random() < 0.9 else "the connection was cut")
            finding = within(60, lambda reply=reply: judge(kind, QUESTION, reply))
            good += finding.ok
            json.dumps(finding.row())
            assert_presentable(finding.detail, 5000)
    assert_enough(good, 10, "good answers")


def test_whatever_the_metrics_hold_they_are_numbers_or_a_problem():
    read = 0
    for label, choose in cases("metrics", 400):
        with told_apart(label):
            text = mutated_text(choose, METRICS)
            load = within(60, lambda text=text: read_load(Reply(200, ((0.1, text.encode()),), 0.1)))
            read += not load.problem
            if load.problem:
                assert_presentable(load.problem, 1000)
            finished_requests(text)
            model_length(body_of(choose, "models").encode("utf-8", "surrogatepass"), "org/model")
    assert_enough(read, 50, "read")


def test_whatever_a_layout_of_images_holds_it_is_read_or_refused():
    read = 0
    manifest = {"schemaVersion": 2, "config": BLOB, "layers": [BLOB, BLOB], "manifests": []}
    for label, choose in cases("layout", 400):
        with told_apart(label):
            texts = [dumped(mutated(choose, data)) for data in (manifest, INDEX)]
            texts = [mutated_text(choose, text) if choose.random() < 0.2 else text for text in texts]
            try:
                found = within(60, lambda texts=texts: children(texts[0].encode("utf-8", "surrogatepass"), DIGEST))
                assert all(blob.size >= 0 for blob in found)
                within(60, lambda texts=texts: parse_index(texts[1], "/srv/images/vllm", "vllm/vllm-openai"))
                read += 1
            except OciError as exc:
                assert_presentable(str(exc), 2000)
    assert_enough(read, 20, "read")


def test_whatever_head_and_timing_a_request_ends_in_a_reply(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for label, choose in cases("endpoint", 40):

        def script(_head, choose=choose):
            body = body_of(choose, "chat").encode("utf-8", "surrogatepass")
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            if choose.random() < 0.6:
                head = mutated_text(choose, head)
            yield head.encode("utf-8", "surrogatepass")
            if choose.random() < 0.2:
                yield choose.choice((0.05, 5, None))
            yield body

        with told_apart(label), HostileServer(script) as server:
            client = TimedClient(server.url)
            method, path, payload = request_of("chat", QUESTION)
            reply = within(60, lambda call=(client, method, path, payload): call[0].request(*call[1:], 0.5))
            finding = judge("chat", QUESTION, reply)
            assert_presentable(finding.detail, 5000)
