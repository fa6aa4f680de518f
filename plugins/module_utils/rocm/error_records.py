# SPDX-License-Identifier: GPL-3.0-or-later
"""The error records (CPER) of AMD's chips with AMD's field identifiers (AFID), from the table that amd-smi prints.

The driver keeps the records since it was loaded, so each answer has the old ones again. UNCONFIRMED on hardware: the
table is that of AMD SMI's documentation, "Reliability, availability, serviceability (RAS)".
"""

from __future__ import annotations

import calendar
import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import Iterator, Mapping, Sequence

from ..vendor_stack.faults import BY_BOOT, Event, FaultBook

# Corrected errors are counters already, and there may be thousands of such records.
SEVERITIES = ("fatal", "nonfatal-uncorrected")
NO_AFID = "none"
# 2000/06/27 10:45:13  0       FATAL                fatal-1.cper      30 31
_ROW = re.compile(r"(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)\s+(\S+)\s+(\S+)\s+\S+\.cper\b(.*)")
# Older releases print 18446744073709551615 for a record that they cannot decode.
_AFID = re.compile(r"\d{1,4}")


@dataclass(frozen=True)
class ErrorRecord:
    """``chip`` is the PCI address, empty where amd-smi names none; ``at`` is in seconds since the epoch."""

    chip: str
    at: float
    severity: str
    codes: tuple[str, ...]


def command(severity: str, directory: str) -> Sequence[str]:
    """Return the command that prints the table; it puts each record into ``directory``."""
    return ("amd-smi", "ras", "--cper", "--severity", severity, "--folder", directory)


def parse_records(text: str, addresses: Mapping[str, str]) -> list[ErrorRecord]:
    """Return the records of a table; ``addresses`` are the PCI addresses of chips by amd-smi's numbers."""
    found = []
    for stamp, gpu, severity, rest in _ROW.findall(text):
        codes = tuple(dict.fromkeys(word for word in rest.split() if _AFID.fullmatch(word)))
        found.append(ErrorRecord(addresses.get(gpu, ""), _seconds(stamp), severity, codes or (NO_AFID,)))
    return found


def _seconds(stamp: str) -> float:
    """Return the time of a record, which the driver writes in UTC; 0 for a date that does not exist."""
    try:
        return float(calendar.timegm(time.strptime(stamp, "%Y/%m/%d %H:%M:%S")))
    except ValueError:
        return 0.0


def events_of(book: FaultBook, records: Sequence[ErrorRecord]) -> Iterator[tuple[Event, float | None]]:
    """Yield the faults of records as the catalogue has them, each with the end of its second; None for no time."""
    for record in records:
        for code in record.codes:
            yield Event(book.fault("afid", code), record.chip), record.at + 1 if record.at else None


def standing_errors(book: FaultBook, records: Sequence[ErrorRecord], resets: Mapping[str, float]) -> list[Event]:
    """Return the faults of records that no later reset of their chip has ended; each of a chip once.

    ``resets`` has the time of each chip's last reset, in seconds since the epoch; a record without a time stays.
    """
    found = {}
    for event, at in events_of(book, records):
        if event.fault.back != BY_BOOT or at is None or at > resets.get(event.chip, 0):
            found[event.fault.name, event.chip] = event
    return list(found.values())


class SeenRecords:
    """Tells new records from those that were listed before; ``newest`` is the time of the newest one."""

    def __init__(self, newest: float) -> None:
        self.newest = newest
        self._seen: Counter[ErrorRecord] | None = None

    def new(self, records: Sequence[ErrorRecord]) -> list[ErrorRecord]:
        """Return the records that were not in the last answer; at first, those after the newest known one."""
        listed = Counter(records)
        if self._seen is None:
            found = [record for record in records if not 0 < record.at <= self.newest]
        else:
            found = list((listed - self._seen).elements())
        self._seen = listed
        self.newest = max([self.newest, *(record.at for record in records)])
        return found
