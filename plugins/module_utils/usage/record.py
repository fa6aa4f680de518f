# SPDX-License-Identifier: GPL-3.0-or-later
"""A record of an answer: what an instance writes, and what gateways read and store.

A gateway names itself, the client, the client's team, the request's id and the time on its clock in the header HEADER
of a request, and proves them with a key of the service. The service that counts reads the records of an instance with a
key of that instance alone; an instance proves its answer with that key, so that nobody else at its port is believed.
Both keys follow from the secret of the site, which instances do not have. The instance
writes a line of JSON for the answer into a file whose name has its process; the number of a record is the next one of
its process. GET RECORDS_PATH returns, for each file, a line with its name and the place behind what follows, then its
lines.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from typing import Any, Mapping, NamedTuple, Sequence

from ..common.foreign_json import load_json

HEADER = b"x-gateway-usage"
RECORDS_PATH = "/gateway/usage"
# With records, the proof of the instance.
PROOF_HEADER = b"x-gateway-proof"
# What an instance accepts in HEADER, as KIND:VALUE; without it, it accepts the header of everybody.
PROOF_VARIABLE = "GATEWAY_SECRET"
# Kinds: the key of the service, of the instance, and the sha256 of the secret that gateways of 0.9.0 send as it is.
SERVICE, INSTANCE, DIGEST = "service", "instance", "sha256"
HOUR, DAY = 3600, 86400
# A larger number in a record is damage. SQLite would refuse it, and all records of that answer with it, for ever.
LARGEST = 10**12
# More tokens than a request has. Sums of such records stay within SQLite's numbers.
MOST_TOKENS = 10**9
# Records of a gateway that was away are stored in the hours of their requests so far back, older ones when they come.
BACK = 7 * DAY
_TIME = re.compile("[0-9]{1,11}")
# More than an instance sends: 1 MiB of records, of more than 100 bytes each. Names of files stay in the database.
MOST_ANSWER_BYTES, MOST_LINES, _MOST_LINE = 2 * 1024 * 1024, 20_000, 16 * 1024
_FILE = re.compile(r"[A-Za-z0-9.-]{1,100}", re.ASCII)
_FIELDS = (
    "number", "at", "gateway", "client", "team", "model", "state", "prompt", "cached", "completion", "id",
)  # fmt: skip
# What a gateway tells of its clients, and of itself; "-" where it has nothing to tell. Anything else is UNKNOWN.
_NAME = re.compile(r"-?|[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_GATEWAY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}", re.ASCII)
_MOST_MODEL = 128
UNKNOWN = "unknown"
# Digits of a proof.
_HEX = 64


class Tokens(NamedTuple):
    """Tokens of the prompt, those of it that were in the cache, and generated ones."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


class Asked(NamedTuple):
    """Who asked for an answer, when by the clock of the gateway, -1 where it does not say, and the proof of it."""

    gateway: str
    client: str
    team: str
    id: str
    at: int
    proof: str = ""

    @classmethod
    def from_header(cls, value: bytes) -> Asked:
        """Read the header of a gateway."""
        names = [*value.decode("ascii", "replace").split(), "", "", "", "", "", ""][:6]
        gateway, client, team, request, at, proof = (name[:128] for name in names)
        return cls(gateway, client, team, request, int(at) if _TIME.fullmatch(at) else -1, proof)


def key_of(secret: str, kind: str, name: str) -> str:
    """Return the key of a service, or of an instance by its name at gateways, as HAProxy's hmac() reads it."""
    return base64.b64encode(hmac.digest(secret.encode(), f"{kind} {name}".encode(), "sha256")).decode()


def digest_of(secret: str) -> str:
    """Return what tells an instance that it is the secret, and not the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def header_of_reader(key: str, nonce: str) -> str:
    """Return the header with which the service of a gateway asks an instance for records, with its key."""
    told = f"- - - {nonce} -"
    return f"{told} {proof_of(key, told.encode())}"


def proof_of_answer(key: str, header: bytes, body: bytes) -> str:
    """Return what proves that records are the answer of the instance with a key to the header of a reader."""
    return proof_of(key, b"%s\n%s" % (header, body))


def proven_by(header: bytes, accepted: Sequence[str], kind: str) -> str:
    """Return which value of PROOF_VARIABLE's words accepts a header, or nothing; ``kind`` is SERVICE or INSTANCE."""
    told, _space, given = header.rpartition(b" ")
    sent, digest = given.lower() if len(given) == _HEX else b"", hashlib.sha256(given).hexdigest()
    for of, _colon, value in (word.partition(":") for word in accepted):
        # Of a file that is damaged a value may be empty.
        if of == kind and value and hmac.compare_digest(proof_of(value, told).encode(), sent):
            return value
        if of == DIGEST and hmac.compare_digest(value, digest):
            return value
    return ""


def keys_in(accepted: Sequence[str], kind: str) -> list[str]:
    """Return the keys of a kind among the words of PROOF_VARIABLE, the present one first."""
    return [value for of, _colon, value in (word.partition(":") for word in accepted) if of == kind and value]


def proof_of(key: str, told: bytes) -> str:
    """Return what proves to others with the key that one of them has told something."""
    try:
        return hmac.digest(base64.b64decode(key), told, "sha256").hex()
    except binascii.Error:
        # Of a file that is damaged: no proof has this length.
        return "-"


def record_of(asked: Asked, at: int, model: str, state: str, tokens: Tokens) -> dict[str, Any]:
    """Return the record of an answer without its number; ``state`` is complete, aborted or uncounted."""
    return {
        "at": at, "gateway": asked.gateway, "client": asked.client, "team": asked.team, "model": model, "state": state,
        **tokens._asdict(), **({"id": asked.id} if asked.id else {}),
    }  # fmt: skip


def line_of(number: int, record: Mapping[str, Any]) -> bytes:
    """Return the line of a record."""
    return json.dumps({"number": number, **record}, separators=(",", ":")).encode() + b"\n"


def file_name(names: Sequence[str], now: int, process: str) -> str:
    """Return the name of a new file beside those of ``names``, the oldest first; ``now`` is in nanoseconds.

    A clock may have been set back: the newest file still has the largest number.
    """
    last = names[-1].partition(".")[0] if names else ""
    return f"{max(now, int(last) + 1 if last.isdecimal() else 0)}.{process}.jsonl"


def head_of(name: str, end: int) -> bytes:
    """Return the line before the lines of a file in an answer; ``end`` is the offset behind them."""
    return json.dumps({"file": name, "end": end}).encode() + b"\n"


class Part(NamedTuple):
    """Records of one file of an instance, and the offset behind them."""

    file: str
    end: int
    records: list[dict[str, Any]]

    @property
    def process(self) -> str:
        """The process that wrote the file; a process may have written several."""
        return self.file.split(".")[1] if self.file.count(".") == 2 else self.file


def read_parts(text: str) -> list[Part]:
    """Return the files in an instance's answer. Raises ValueError; a damaged record is left out.

    One that is taken over says what it likes, and must not take the memory of those who read the others.
    """
    if len(text) > MOST_ANSWER_BYTES or text.count("\n") > MOST_LINES:
        raise ValueError("larger than what an instance sends")
    parts: list[Part] = []
    for line in text.split("\n"):
        try:
            found = load_json(line[:_MOST_LINE])
        except ValueError:
            continue
        if not isinstance(found, dict):
            continue
        if "file" in found:
            if not _FILE.fullmatch(str(found["file"])):
                raise ValueError("no name of a file of records")
            parts.append(Part(str(found["file"]), int(found["end"]), []))
        elif parts:
            record = {name: found[name] for name in _FIELDS if isinstance(found.get(name), (str, int, float))}
            parts[-1].records.append(_named(record))
    return parts


def _named(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without names that no gateway, and no engine that is as it was installed, writes."""
    names = [record[name] for name in ("client", "team") if name in record]
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        record.update(client=UNKNOWN, team=UNKNOWN)
    if not _GATEWAY.fullmatch(str(record.get("gateway", UNKNOWN))):
        record["gateway"] = UNKNOWN
    model = record.get("model", "")
    if not isinstance(model, str) or len(model) > _MOST_MODEL or not model.isprintable():
        record["model"] = UNKNOWN
    return record


def row_of(record: Mapping[str, Any], now: int, oldest: int) -> dict[str, Any]:
    """Return what a record adds. Raises KeyError, ValueError, TypeError and OverflowError for anything else.

    Its time is that of the gateway that served it, so all gateways store it in the same hour, though their clocks
    differ. A clock that is quite wrong must not hide tokens in a month that nobody looks at.
    """
    at = int(record["at"])
    if not max(oldest, now - BACK) <= at <= now + DAY:
        at = now
    tokens = {name: int(record[name]) for name in ("prompt", "cached", "completion")}
    if not all(0 <= count <= MOST_TOKENS for count in tokens.values()) or not 0 <= int(record["number"]) <= LARGEST:
        raise ValueError("no count")
    # SQLite takes no half of a surrogate pair.
    texts = {name: str(record[name]) for name in ("gateway", "client", "team", "model")}
    names = {name: text.encode("utf-8", "replace").decode()[:256] for name, text in texts.items()}
    # What the gateway writes where a client has no team, and an open gateway no client.
    names.update({name: "" for name in ("client", "team") if names[name] == "-"})
    state = record["state"]
    return {
        **names, **tokens, "at": at, "hour": at // HOUR * HOUR,
        "aborted": int(state == "aborted"), "uncounted": int(state == "uncounted"),
        "id": str(record.get("id", "")).encode("utf-8", "replace").decode()[:128],
    }  # fmt: skip
