# SPDX-License-Identifier: GPL-3.0-or-later
"""The address and the token of a webhook, and the messages about faults that it gets."""

from __future__ import annotations

import re
from typing import Any, Mapping
from urllib.parse import urlsplit

from .ledger import Mark

LONGEST_URL = 2048
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WebhookError(ValueError):
    """Address or token of a webhook are invalid; the message shows neither, because both are secrets."""


def check_url(url: Any) -> None:
    """Raise WebhookError for an address that is not of HTTPS; HTTP only stays on the host. An empty one is none."""
    if url == "":
        return
    expected = "expected an address such as https://chat.example.com/hooks/KEY"
    if not isinstance(url, str) or len(url) > LONGEST_URL or not re.fullmatch(r"[!-~]+", url):
        raise WebhookError(f"health_webhook_url: {expected}, of at most {LONGEST_URL} characters without spaces")
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as exc:
        raise WebhookError(f"health_webhook_url: {exc}; {expected}") from exc
    if not host or parts.username is not None or parts.fragment:
        raise WebhookError(f"health_webhook_url: {expected}, without a user, a password or a fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise WebhookError(f"health_webhook_url: found the scheme {parts.scheme!r}, {expected}; http only to this host")


def check_token(token: Any) -> None:
    """Raise WebhookError for a token that no header can carry. An empty one is none."""
    if not re.fullmatch(rf"[!-~]{{0,{LONGEST_URL}}}", str(token or "")):
        raise WebhookError(
            f"health_webhook_token: expected at most {LONGEST_URL} characters of ASCII without spaces and line breaks; "
            "of a file, take it with | trim"
        )


class Announcements:
    """The faults that were announced, by name and chip: one message when a fault appears, and one when it has ended."""

    def __init__(self, host: str, marks: Mapping[tuple[str, str, str], Mark]) -> None:
        self._host = host
        self._known = self._faults(marks)

    def _faults(self, marks: Mapping[tuple[str, str, str], Mark]) -> dict[tuple[str, str], dict[str, Any]]:
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for fault, chip, instance in sorted(marks):
            mark = marks[fault, chip, instance]
            message = found.setdefault(
                (fault, chip),
                {
                    "host": self._host,
                    "fault": fault,
                    "chip": chip,
                    "action": mark.action,
                    "since": mark.since,
                    "reason": mark.reason,
                    "instances": [],
                },
            )
            message["instances"].append(instance)
        return found

    def new(self, marks: Mapping[tuple[str, str, str], Mark]) -> list[dict[str, Any]]:
        """Return the messages about what has changed since the last call."""
        known, self._known = self._known, self._faults(marks)
        began = [_message(self._known[key], "began") for key in self._known if key not in known]
        return began + [_message(known[key], "ended") for key in known if key not in self._known]


def _message(fault: Mapping[str, Any], state: str) -> dict[str, Any]:
    """Return a message; ``text`` is what chats show."""
    names = ", ".join(fault["instances"])
    what = f"out of service: {names}" if state == "began" else f"has ended; back in service: {names}"
    return {"text": f"{fault['host']}: {fault['reason']}; {what}", "state": state, **fault}
