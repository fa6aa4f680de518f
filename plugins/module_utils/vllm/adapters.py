# SPDX-License-Identifier: GPL-3.0-or-later
"""Which adapters an instance has, and whether and how a running engine takes over a change of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from ..common.kinds import show_value
from ..instance.config_file import read_flat_yaml

# The key of a ``--config`` file.
KEY = "lora-modules"
# vLLM has its endpoints for adapters with the first variable. With the second one our middleware keeps clients from
# them (middleware/operator_host.py).
UPDATING, GUARDED = "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "OPERATOR_GUARD"


class AdapterError(Exception):
    """An adapter cannot be loaded into a running engine; the message says which one and why."""


@dataclass(frozen=True)
class Changes:
    """What makes an engine have the adapters of a plan: paths by name, of those that are replaced the new ones."""

    load: Mapping[str, str]
    replace: Mapping[str, str]
    unload: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.load or self.replace or self.unload)


def has_guard(env: Mapping[str, Any]) -> bool:
    """Return whether an engine with this environment has the endpoints for adapters, and only for operators."""
    return str(env.get(UPDATING, "")) == "1" and bool(env.get(GUARDED))


def adapters_in(text: str) -> dict[str, str]:
    """Return the paths of the adapters in a ``--config`` file, by name. Raises AdapterError and InstanceError."""
    return adapters_of(read_flat_yaml(text).get(KEY))


def adapters_of(entries: Any) -> dict[str, str]:
    """Return the paths of adapters, by name, from a value of ``lora-modules``. Raises AdapterError."""
    listed = entries if isinstance(entries, (list, tuple)) else [entries] if entries else []
    found = [_adapter(entry) for entry in listed]
    names = [name for name, _path in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise AdapterError(f"{KEY}: {twice[0]} is in the list twice")
    return dict(found)


def _adapter(entry: Any) -> tuple[str, str]:
    """Return name and path of an entry: a mapping, its JSON, or NAME=PATH."""
    found = entry
    if isinstance(entry, str) and entry.startswith("{"):
        try:
            found = json.loads(entry)
        except (ValueError, RecursionError):
            found = {}
    if isinstance(found, str):
        name, _equals, path = found.partition("=")
        found = {"name": name, "path": path}
    # The endpoint takes no other key in every release.
    plain = isinstance(found, Mapping) and set(found) == {"name", "path"}
    if not plain or not all(isinstance(value, str) and value for value in found.values()):
        raise AdapterError(f"{KEY}: found {show_value(entry)}, expected a name and a path, and nothing else")
    return found["name"], found["path"]


def loaded_adapters(answer: Any) -> dict[str, str]:
    """Return the paths of the loaded adapters, by name, from the answer of GET /v1/models. Raises AdapterError."""
    try:
        cards = answer["data"]
        return {str(card["id"]): str(card["root"]) for card in cards if card.get("parent")}
    except (AttributeError, KeyError, TypeError) as exc:
        raise AdapterError("its list of models is not that of vLLM") from exc


def changes_of(loaded: Mapping[str, str], wanted: Mapping[str, str]) -> Changes:
    """Return the changes after which an engine has the wanted adapters and no others."""
    return Changes(
        load={name: path for name, path in wanted.items() if name not in loaded},
        replace={name: path for name, path in wanted.items() if loaded.get(name, path) != path},
        unload={name: path for name, path in loaded.items() if name not in wanted},
    )


def describe(adapters: Iterable[str]) -> str:
    """Return names of adapters for a message."""
    return ", ".join(adapters) or "none"
