# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of a gateway reads whatever HAProxy and vLLM answer; its loops catch ValueError."""

from __future__ import annotations

import math

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import agent_host as agent
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import verdict
from ansible_collections.baremetal.inference.plugins.module_utils.instance.metrics import RUNNING, WORK, sums

from tests.fakes.fuzz import HostileServer, assert_enough, cases, mutated_text, told_apart, within

METRICS = (
    "# HELP vllm:num_requests_running x\n"
    'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
    'vllm:generation_tokens_total{engine="0",model_name="m"} 91827.0\n'
    'vllm:prompt_tokens_total{engine="0",model_name="m"} 1.8273e+06\n'
)


def test_whatever_vllm_counts_it_is_finite():
    read = 0
    for label, choose in cases("agent-metrics", 400):
        with told_apart(label):
            found = within(60, lambda text=mutated_text(choose, METRICS): sums(text, (*WORK, RUNNING)))  # noqa: B008
            read += bool(found)
            assert all(math.isfinite(value) for value in found.values())
    assert_enough(read, 50, "read")


@pytest.mark.slow
def test_whatever_an_engine_answers_its_state_is_one_line(monkeypatch):
    """Head, body and timing: the agent's own limits end each question."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    states = set()
    for label, choose in cases("agent-engine", 40):

        def script(_head, choose=choose):
            body = mutated_text(choose, METRICS) if choose.random() < 0.5 else METRICS
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body.encode('utf-8', 'replace'))}\r\n\r\n"
            if choose.random() < 0.5:
                head = mutated_text(choose, head)
            if choose.random() < 0.1:
                yield choose.choice((0.05, None))
            yield head.encode("utf-8", "replace") + body.encode("utf-8", "replace")

        with told_apart(label), HostileServer(script) as server:
            watched = verdict.Watched(0.2, 60, 3)
            address = server.url.partition("//")[2]
            for _time in range(2):
                within(60, lambda address=address, watched=watched: agent.check_instance(address, "m", watched))
            assert watched.answer.isprintable() and len(watched.answer) < 300
            states.add(watched.answer.partition(" ")[0])
    assert states
