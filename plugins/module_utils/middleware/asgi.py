# SPDX-License-Identifier: GPL-3.0-or-later
"""What the classes of the middleware share: requests and answers as ASGI has them."""

from __future__ import annotations

import json
from typing import Any, Awaitable, Callable, Dict, Mapping, MutableMapping, Tuple

Scope = MutableMapping[str, Any]
Message = Dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = Tuple[bytes, bytes]
FORMS = (b"multipart/", b"application/x-www-form-urlencoded")


def route_of(scope: Mapping[str, Any]) -> str:
    """Return the path without what ``--root-path`` has put in front of it."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "").rstrip("/")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the headers by name; of two with one name the first, which is vLLM's too."""
    return dict(reversed(list(scope.get("headers", ()))))


def is_form(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request says that its body is a form."""
    return headers.get(b"content-type", b"").lower().strip().startswith(FORMS)


async def read_body(receive: Receive) -> bytes | None:
    """Return the body of a request, None where the client has gone."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return ``receive`` for a body that has been read."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received


async def send_answer(send: Send, status: int, body: bytes, kind: bytes = b"text/plain", *more: Header) -> None:
    """Send a whole answer."""
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_error(
    send: Send, path: str, status: int, kinds: tuple[str, str], code: str, message: str, *more: Header
) -> None:
    """Send an error in the form of the API that was called: OpenAI's, or with the second kind Anthropic's."""
    of_messages = path == "/v1/messages" or path.startswith("/v1/messages/")
    error = {"message": message, "type": kinds[of_messages], "param": None, "code": code}
    body = json.dumps({"error": error, **({"type": "error"} if of_messages else {})}).encode()
    await send_answer(send, status, body, b"application/json", *more)


def wrap_engine(scope: Scope, mark: str, wrap: Callable[[Callable[..., Any], Any], Callable[..., Any]]) -> Any:
    """Return the client of vLLM's engine, whose calls that compute are wrapped from now on; None where there is none.

    ``wrap`` gets a call and vLLM's state; ``mark`` tells what is wrapped already.
    """
    state = getattr(scope.get("app"), "state", None)
    client = getattr(state, "engine_client", None)
    for name in ("generate", "encode"):
        method = getattr(client, name, None)
        if method is not None and not hasattr(method, mark):
            wrapped = wrap(method, state)
            setattr(wrapped, mark, True)
            setattr(client, name, wrapped)
    return client


def with_headers(send: Send, *more: Header) -> Send:
    """Return ``send`` with more headers in the answer."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sent


def with_length(scope: Scope, body: bytes) -> Scope:
    """Return the scope with the length of a new body."""
    names = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name not in names]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % len(body))]}
