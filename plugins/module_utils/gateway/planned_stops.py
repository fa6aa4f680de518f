# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell stops of servers that somebody asked for from faults: HAProxy counts both in one number.

A server was asked to stop if it was drained before it went down, or in maintenance, or if its checks got 404 first,
which an instance answers while systemd stops it (module_utils/instance/drain_host.py).
"""

from __future__ import annotations

import json
from typing import Mapping, NamedTuple

from ..common.foreign_json import load_json
from ..common.foreign_numbers import read_count

# How HAProxy's status of a server begins that gets no new requests, but answers: drained, or stopping.
_LEAVING, _MAINTENANCE = ("DRAIN", "NOLB"), "MAINT"


class _Seen(NamedTuple):
    """How often a server went down, how many of these stops were planned, and whether it was leaving."""

    downs: int
    planned: int
    leaving: bool = False


class PlannedStops:
    """The planned stops of servers, from what HAProxy reports of them again and again."""

    def __init__(self, text: str = "") -> None:
        self._seen = {name: _Seen(downs, planned) for name, (downs, planned) in _parsed(text).items()}

    def update(self, looks: Mapping[str, tuple[str, int]]) -> bool:
        """Note the status of each server and how often it went down; return whether the text of the file changed."""
        before = self.text()
        for name, (status, downs) in looks.items():
            seen = self._seen.get(name, _Seen(downs, 0))
            if downs < seen.downs:
                # HAProxy was reloaded, and counts from zero.
                seen = _Seen(0, 0, seen.leaving)
            is_planned = downs > seen.downs and (seen.leaving or status.startswith(_MAINTENANCE))
            self._seen[name] = _Seen(downs, seen.planned + is_planned, status.startswith(_LEAVING))
        return self.text() != before

    def planned(self, downs: Mapping[str, int]) -> dict[str, int]:
        """Return how many stops of each server were planned; ``downs`` is how often it went down, by HAProxy."""
        return {
            name: min(seen.planned, downs[name])
            for name, seen in self._seen.items()
            # A larger number is from before a reload.
            if name in downs and seen.planned and seen.downs <= downs[name]
        }

    def text(self) -> str:
        """Return the content of the file: of each server with planned stops how often it went down, and these."""
        return f"{json.dumps({name: seen[:2] for name, seen in sorted(self._seen.items()) if seen.planned})}\n"


def _parsed(text: str) -> dict[str, tuple[int, int]]:
    """Return the pairs of numbers in the text of a file, none of a damaged one."""
    try:
        pairs = {str(name): (read_count(each[0]), read_count(each[1])) for name, each in load_json(text).items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return {}
    return {name: (downs, planned) for name, (downs, planned) in pairs.items() if downs is not None and planned}
