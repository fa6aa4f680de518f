# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the kernel's log: which records the kernel itself wrote, and which of these repeat a text of a program.

A program chooses its own name and those of its files, and the kernel prints both when the program crashes. A device on
USB or a disk chooses its name too. So a record counts only by how it begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Sequence

from ..common.foreign_json import load_json

# The number of the facility kern. The kernel gives another one to whatever a program writes into /dev/kmsg.
KERN = 0
# A program's name has at most 15 bytes; the kernel writes some of them as \x0a.
_NAME = r"(?:\\x[0-9a-f]{2}|.){1,15}?"
_OF_PROGRAMS = re.compile(
    rf"{_NAME}(?:\[\d+\][: ]| ?\(\d+\): | \(\d+\) used greatest stack| invoked oom-killer|: page allocation failure"
    r"|(?:/\d+)?: potentially unexpected fatal|: attempt to access beyond end of device| uses obsolete \(PF_INET)"
    r"|(?:traps: |audit[:(]|oom-kill:|Out of memory|Memory cgroup out of memory|usb |process '|Code: |CPU: "
    r"|mmap: |INFO: task |futex_wake_op: |ptrace attach of |capability: |warning: )"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


@dataclass(frozen=True)
class KernelRecord:
    """A record: its number and its time in microseconds since the boot, None where the log has none."""

    text: str
    number: int | None = None
    at: int | None = None
    facility: int = KERN

    @property
    def is_trusted(self) -> bool:
        """Whether the kernel wrote it, and it does not begin with a text that a program chose."""
        return self.facility == KERN and not _OF_PROGRAMS.match(self.text)


def parse_record(line: str) -> KernelRecord | None:
    """Return the record in a line of /dev/kmsg, ``PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT``; None for its details.

    A line in another form is the text of a record: a file in the place of the device may hold such lines.
    """
    if line.startswith(" "):
        return None
    head, semicolon, text = line.partition(";")
    words = head.split(",")
    if semicolon and len(words) >= 4 and all(word.isdecimal() and len(word) < 20 for word in words[:3]):
        return KernelRecord(text, int(words[1]), int(words[2]), int(words[0]) >> 3)
    return KernelRecord(line)


def parse_kmsg(text: str) -> list[KernelRecord]:
    """Return the records of the text of /dev/kmsg."""
    records = (parse_record(line) for line in text.split("\n") if line)
    return [record for record in records if record]


def parse_journal(text: str) -> list[KernelRecord]:
    """Return the records that ``journalctl --dmesg --output=json`` lists; lines in another form are left out."""
    return list(_journal_entries(text))


def _journal_entries(text: str) -> Iterator[KernelRecord]:
    for line in text.split("\n"):
        try:
            entry = load_json(line)
            message, facility = entry["MESSAGE"], int(entry.get("SYSLOG_FACILITY", KERN))
            # A message with control characters is a list of bytes.
            shown = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else str(message)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        message = _CONTROL.sub(lambda match: f"\\x{ord(match.group()) & 0xFF:02x}", shown)
        at = str(entry.get("_SOURCE_MONOTONIC_TIMESTAMP"))
        yield KernelRecord(message, at=int(at) if at.isdecimal() and len(at) < 20 else None, facility=facility)


def trusted_records(records: Sequence[KernelRecord], words: Sequence[str]) -> list[KernelRecord]:
    """Return the trusted records that contain one of these words."""
    return [record for record in records if record.is_trusted and any(word in record.text for word in words)]
