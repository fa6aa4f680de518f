# SPDX-License-Identifier: GPL-3.0-or-later
"""A client with a key has tokens left uncounted by the id that it chooses for its request."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.fakes.counted_engine import CountedEngine, answer, counted_engine, params
from tests.fakes.gateways import HAPROXY, KEY, gateway, until
from tests.unit.plugins.module_utils.middleware.test_usage_host import records

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
PROMPTS, TOKENS = 20, 100
# The form of a search's own steps too, and what HAProxy and vLLM may read otherwise.
IDS = [
    "plain", "a-beam-b", "-beam-", "x-beam-0", "0123456789abcdef-beam-0", f"{'0' * 32}-beam-1", "a-BEAM-1", "a-beam",
    "beam-1", "_warmup_", "cmpl-1-0", "--", "a:b.c_d",
]  # fmt: skip


class Completions(CountedEngine):
    """Names the requests to the engine as vLLM's /v1/completions does (completion/serving.py)."""

    async def __call__(self, scope, receive, send):
        self.id = dict(scope["headers"]).get(b"x-request-id", b"none").decode()
        return await super().__call__(scope, receive, send)

    async def serve(self, path, request, send, gone):
        client = self.state.engine_client
        name = f"cmpl-{self.id}"
        if request.get("use_beam_search"):
            name += f"-{0:016x}-beam"
        for each in [
            client.generate({"prompt_token_ids": prompt}, params(1, stream=False), f"{name}-{number}")
            for number, prompt in enumerate(request["prompt"])
        ]:
            async for _output in each:
                pass
        return await answer(send, b"{}")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    directory = tmp_path_factory.mktemp("i")
    more = {"options": {"tokens": True}, "variables": {"gateway_tokens": True}}
    engine = counted_engine(directory / "run", engine=Completions())
    with engine as running, gateway(directory, [running.port], **more) as found:
        until(lambda: found.state("gw--chat-1") == "UP")
        found.engine = running
        yield found


def counted(one, chosen, **more):
    """Return the tokens that are recorded for a request with an id, and the id that its client gets."""
    body = json.dumps({"model": "m", "prompt": [[1] * TOKENS] * PROMPTS, **more}).encode()
    status, headers, _body = one.ask("POST", "/v1/completions", KEY, body, **{"X-Request-Id": chosen})
    assert status == 200
    (made,) = [value for name, value in headers.items() if name.lower() == "x-request-id"]
    return records(one.engine)[0][-1]["prompt"], made


@pytest.mark.parametrize("chosen", IDS)
def test_no_id_takes_a_prompt_out_of_the_count(one, chosen):
    assert counted(one, chosen)[0] == PROMPTS * TOKENS


def test_the_steps_of_a_search_still_have_one_prompt(one):
    assert counted(one, "plain", use_beam_search=True)[0] == TOKENS


@pytest.mark.parametrize("chosen", [each for each in IDS if "-beam-" in each])
def test_an_id_with_a_mark_of_the_engine_is_not_kept(one, chosen):
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", counted(one, chosen)[1])
