# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognise faults: in records of the kernel's log by the patterns of the catalogue, and by their codes.

Every pattern is matched from the record's start, or from the end of its prefix, because a program can bring any text
into the middle of a record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Pattern

from .kernel_records import KernelRecord

SCHEMA = 1
IGNORE, REPORT, RESTART, RESET, ISOLATE = "ignore", "report", "restart_instance", "reset_chip", "isolate_host"
# From the weakest to the strongest.
ACTIONS = (IGNORE, REPORT, RESTART, RESET, ISOLATE)
# They take nothing out of service.
REPORTED = (IGNORE, REPORT)
# What ends a fault: a new start of the instance, a new start of the host, a person.
BY_RESTART, BY_BOOT, BY_HAND = "restart", "boot", "hand"
BACKS = (BY_RESTART, BY_BOOT, BY_HAND)
DEFAULT_BACK = {RESTART: BY_RESTART, RESET: BY_BOOT, ISOLATE: BY_HAND}
CHIP, HOST = "chip", "host"
SCOPES = (CHIP, HOST)
UNKNOWN = "a code that the catalogue does not list"

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2})(\.[0-7])?", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """One entry of the catalogue. ``back`` is empty where the action takes nothing out of service.

    One that ``clears`` is good news: the chip was reset, which ends what a new start of the host would end.
    """

    kind: str
    code: str
    meaning: str
    action: str
    back: str = ""
    scope: str = CHIP
    clears: bool = False

    @property
    def name(self) -> str:
        """The name for people and for the label of a metric: ``xid 79``."""
        return f"{self.kind} {self.code}"

    @property
    def takes_out(self) -> bool:
        """Whether it takes instances out of service."""
        return self.action not in REPORTED


@dataclass(frozen=True)
class Event:
    """A fault that was seen. ``chip`` is the PCI address, empty where the line names none."""

    fault: Fault
    chip: str = ""


@dataclass
class Kind:
    """The faults that show in one way, with the patterns that find them."""

    name: str
    faults: dict[str, Fault]
    scope: str = CHIP
    needle: str = ""
    pattern: Pattern[str] | None = None
    prefix: Pattern[str] | None = None
    suffixes: dict[str, Pattern[str]] = field(default_factory=dict)
    patterns: dict[str, Pattern[str]] = field(default_factory=dict)

    def fault(self, code: str) -> Fault:
        """Return the entry of a code; an unknown one is reported, never acted upon."""
        return self.faults.get(code) or Fault(self.name, code, UNKNOWN, REPORT, scope=self.scope)

    def read(self, text: str) -> Event | None:
        """Return the fault in a record that contains the needle, None where there is none."""
        if self.pattern:
            match = self.pattern.match(text)
            if not match:
                return None
            found = match.groupdict()
            rest = text[match.end() :].lstrip(", ")
            return Event(self.fault(self._code(found["code"], rest)), chip_address(found.get("chip") or ""))
        prefix = self.prefix.match(text) if self.prefix else None
        if self.prefix and not prefix:
            return None
        begin = prefix.end() if prefix else 0
        code = next((code for code, pattern in self.patterns.items() if pattern.match(text, begin)), "")
        address = prefix.groupdict().get("chip") if prefix else ""
        return Event(self.fault(code), chip_address(address or "")) if code else None

    def _code(self, code: str, rest: str) -> str:
        """Return the code in the spelling of the catalogue, with the suffix that the rest of the record asks for."""
        code = code if code in self.faults else code.upper()
        for suffix, pattern in self.suffixes.items():
            if f"{code}.{suffix}" in self.faults and pattern.match(rest):
                return f"{code}.{suffix}"
        return code


class FaultBook:
    """The faults that a host watches for."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self.kinds = kinds
        self.logged = [kind for kind in kinds.values() if kind.needle]

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FaultBook:
        """Return the book that the controller wrote (faults_of_host). Raises ValueError for another format."""
        if document.get("schema") != SCHEMA:
            raise ValueError(f"the catalogue of faults has the schema {document.get('schema')!r}, expected {SCHEMA}")
        return cls({name: _kind(name, entry) for name, entry in document["kinds"].items()})

    def read(self, record: KernelRecord) -> Event | None:
        """Return the fault in a record of the kernel's log, None where there is none."""
        for kind in self.logged:
            if kind.needle in record.text and record.is_trusted:
                event = kind.read(record.text)
                if event:
                    return event
        return None

    def fault(self, kind: str, code: str) -> Fault:
        """Return the entry of a code; an unknown code or kind is reported, never acted upon."""
        known = self.kinds.get(kind)
        return known.fault(code) if known else Fault(kind, code, UNKNOWN, REPORT)


NO_FAULTS = FaultBook({})


def _fault(kind: str, code: str, entry: Mapping[str, Any], scope: str) -> Fault:
    back, clears = entry.get("back", ""), entry.get("clears", False)
    return Fault(kind, code, entry["meaning"], entry["action"], back, scope, clears)


def _kind(name: str, entry: Mapping[str, Any]) -> Kind:
    scope = entry.get("scope", CHIP)
    faults = {code: _fault(name, code, fault, scope) for code, fault in entry["faults"].items()}
    return Kind(
        name,
        faults,
        scope,
        entry.get("needle", ""),
        re.compile(entry["pattern"]) if "pattern" in entry else None,
        re.compile(entry["prefix"]) if "prefix" in entry else None,
        {suffix: re.compile(pattern) for suffix, pattern in entry.get("suffixes", {}).items()},
        {code: re.compile(fault["pattern"]) for code, fault in entry["faults"].items() if "pattern" in fault},
    )


def standing_faults(book: FaultBook, log: str) -> list[Event]:
    """Return the faults in the texts of records, one a line, that no later record has cleared; each of a chip once."""
    found: dict[tuple[str, str], Event] = {}
    for text in log.split("\n"):
        event = book.read(KernelRecord(text))
        if event is None:
            continue
        if event.fault.clears:
            found = {key: old for key, old in found.items() if old.chip != event.chip or old.fault.back != BY_BOOT}
        found[event.fault.name, event.chip] = event
    return list(found.values())


def last_resets(book: FaultBook, records: Iterable[KernelRecord]) -> dict[str, float]:
    """Return when each chip was last reset, in seconds since the boot; a record without a time does not count."""
    found = ((book.read(record), record.at) for record in records)
    return {event.chip: at / 1e6 for event, at in found if event and event.fault.clears and at is not None}


def chip_address(text: str) -> str:
    """Return a PCI address as the rest of the collection writes it, 0000:5d:00.0; empty for another text."""
    match = _ADDRESS.fullmatch(text.strip())
    if not match:
        return ""
    domain, device, function = match.groups()
    return f"{(domain or '0000')[-4:]}:{device}{function or '.0'}".lower()
