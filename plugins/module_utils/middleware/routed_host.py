# SPDX-License-Identifier: GPL-3.0-or-later
"""Accept where a KV cache is from vllm-router only, on the hosts of an instance with prefill and decode.

vLLM runs this class before its own code (``--middleware routed.Routed``). vllm-router has a prefill host compute a
prompt, and adds ``kv_transfer_params`` to the request for the decode host: where the KV cache is. vLLM fetches it from
any address that stands there, so no client may set it. The router passes on what a client has set where the prefill
host says nothing, so that host proves what it says with a key of the service.

vllm-router changes requests whose path it knows, and refuses some that vLLM answers. So gateways send it ``/routed``
before the path, which this class removes. It drops all headers but those of W3C's tracing. So gateways put whom they
count tokens for into ``baggage``, and this class makes ``x-gateway-usage`` of it again.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
from typing import Any, Mapping

from ..common.foreign_json import load_json
from ..usage.record import HEADER, PROOF_VARIABLE, SERVICE, keys_in, proof_of
from .arrival_host import Arrival
from .asgi import App, Message, Receive, Scope, Send, read_body, replay, with_headers, with_length
from .steering import PLACE, PRIORITY, containers, mentions

PREFIX = "/routed"
# What a prefill host is asked for has nothing of this.
FROM = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")
# With these, the host that answers has to compute the prompt: for each of several answers, or because the answer says
# something about the prompt.
LOCAL = ("prompt_logprobs", "echo", "use_beam_search")
BAGGAGE, BAGGAGE_KEY = b"baggage", b"gateway-usage="
# The router names both hosts in its ids, and vLLM answers clients with them.
REQUEST_ID, ROUTERS_ID = b"x-request-id", b"___prefill_addr_"
# Says on each answer of a decode host who computed the prompt: another host, or this one.
PREFILL, REMOTE, HERE = b"prefill", b"remote", b"local"
# In PLACE, of the prefill host; a larger answer has none, and the decode host computes the prompt itself.
PROOF, MOST_PROVEN = "proof", 1024 * 1024


class Routed:
    """ASGI middleware: removes ``kv_transfer_params`` that vllm-router has not set.

    ``PREFILL_HOSTS`` has the addresses of the prefill hosts on a decode host, and is empty on a prefill host.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self.prefill = os.environ["PREFILL_HOSTS"].split()
        self.keys = keys_in(os.environ.get(PROOF_VARIABLE, "").split(), SERVICE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request to vLLM, as vllm-router or a client meant it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        own = is_own(scope)
        scope = without_prefix(scope)
        if self.prefill and own:
            scope = with_usage(scope)
        if scope.get("method") != "POST":
            await self.app(scope, receive, send)
            return
        arrival = Arrival(scope, receive, send)
        receive, send = arrival.receive, arrival.send
        body = await read_body(receive)
        if body is None:
            return
        body, remote = self._checked(body, own)
        if self.prefill:
            send = with_headers(send, (PREFILL, REMOTE if remote else HERE))
        elif remote and self.keys:
            send = with_proof(send, self.keys[0])
        await self.app(with_length(scope, body), replay(body, receive), send)

    def _checked(self, body: bytes, own: bool) -> tuple[bytes, bool]:
        """Return the body for vLLM, and whether it says where the KV cache of the prompt is."""
        if not mentions(body, (PLACE,)):
            return body, False
        try:
            asked = load_json(body)
        except ValueError:
            return body, False
        if not isinstance(asked, dict):
            return body, False
        place = asked.get(PLACE)
        allowed = is_alone(asked) and self._may_set(place, own)
        if allowed and isinstance(place, dict):
            place.pop(PROOF, None)
        found = [each for each in containers(asked) if PLACE in each]
        for each in found:
            if each is not asked or not allowed:
                del each[PLACE]
        return (json.dumps(asked).encode() if found else body), bool(allowed and place)

    def _may_set(self, place: Any, own: bool) -> bool:
        """Return whether vllm-router has set it: on a decode host, by the router of this host."""
        if not isinstance(place, dict):
            return False
        if self.prefill:
            return own and place.get("remote_host") in self.prefill and self._is_proven(place)
        return all(place.get(name) is None for name in FROM)

    def _is_proven(self, place: Mapping[str, Any]) -> bool:
        """Return whether a prefill host has said it; without a secret everybody is believed."""
        given = str(place.get(PROOF)).encode("utf-8", "replace")
        return not self.keys or any(
            hmac.compare_digest(proof_of_place(key, place).encode(), given) for key in self.keys
        )


def proof_of_place(key: str, place: Mapping[str, Any]) -> str:
    """Return the proof of a prefill host for what it says of a KV cache."""
    told = {name: value for name, value in place.items() if name != PROOF}
    return proof_of(key, b"place " + json.dumps(told, sort_keys=True).encode())


def with_proof(send: Send, key: str) -> Send:
    """Return ``send`` for a prefill host, which proves where the KV cache of the prompt is."""
    start: list[Message] = []
    parts = bytearray()

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            return start.append(message)
        if not start:
            return await send(message)
        parts.extend(message.get("body", b""))
        more = message.get("more_body", False)
        if more and len(parts) <= MOST_PROVEN:
            return None
        body = bytes(parts)
        if not more:
            body = proven(body, key)
            start[0] = dict(with_length(start[0], body))
        await send(start.pop())
        return await send({"type": "http.response.body", "body": body, "more_body": more})

    return sent


def proven(body: bytes, key: str) -> bytes:
    """Return an answer with the proof of what it says of a KV cache; any other stays as it is."""
    try:
        answer = load_json(body)
    except ValueError:
        return body
    place = answer.get(PLACE) if isinstance(answer, dict) else None
    if not isinstance(place, dict):
        return body
    place[PROOF] = proof_of_place(key, place)
    return json.dumps(answer).encode()


def is_own(scope: Scope) -> bool:
    """Return whether a request comes from this host."""
    client, server = scope.get("client"), scope.get("server")
    return bool(client and server and client[0] == server[0])


def without_prefix(scope: Scope) -> Scope:
    """Return the scope of a gateway's request: the path of its client and its priority, without the router's own id."""
    path = str(scope.get("path", ""))
    if not path.startswith(f"{PREFIX}/"):
        return scope
    headers = [
        (name, value) for name, value in scope["headers"] if name != REQUEST_ID or not value.startswith(ROUTERS_ID)
    ]
    path = path[len(PREFIX) :]
    return {**scope, "headers": [*headers, PRIORITY], "path": path, "raw_path": path.encode()}


def with_usage(scope: Scope) -> Scope:
    """Return the scope with the header that asks for the tokens of a request, from the one that arrives here."""
    headers = list(scope["headers"])
    told = next((value for name, value in headers if name == BAGGAGE and value.startswith(BAGGAGE_KEY)), None)
    if told is None or any(name == HEADER for name, _value in headers):
        return scope
    try:
        value = base64.b64decode(told[len(BAGGAGE_KEY) :], validate=True)
    except binascii.Error:
        return scope
    return {**scope, "headers": [*headers, (HEADER, value)]}


def is_alone(asked: dict[str, Any]) -> bool:
    """Return whether a request has one prompt and one answer, and asks for nothing about the prompt."""
    prompt = asked.get("prompt")
    # A list of numbers is one prompt, any other list several.
    several = isinstance(prompt, list) and not all(isinstance(token, int) for token in prompt)
    one = all(asked.get(name) in (None, 1) for name in ("n", "best_of"))
    return one and not several and not any(asked.get(name) for name in LOCAL)
