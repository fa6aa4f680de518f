# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove from the requests of a gateway's clients what could steer the engine or other hosts.

A gateway sets the priority of each request in a header. vLLM takes it for chats and completions, and the priority in
the body for everything else. Behind vllm-router no header arrives, and routed_host.py sets this one again. A site
without a gateway, or with a separate program in front of its instances, keeps these fields.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import json
from typing import Any, Callable, Iterable, Iterator

from ..common.foreign_json import load_json
from .asgi import (
    App,
    Header,
    Receive,
    Scope,
    Send,
    headers_of,
    is_form,
    read_body,
    replay,
    route_of,
    send_answer,
    with_length,
    wrap_engine,
)

# Set by a gateway on each request: the client cannot jump the queue of an engine with scheduling-policy: priority.
PRIORITY: Header = (b"x-vllm-priority", b"0")
# Where the KV cache of a prompt is.
PLACE = "kv_transfer_params"
# tests/parity/test_steering.py compares these with the fields of each release's requests.
FIELDS = (
    # An engine with a connector fetches the cache of a prompt, or of pictures, from any address that stands there.
    PLACE, "ec_transfer_params",
    # Jumps the queue. Of embeddings, ranking, classification and batches no header counts.
    "priority",
    # Releases refuse an id that is in use, or end all requests of an id together; connectors read addresses in it.
    "request_id",
    # Reports each block of the prefix cache again to those who follow its events.
    "kv_cache_report_mode",
    # As KEYS, of pictures that are computed already.
    "mm_hashes",
)  # fmt: skip
# The parts of a request in which vLLM reads them too.
INNER = ("vllm_xargs", "extra_args", "sampling_params", "features")
# In a part of a message, the key of a picture, film or sound in the caches of all clients, in place of one that follows
# from its content: under the key of a picture of others, they would get the answers for another one.
KEYS = ("uuid",)
# What holds the parts of a message, or of what a tool has returned.
CONTENT = ("content", "output")
# They read forms, in which a field may hold some of these as JSON, in any encoding. So a recording is not held in
# memory, and they are removed from what vLLM makes of the form.
RECORDINGS = ("/v1/audio/transcriptions", "/v1/audio/translations")


class Steering:
    """ASGI middleware; ``kept`` are fields that another class judges."""

    def __init__(self, app: App, kept: Iterable[str] = ()) -> None:
        self.app = app
        self.fields = [name for name in FIELDS if name not in kept]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, without the fields if it comes from a gateway."""
        headers = headers_of(scope)
        if PRIORITY[0] not in headers or scope.get("method") != "POST":
            return await self.app(scope, receive, send)
        if route_of(scope) in RECORDINGS:
            wrap_engine(scope, "steered", _steered)
            present = _RECORDING.set(True)
            try:
                return await self.app(scope, receive, send)
            finally:
                _RECORDING.reset(present)
        body = await read_body(receive)
        if body is None:
            return None
        try:
            body = without(body, self.fields)
        except ValueError:
            if is_form(headers):
                return await self.app(scope, replay(body, receive), send)
            # Nothing is handed on that vLLM might be able to read.
            return await send_answer(send, 400, b"the body of the request is no JSON\n")
        return await self.app(with_length(scope, body), replay(body, receive), send)


def mentions(body: bytes, names: Iterable[str]) -> bool:
    """Return whether a body may have a key: as it is, with an escape that could hide it, or in another encoding."""
    return b"\\u00" in body or b"\0" in body[:4] or any(b'"%s"' % name.encode() in body for name in names)


def without(body: bytes, names: Iterable[str]) -> bytes:
    """Return a body without the fields and KEYS; one that has none stays as it is. Raises ValueError."""
    if not mentions(body, (*names, *KEYS)):
        return body
    asked = load_json(body)
    found = [(part, name) for part in containers(asked) for name in names if name in part]
    found += [(part, name) for part in parts_of(asked) for name in KEYS if name in part]
    for part, name in found:
        del part[name]
    return json.dumps(asked).encode() if found else body


def containers(asked: Any) -> list[dict[str, Any]]:
    """Return a request and its parts in which vLLM reads fields for the engine."""
    found, todo = [], [asked] if isinstance(asked, dict) else []
    while todo:
        each = todo.pop()
        found.append(each)
        todo += [each[name] for name in INNER if isinstance(each.get(name), dict)]
    return found


def parts_of(asked: Any) -> Iterator[dict[str, Any]]:
    """Yield what the lists of a request have, such as messages, and their parts; what a tool is given is no part."""
    todo = list(asked.values()) if isinstance(asked, dict) else []
    while todo:
        each = todo.pop()
        if isinstance(each, list):
            yield from (part for part in each if isinstance(part, dict))
            todo += each
        elif isinstance(each, dict):
            todo += [each[name] for name in CONTENT if name in each]


# Whether the present task works for a client that has sent a recording; tasks that vLLM starts for it inherit it.
_RECORDING: contextvars.ContextVar[bool] = contextvars.ContextVar("recording", default=False)


def _steered(method: Callable[..., Any], _state: Any) -> Callable[..., Any]:
    """Return a call of the engine's client that passes on none of the fields of a recording."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def steered(*words: Any, **named: Any) -> Any:
        if _RECORDING.get():
            params = signature.bind(*words, **named).arguments.get("sampling_params")
            extra: dict[str, Any] = getattr(params, "extra_args", None) or {}
            for name in FIELDS:
                extra.pop(name, None)
        return method(*words, **named)

    return steered
