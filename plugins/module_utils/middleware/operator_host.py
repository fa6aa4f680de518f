# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep vLLM's endpoints for operators from everybody but programs of root on the same host.

Some features need endpoints that clients must not reach: one that loads adapters reads any directory, and with
``VLLM_SERVER_DEV_MODE`` a request can run code in the engine. A plan that switches such endpoints on sets
``OPERATOR_GUARD``; then the middleware refuses them without a token. A program writes a fresh token into the file
``operator`` of the instance's directory below /run/vllm, calls, and removes the file.
"""

import hmac
import os
import time
from typing import Any, Mapping

from ..instance.marks import OPERATOR, OPERATOR_HEADER, OPERATOR_SECONDS
from .asgi import route_of

VARIABLE = "OPERATOR_GUARD"
HEADER = OPERATOR_HEADER.encode()
# What clients and monitoring may call. It lists what is open, not what is closed: a new release may have a new endpoint
# for operators.
OPEN_PREFIXES = ("/v1/", "/v2/")
OPEN = frozenset(
    f"/{name}"
    for name in (
        *("health", "metrics", "ping", "version", "load", "gateway/usage"),
        *("tokenize", "detokenize", "pooling", "classify", "score", "rerank", "invocations", "inference/v1/generate"),
    )
)
CLOSED = frozenset(("/v1/load_lora_adapter", "/v1/unload_lora_adapter"))


class Guard:
    """Decides whether a request may reach vLLM; ``directory`` is that of the instance."""

    def __init__(self, directory: str) -> None:
        self._file = os.path.join(directory, OPERATOR)
        self._active = bool(os.environ.get(VARIABLE))

    def forbids(self, scope: Mapping[str, Any]) -> bool:
        """Return whether a request asks for something that only operators may do, and has no valid token."""
        if not self._active or scope["type"] != "http":
            return False
        return is_for_operators(route_of(scope)) and not self.knows(scope)

    def knows(self, scope: Mapping[str, Any]) -> bool:
        """Return whether a request has the token of a program of root; one that is an hour old opens nothing."""
        try:
            with open(self._file, "rb") as file:
                expected = file.read(200).strip()
                is_old = time.time() - os.fstat(file.fileno()).st_mtime > OPERATOR_SECONDS
        except OSError:
            return False
        return (
            not is_old and len(expected) > 16 and hmac.compare_digest(expected, dict(scope["headers"]).get(HEADER, b""))
        )


def is_for_operators(path: str) -> bool:
    """Return whether clients have no business at a path."""
    if path.rstrip("/") in CLOSED:
        return True
    return path not in OPEN and not path.startswith(OPEN_PREFIXES)
