# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe what failed in a task of the role vendor_stack, for its error messages."""

import re
from typing import Any, Iterator, Mapping

# Lines of a package manager's output that name the cause of a failure.
_CAUSES = re.compile(r"no space|cannot|bad return status", re.IGNORECASE)
_SEE_ABOVE = "see the error above"


def describe_failures(result: Mapping[str, Any], host: str) -> str:
    """Return what failed in a task or in the items of its loop, a sentence for each.

    A message that begins with the name of the host is one of the role's own, which Ansible has shown already.
    """
    sentences = []
    for failed in _failed_items(result):
        message = str(failed.get("msg") or "")
        if not message.startswith(host):
            causes = [str(failed.get("stderr") or "").strip() or message or _SEE_ABOVE, *_causes(failed)]
            sentences.append(f"{_place(failed)}{' '.join(causes)}.")
    return " ".join(sentences) or f"{_SEE_ABOVE}."


def describe_commands(result: Mapping[str, Any]) -> str:
    """Return the last line of the error output of each command of a loop that failed, empty if none did.

    The last line has the reason: the first one of rmmod's error names a source file of libkmod.
    """
    failed = (item for item in result.get("results") or [] if item.get("rc"))
    return "; ".join((str(item.get("stderr") or "").splitlines() or [_SEE_ABOVE])[-1] for item in failed)


def _failed_items(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for item in result.get("results") or [result]:
        if item.get("failed"):
            yield item


def _place(failed: Mapping[str, Any]) -> str:
    """Return the file of the plan's item that failed, with the address that it belongs to."""
    item = failed.get("item")
    if not isinstance(item, Mapping) or not item.get("path"):
        return ""
    address = item.get("key") or item.get("url")
    return f"{item['path']} ({address}): " if address else f"{item['path']}: "


def _causes(failed: Mapping[str, Any]) -> list[str]:
    lines = [line for line in str(failed.get("stdout") or "").splitlines() if _CAUSES.search(line)]
    return ["; ".join(dict.fromkeys(lines))] if lines else []
