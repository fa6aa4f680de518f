# SPDX-License-Identifier: GPL-3.0-or-later
"""The last fault of each instance, which the health service of its host has found."""

import re
import time
from dataclasses import replace
from typing import Any, Iterable, Mapping, NamedTuple

from ...module_utils.common.foreign_text import quote_foreign
from .lines import Line

# Results of instance_faults by host; a host that was not read has no ``instances``.
Faults = Mapping[str, Mapping[str, Any]]
# Characters of a fault.
MOST_FAULT = 300


class Fault(NamedTuple):
    """A fault: seconds since the epoch, host and instance, and what it is, in words."""

    at: int
    host: str
    instance: str
    text: str

    @property
    def time(self) -> str:
        """When it was found."""
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.at))


def with_faults(lines: Iterable[Line], faults: Faults) -> list[Line]:
    """Return the lines with the last fault of each instance among the facts of its host."""
    return [
        replace(line, facts=(*line.facts, *(f"{each.instance}: last fault {each.time}: {each.text}" for each in found)))
        for line in lines
        for found in [_faults_of(line.host, faults)]
    ]


def fault_rows(faults: Faults) -> list[dict[str, Any]]:
    """Return the last fault of each instance for programs, by host and instance."""
    return [each._asdict() for host in sorted(faults) for each in _faults_of(host, faults)]


def last_fault(service: str, hosts: Iterable[str], faults: Faults) -> str:
    """Return host, time and kind of the newest fault of the instances of a service on hosts, "" for none."""
    is_of = re.compile(rf"{re.escape(service)}(?:-\d+)?").fullmatch
    found = [each for host in set(hosts) for each in _faults_of(host, faults) if is_of(each.instance)]
    newest = max(found, default=None)
    return f"{newest.host} {newest.time}: {newest.text.partition(': ')[0]}" if newest else ""


def _faults_of(host: str, faults: Faults) -> list[Fault]:
    """Return the faults of a host; the shape of its answer has been checked (FAULTS of common/answers.py)."""
    instances = faults.get(host, {}).get("instances", {})
    return [
        Fault(each["at"], host, quote_foreign(name), quote_foreign(each["fault"], MOST_FAULT))
        for name, each in sorted(instances.items())
    ]
