# SPDX-License-Identifier: GPL-3.0-or-later
"""What gateways and the door of an engine host say to each other about replicas, and which gateway may decide.

The door sends a nonce, the gateway a line with a proof and JSON, the door another such line. The proof is the HMAC of
the line with the key of the host, which itself is never sent; the nonce makes each line good for one connection.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..common.foreign_json import load_json
from .marks import CONFIG_DIR

PORT = 8471
# The kind of the keys that follow from the gateways' secret: one for each host, which its instances do not have.
DOOR, KEYS_FILE = "scale", f"{CONFIG_DIR}/scale.key"
WAKE, START, SLEEP, STOP = "wake", "start", "sleep", "stop"
VERBS = (WAKE, START, SLEEP, STOP)
# A gateway asks every second. When the one that decides has not for so many, another one does.
LEASE = 6.0
# What a gateway reports is good for so many seconds.
FRESH = 10.0
MOST_BYTES, _MOST_GATEWAYS = 64 * 1024, 16
# An answer holds what all gateways report. JSON may write a character of two bytes with six.
MOST_ANSWER_BYTES = 3 * (_MOST_GATEWAYS + 1) * MOST_BYTES
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,253}\Z", re.ASCII)


class RefusedError(Exception):
    """A line is not from who it should be, or asks for something that the door does not do; the message says what."""


def seal(secret: str, nonce: str, document: Mapping[str, Any]) -> bytes:
    """Return a line with its proof."""
    text = json.dumps(document, separators=(",", ":"))
    return f"{_proof(secret, nonce, text)} {text}\n".encode()


def unseal(secrets: Sequence[str], nonce: str, line: bytes) -> tuple[str, dict[str, Any]]:
    """Return the secret of a line's proof and its document. Raises RefusedError."""
    proof, _space, text = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
    known = [each for each in secrets if hmac.compare_digest(_proof(each, nonce, text).encode(), proof.encode())]
    if not known:
        raise RefusedError("the proof is of another key")
    try:
        document = load_json(text)
    except ValueError as exc:
        raise RefusedError(f"the request is not JSON ({exc})") from exc
    if not isinstance(document, dict):
        raise RefusedError("the request is not a JSON object")
    return known[0], document


def _proof(secret: str, nonce: str, text: str) -> str:
    return hmac.new(secret.encode(), f"{nonce} {text}".encode(), hashlib.sha256).hexdigest()


@dataclass
class Board:
    """Which gateway decides about each instance of this host, and what each gateway reported last."""

    # The gateway by instance, and until when it does.
    leases: dict[str, tuple[str, float]] = field(default_factory=dict)
    reports: dict[str, tuple[float, Any]] = field(default_factory=dict)

    def take(self, gateway: str, instance: str, now: float) -> bool:
        """Return whether this gateway decides now about an instance: the one with the first name of those that ask.

        So all hosts have the same one after a round, without a word between gateways.
        """
        holder, until = self.leases.get(instance, ("", 0.0))
        if not holder or now >= until or gateway <= holder:
            holder = gateway
            self.leases[instance] = gateway, now + LEASE
        return holder == gateway

    def holder(self, instance: str) -> str:
        """Return the gateway that decides about an instance, empty before any has asked."""
        return self.leases.get(instance, ("", 0.0))[0]

    def report(self, gateway: str, report: Any, now: float) -> None:
        """Note what a gateway reports. Raises RefusedError for the seventeenth gateway."""
        self.reports = {name: (at, each) for name, (at, each) in self.reports.items() if now - at < FRESH}
        if gateway not in self.reports and len(self.reports) >= _MOST_GATEWAYS:
            raise RefusedError(f"{_MOST_GATEWAYS} other gateways report here already")
        self.reports[gateway] = (now, report)


def gateway_in(document: Mapping[str, Any], host: str) -> str:
    """Return the name of the gateway in a request to this host. Raises RefusedError.

    A request for another host is one that somebody in between has passed on.
    """
    gateway = document.get("gateway")
    if not isinstance(gateway, str) or not _NAME.match(gateway):
        raise RefusedError("gateway: expected a name")
    if document.get("host") != host:
        raise RefusedError(f"host: expected {host}")
    return gateway


def served_in(document: Mapping[str, Any], instances: Mapping[str, Any]) -> list[str]:
    """Return the instances that the gateway of a request serves. Raises RefusedError.

    It may know others that this host no longer has.
    """
    found = document.get("instances", list(instances))
    if not isinstance(found, list):
        raise RefusedError("instances: expected a list of names")
    return [name for name in instances if name in found]


def order_in(document: Mapping[str, Any], instances: Mapping[str, Any]) -> tuple[str, str]:
    """Return verb and instance of what a request wants done, empty where it wants nothing. Raises RefusedError."""
    verb, name = document.get("verb", ""), document.get("instance", "")
    if not verb:
        return "", ""
    if verb not in VERBS:
        raise RefusedError(f"verb: expected one of {', '.join(VERBS)}")
    if not isinstance(name, str) or name not in instances:
        raise RefusedError("instance: expected one with scale on this host")
    if (verb in (WAKE, SLEEP)) != bool(instances[name].get("resident")):
        raise RefusedError(
            f"verb: {name} {'sleeps and wakes' if instances[name].get('resident') else 'stops and starts'}"
        )
    return verb, name
