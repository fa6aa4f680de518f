# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse requests for models that a gateway's client may not use, at an instance with adapters.

A gateway lists the models of such a client in the header ``x-gateway-models``, which clients cannot send through it. It
reads only the beginning of a body, and vLLM takes the last of two equal keys; so the whole body is read here, as vLLM
reads it. Without the header this module changes nothing.
"""

from __future__ import annotations

from ..common.foreign_json import load_json
from .asgi import App, Receive, Scope, Send, headers_of, is_form, read_body, replay, send_error

HEADER = b"x-gateway-models"
KINDS = ("invalid_request_error", "not_found_error")


class Models:
    """ASGI middleware: POST with the header is handed on if its body is JSON and names one of the models."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, or refuse it."""
        headers = headers_of(scope) if scope["type"] == "http" and scope["method"] == "POST" else {}
        if HEADER not in headers:
            return await self.app(scope, receive, send)
        body = await read_body(receive)
        if body is None:
            return None
        allowed = headers[HEADER].decode("ascii", "replace").split(",")
        # A form may be JSON too, with another model.
        problem = _problem(b"" if is_form(headers) else body, allowed)
        if problem:
            return await send_error(send, scope["path"], 404, KINDS, "model_not_found", problem)
        return await self.app(scope, replay(body, receive), send)


def _problem(body: bytes, allowed: list[str]) -> str:
    """Return why a request is refused, empty for one that may be answered."""
    names = ", ".join(filter(None, allowed)) or "none"
    try:
        request = load_json(body)
    except ValueError:
        return f"The key is limited to some models of this address, and the body is no JSON. The key may use: {names}."
    model = request.get("model") if isinstance(request, dict) else None
    # vLLM takes its own model where a request names none.
    if isinstance(model, str) and model and model in allowed:
        return ""
    return f"The model is unknown, or this key may not use it. The key may use: {names}."
