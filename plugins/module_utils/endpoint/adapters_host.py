# SPDX-License-Identifier: GPL-3.0-or-later
"""Load and unload adapters in a running engine, so that it has those of its configuration.

No request is lost. An adapter at another path is unloaded and loaded, because requests that run keep the weights of the
former one then; meanwhile the engine keeps new requests waiting (middleware/hold_host.py).
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Iterator, Mapping

from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json
from ..common.foreign_text import quote_foreign
from ..instance.marks import HOLD
from ..instance.operator_host import write_new
from ..vllm.adapters import AdapterError, Changes, changes_of, describe, loaded_adapters
from .client import Reply, TimedClient

MODELS, LOAD, UNLOAD = "/v1/models", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
# Requests whose body had arrived before the file was there have been given their adapter by then.
_SETTLE_SECONDS = 0.5


class EngineAdapters:
    """The adapters of one engine; all requests together take at most ``timeout`` seconds.

    ``directory`` is the instance's, below /run/vllm, with its marks.
    """

    def __init__(self, client: TimedClient, directory: str, timeout: float, settle: float = _SETTLE_SECONDS) -> None:
        self._client, self._place, self._settle = client, ForeignDirectory(directory), settle
        self._timeout, self._deadline = timeout, time.monotonic() + timeout

    def loaded(self) -> dict[str, str]:
        """Return the paths of the loaded adapters by name. Raises AdapterError."""
        reply = self._request("GET", MODELS, None)
        if reply.status != 200 or reply.failure:
            raise AdapterError(f"GET {MODELS} {_outcome(reply)}")
        try:
            return loaded_adapters(load_json(reply.body))
        except ValueError as exc:
            raise AdapterError(f"GET {MODELS}: {exc}") from exc

    def apply(self, wanted: Mapping[str, str]) -> Changes:
        """Make the engine have the wanted adapters and no others; return what was changed. Raises AdapterError.

        What can fail comes first, so that after a failure the engine still has all that it had.
        """
        before = self.loaded()
        changes = changes_of(before, wanted)
        for name, path in changes.load.items():
            self._load(name, path)
        for name, path in changes.replace.items():
            self._replace(name, before[name], path)
        for name, path in changes.unload.items():
            self._unload(name, path)
        found = self.loaded()
        if found != dict(wanted):
            raise AdapterError(
                f"the engine has the adapters {describe_paths(found)} after it has accepted all changes; expected "
                f"{describe_paths(wanted)}"
            )
        return changes

    def _replace(self, name: str, former: str, path: str) -> None:
        with self._held():
            self._unload(name, former)
            try:
                self._load(name, path)
            except AdapterError as exc:
                raise AdapterError(f"{exc}. {self._restore(name, former)}") from exc

    def _restore(self, name: str, former: str) -> str:
        """Load the former adapter again; return what came of it, as a sentence without its end."""
        try:
            self._load(name, former)
        except AdapterError as exc:
            return f"The former one cannot be loaded again either, so requests for it get status 404: {exc}"
        return "The former one is loaded again"

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Have new requests wait during the context."""
        write_new(self._place, HOLD, "", 0o644)
        try:
            time.sleep(self._settle)
            yield
        finally:
            self._place.remove(HOLD)

    def _load(self, name: str, path: str) -> None:
        self._change(LOAD, {"lora_name": name, "lora_path": path}, name, path)

    def _unload(self, name: str, path: str) -> None:
        self._change(UNLOAD, {"lora_name": name}, name, path)

    def _change(self, endpoint: str, payload: Mapping[str, Any], name: str, path: str) -> None:
        reply = self._request("POST", endpoint, payload)
        if reply.status != 200 or reply.failure:
            raise AdapterError(f"adapter {name} ({path}): POST {endpoint} {_outcome(reply)}")

    def _request(self, method: str, path: str, payload: Mapping[str, Any] | None) -> Reply:
        left = self._deadline - time.monotonic()
        if left <= 0:
            return Reply(0, (), 0.0, f"was not sent: the {self._timeout:g} s for all changes are over")
        return self._client.request(method, path, payload, left)


def describe_paths(adapters: Mapping[str, str]) -> str:
    """Return adapters with their paths for a message."""
    return describe(f"{name} ({path})" for name, path in adapters.items())


def _outcome(reply: Reply) -> str:
    """Return what an engine answered, as a clause."""
    if not reply.status:
        return f"failed: {reply.failure}" if not reply.failure.startswith("was ") else reply.failure
    if reply.failure:
        return f"answered {reply.status}: {reply.failure}"
    return f"answered {reply.status}: {quote_foreign(_message(reply.body))}"


def _message(body: bytes) -> str:
    """Return the message of an error of vLLM, else the beginning of the text."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(load_json(body)["error"]["message"])
    return body.decode(errors="replace").strip()
