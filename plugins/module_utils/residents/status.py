# SPDX-License-Identifier: GPL-3.0-or-later
"""What the middleware of an instance answers when it is asked who waits there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Status:
    """The state of an instance; ``asleep`` is None where the middleware does not know.

    ``waited``: for how many seconds the oldest request has waited; ``quiet``: since when none runs.
    """

    process: str = ""
    version: int = -1
    asleep: bool | None = None
    closed: bool = False
    running: int = 0
    waiting: int = 0
    waited: float = 0.0
    quiet: float = 0.0


_KINDS: dict[str, tuple[type, ...]] = {
    "process": (str,),
    "version": (int,),
    "asleep": (bool, type(None)),
    "closed": (bool,),
    "running": (int,),
    "waiting": (int,),
    "waited": (int, float),
    "quiet": (int, float),
}


def parse_status(document: Any) -> Status:
    """Return the status in an answer. Raises ValueError that names what was found."""
    if not isinstance(document, dict):
        raise ValueError(f"found {type(document).__name__}, expected a mapping")
    for name, kinds in _KINDS.items():
        value = document.get(name)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{name}: found {str(value)[:60]!r}, expected {kinds[0].__name__}")
    return Status(**{name: document[name] for name in _KINDS})


def is_sleeping(document: Any) -> bool:
    """Return what vLLM answers to the question whether it sleeps. Raises ValueError."""
    found = document.get("is_sleeping") if isinstance(document, dict) else None
    if not isinstance(found, bool):
        raise ValueError("found no is_sleeping, expected true or false")
    return found
