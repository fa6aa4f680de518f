# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe a discovery: the hardware of hosts, the changes, and the hosts that did not answer."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Mapping, Sequence

from ...module_utils.accelerator.recognition import CPU, Catalogue
from .observations import Answer, Changes, DiscoveryError, Entry, Observation, detected, summary

# A longer list shows its first entries and the number of the others.
MOST = 20
UNREADABLE = "an answer that cannot be read"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def timestamp(seconds: float) -> str:
    """Return a time since the epoch as UTC text, 2026-11-21T14:40:00Z."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(_TIME)


def age(then: str, now: str) -> str:
    """Return a time as an age, such as 3 hours; the text itself if it is not a time."""
    try:
        seconds = (datetime.strptime(now, _TIME) - datetime.strptime(then, _TIME)).total_seconds()
    except ValueError:
        return then
    for unit, length, name in ((2 * 86400, 86400, "days"), (2 * 3600, 3600, "hours"), (120, 60, "minutes")):
        if seconds >= unit:
            return f"{int(seconds // length)} {name}"
    return "1 second" if int(seconds) == 1 else f"{max(int(seconds), 0)} seconds"


class Reader:
    """Describe stored observations; equal machines are looked up in the catalogue once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: dict[str, dict[str, Any] | None] = {}

    def summary(self, observation: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the short form of the fact; None for an unreadable observation."""
        key = json.dumps(observation)
        if key not in self._known:
            try:
                self._known[key] = summary(detected(Observation.from_dict(observation), self._catalogue))
            except DiscoveryError:
                self._known[key] = None
        return self._known[key]

    def hardware(self, observation: Mapping[str, Any]) -> str:
        """Return a host's hardware in short: ``h200 x 8``, ``cpu``, ``h200 x 8, unknown x 1``."""
        short = self.summary(observation)
        if short is None:
            return UNREADABLE
        counts = dict(short["models"])
        if short["unknown"]:
            counts["unknown"] = len(short["unknown"])
        return ", ".join(f"{model} x {count}" for model, count in counts.items()) or CPU

    def unknown(self, observation: Mapping[str, Any]) -> str:
        """Return the chips of a host that the catalogue lacks, as ``10de:9999 x 2``; empty where it has all of them."""
        short = self.summary(observation) or {}
        counts = Counter(f"{chip['vendor_id']}:{chip['device_id']}" for chip in short.get("unknown", []))
        return ", ".join(f"{pci_id} x {count}" for pci_id, count in counts.items())

    def difference(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
        """Return the differences between two answers of a host."""
        old, new = self._properties(before), self._properties(after)
        parts = [f"{key}{old[key]} -> {new[key]}" for key in new if key in old and old[key] != new[key]]
        return ", ".join(parts) or f"{new['']}, in another place or of another board"

    def _properties(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Return the properties of a host that a report compares, by their labels."""
        short = self.summary(observation)
        if short is None:
            return {"": UNREADABLE}
        cpu = observation["cpu"]
        return {
            "": self.hardware(observation),
            "driver ": short["driver_version"] or "none",
            "firmware ": short["mec_firmware"] or "none",
            "MiB of a chip ": 0 if short["model"] == CPU else short["memory_mib"],
            "processor ": f"{cpu['model']}, {cpu['threads']} threads",
            "MiB of the host ": cpu["memory_mib"],
        }


@dataclass(frozen=True)
class Discovery:
    """One discovery: the answers at the time ``now``, and the stored entries before and after it."""

    answers: Mapping[str, Answer]
    before: Mapping[str, Entry]
    after: Mapping[str, Entry]
    changes: Changes
    now: str

    @property
    def silent(self) -> dict[str, str]:
        """The hosts that gave no answer, with the reason of each."""
        return {host: answer for host, answer in self.answers.items() if isinstance(answer, str)}


def report(discovery: Discovery, path: str, reader: Reader) -> str:
    """Return the summary of a discovery for the user; ``path`` is the file with the answers."""
    after, silent = discovery.after, discovery.silent
    answered = len(discovery.answers) - len(silent)
    lines = [f"{answered} of {len(discovery.answers)} hosts answered; all answers are kept in {path}"]
    counts = [f"{hardware} ({number})" for hardware, number in counts_of(after, reader).items()]
    if counts:
        lines.append(f"Accelerators of {_hosts(len(after))}: {'; '.join(bounded(counts))}")
    strange = {host: reader.unknown(entry.observation) for host, entry in after.items()}
    lines += _section(
        "Chips that the catalogue does not have", [f"{host}: {ids}" for host, ids in strange.items() if ids]
    )
    lines += _section("No answer now, the last answer is kept", stale_lines(after, discovery.now, reader))
    lines += _section("Never answered", [f"{host}: {why}" for host, why in silent.items() if host not in after])
    if discovery.before:
        different = _section("Different from before", change_lines(discovery, reader))
        lines += different or ["Nothing is different from before."]
    return "\n".join(lines)


def change_lines(discovery: Discovery, reader: Reader) -> list[str]:
    """Return a line for each host whose stored answer has changed."""
    before, after, changes = discovery.before, discovery.after, discovery.changes
    lines = {host: f"{host}: new, {reader.hardware(after[host].observation)}" for host in changes.new}
    for host in changes.changed:
        lines[host] = f"{host}: {reader.difference(before[host].observation, after[host].observation)}"
    lines.update((host, f"{host}: answers again, as before") for host in changes.back)
    lines.update((host, f"{host}: no longer answers") for host in changes.stale)
    lines.update((host, f"{host}: is no longer in the inventory") for host in changes.gone)
    return [lines[host] for host in sorted(lines)]


def counts_of(entries: Mapping[str, Entry], reader: Reader) -> dict[str, int]:
    """Return the number of hosts by their hardware, the most frequent first."""
    return dict(Counter(reader.hardware(entry.observation) for entry in entries.values()).most_common())


def stale_lines(entries: Mapping[str, Entry], now: str, reader: Reader) -> list[str]:
    """Return a line for each host with a stale answer: its age, and why there is no newer one."""
    return [
        f"{host}: {reader.hardware(entry.observation)}, {age(entry.at, now)} old ({entry.at}): {entry.stale_reason}"
        for host, entry in entries.items()
        if entry.stale_since
    ]


def bounded(lines: Sequence[str], most: int = MOST) -> list[str]:
    """Return the first lines, and the number of the others."""
    return [*lines] if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"{title} ({_hosts(len(lines))}):", *(f"  {line}" for line in bounded(lines))] if lines else []


def _hosts(number: int) -> str:
    return f"{number} host" if number == 1 else f"{number} hosts"
