# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HAProxy before a real vLLM: the class of a team orders the engine's own queue, and no client's word does."""

from __future__ import annotations

import json
import os
import threading

import pytest

from tests.fakes.gateways import HAPROXY, client, gateway, plan, until
from tests.integration.real_engines import real_engines
from tests.integration.test_gateway_admission import CHAT, TEAMS, key_of
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import environment

CLIENTS = {"prod": "product", "res": "research", "night": "nightly"}
# What a client may try: both places where vLLM reads a priority.
HEADERS = {"Content-Type": "application/json", "X-Vllm-Priority": "-1000", "X-Class": "gold"}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy"),
]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("priority", ["night", "prod", "res", "night", "night"]), ("fcfs", ["night", "night", "night", "res", "prod"])],
)
def test_the_engine_serves_the_highest_class_first_whatever_clients_send(tmp_path, policy, expected):
    """The gateway hands all on, the engine works at one at a time, and the highest class comes last."""
    write(FAMILIES["llama"](), tmp_path / "model")
    arguments = ("--max-num-seqs", "1", "--max-model-len", "4096", "--scheduling-policy", policy)
    with real_engines(fetched(environment), tmp_path, tmp_path / "model", 1, *arguments) as (engine,):
        # More places than the engine works at, as where it holds a queue of its own.
        plans = {"chat-1": plan(engine.port, models=("m",), args={"max-num-seqs": 8, "scheduling-policy": policy})}
        clients = [client(name, key_of(name), team=team) for name, team in CLIENTS.items()]
        options = {"admission": "auto", "teams": {team: TEAMS[team] for team in CLIENTS.values()}}
        with gateway(tmp_path, [], clients, plans=plans, options=options) as found:
            until(lambda: found.state("gw--chat-1") == "UP")
            order, threads = [], []

            def ask(name):
                forged = {"priority": -1000} if name == "night" else {}
                body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "ignore_eos": True, **forged}
                status, *rest = found.ask(
                    "POST", CHAT, key_of(name), json.dumps({**body, "max_tokens": 1500}).encode(), **HEADERS
                )
                order.append((name, status) if status == 200 else (name, status, *rest))

            for number, name in enumerate(("night", "night", "night", "res", "prod")):
                threads.append(threading.Thread(target=ask, args=(name,)))
                threads[-1].start()
                until(lambda: order or engine.counter("vllm:num_requests_running") == 1)
                until(lambda: order or engine.counter("vllm:num_requests_waiting") == number)  # noqa: B023
                assert order == []
            for thread in threads:
                thread.join()
            assert order == [(name, 200) for name in expected]
