# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines about the last start of each instance, for below the table of a fleet."""

from typing import Any, Mapping

from ..common.answers import describe_silent


def describe_starts(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each instance from results of instance_starts by host, and for each host that was not read."""
    lines = [
        f"{host}, {name}: {_described(start)}"
        for host, result in sorted(results.items())
        for name, start in sorted(result.get("instances", {}).items())
    ]
    return [*lines, *describe_silent(results, "instances")]


def _described(start: Mapping[str, Any]) -> str:
    if not start["phases"]:
        return "the journal has nothing about its start"
    phases = ", ".join(f"{phase} {seconds:g}" for phase, seconds in start["phases"])
    return f"{'started in' if start['ready'] else 'not started after'} {start['seconds']:g} s: {phases}"
