# SPDX-License-Identifier: GPL-3.0-or-later
"""The file with the planned stops of the servers of a gateway: its agent writes it, status.yml shows it."""

from __future__ import annotations

import contextlib
from typing import Mapping

from ..common.files_host import publish
from ..common.foreign_files_host import ForeignDirectory
from .planned_stops import PlannedStops
from .scale_report_host import DIRECTORY

FILE = "stops.json"
# A gateway has some thousand servers at most.
_MOST_BYTES = 1 << 20


class StopsFile:
    """The planned stops, kept in the agent's own file at ``path``; empty for none."""

    def __init__(self, path: str) -> None:
        self.path, text = path, ""
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
            text = file.read(_MOST_BYTES)
        self.stops = PlannedStops(text)

    def update(self, looks: Mapping[str, tuple[str, int]]) -> None:
        """Note what HAProxy reports of each server, and write the file if that changes it."""
        if self.stops.update(looks) and self.path:
            # Without the file all stops count as faults, as they did before there was one.
            with contextlib.suppress(OSError):
                publish(self.path, self.stops.text(), 0o644, durable=False)


def read_planned_stops(downs: Mapping[str, int], directory: str = DIRECTORY) -> dict[str, int]:
    """Return how many stops of each server were planned, of those in ``downs``: how often each went down by HAProxy."""
    return PlannedStops(ForeignDirectory(directory).text(FILE, _MOST_BYTES)).planned(downs)
