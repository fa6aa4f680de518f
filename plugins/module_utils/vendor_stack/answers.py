# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for the output of modinfo and DKMS."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .model import DkmsBuild

NOT_FOUND = 127
TIMED_OUT = 124

# "nvidia/580.95.05, 6.1.0-28-amd64, x86_64: installed"; before version 3 "nvidia, 580.95.05, ..."; "added" has no
# kernel. Warnings may follow the state.
_LONGEST_LINE = 500
_DKMS = re.compile(
    r"(?<![\w.-])([\w.-]+)(?:/|, )([\w.+~-]+)(?:, ([^,:\s]+)(?:, [^,:\s]+)?)?\s*: (added|built|installed)"
)


@dataclass(frozen=True)
class CommandResult:
    """The result of a command; ``rc`` is 127 if it is not installed and 124 if it timed out."""

    rc: int
    out: str = ""
    err: str = ""


NOT_INSTALLED = CommandResult(NOT_FOUND)


@dataclass(frozen=True)
class ModuleInfo:
    """A module on disk, by modinfo; ``kernel`` is the one that it was built for. Missing values are empty."""

    version: str
    srcversion: str
    kernel: str


def parse_module_info(text: str) -> ModuleInfo | None:
    """Return the module in the output of modinfo, None where there is none."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    if "filename" not in fields:
        return None
    kernel = (fields.get("vermagic") or " ").split(" ")[0]
    return ModuleInfo(fields.get("version", ""), fields.get("srcversion", ""), kernel)


def parse_dkms(text: str) -> tuple[DkmsBuild, ...]:
    """Return the builds of ``dkms status``."""
    # A build is one short line; a search of the whole text would take minutes for one of 70,000 letters.
    found = [_DKMS.search(line) for line in text.splitlines() if len(line) <= _LONGEST_LINE]
    return tuple(DkmsBuild(match[1], match[2], match[3] or "", match[4]) for match in found if match)
