# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of a gateway: keys, which leave the controller only as sha256, and limits."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from typing import Any, Mapping, Sequence

from ..common.kinds import name_kind, show_value
from ..common.spelling import nearest, not_a_number
from .expiry import end_in_words, end_of

MIN_KEY_LENGTH = 32
# The largest limits of requests and of tokens; HAProxy and SQLite have 64 bits for them.
MOST = 10**9
MOST_TOKENS = 10**15
# Limits of tokens, of clients and teams.
BUDGETS = ("tokens_per_minute", "tokens_per_day", "tokens_per_month")
OPTIONS = ("concurrent", "expires", "key_file", "models", "rate", "sha256", "team", *BUDGETS)
Maps = Mapping[str, Mapping[str, str]]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
# Characters of a bearer token.
_KEY = re.compile(r"[A-Za-z0-9._~+/=:-]+\Z")

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")

CLIENTS, RATES, CONCURRENT, RIGHTS = "clients.map", "rates.map", "concurrent.map", "rights.map"
ENDS, TEAMS = "ends.map", "teams.map"
# Seconds before the end of a client's keys from which on a run warns.
WARN_BEFORE = 14 * 86400
# In place of a service's name: all of them.
ANY = "*"


class KeyFileError(ValueError):
    """A key file is invalid; the message gives the reason, and shows none of its content."""


@dataclass(frozen=True)
class Client:
    """A client: ``sha256`` of each of its keys, requests per minute and concurrent requests (0: no limit).

    ``services`` are those that it may use, ANY for all; for one with adapters also ``SERVICE=MODEL`` for each model.
    The keys are valid until ``ends``, in seconds since 1970; 0 for always. Tokens count as those of ``team``, if any.
    """

    name: str
    sha256: tuple[str, ...]
    rate: int = 0
    concurrent: int = 0
    services: tuple[str, ...] = (ANY,)
    ends: int = 0
    team: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the client as plain data."""
        return {**asdict(self), "sha256": list(self.sha256), "services": list(self.services)}


def check_clients(entries: Any) -> list[str]:
    """Return a problem for each invalid entry of ``gateway_clients``."""
    if not isinstance(entries, Mapping):
        return [f"gateway_clients: found {show_value(entries)}, expected a mapping of names to {{key_file: ...}}"]
    return [text for name, entry in entries.items() for text in _problems(str(name), entry)]


def _problems(name: str, entry: Any) -> list[str]:
    where = f"gateway_clients.{name}"
    if not NAME.match(name):
        return [f"{where}: expected a name of at most 64 letters, digits, dots, dashes and underscores"]
    if not isinstance(entry, Mapping):
        return [f"{where}: found {name_kind(entry)}, expected a mapping with key_file"]
    found = [
        f"{where}: unknown key {show_value(key)}; {nearest(str(key), OPTIONS)}" for key in entry if key not in OPTIONS
    ]
    for key in ("rate", "concurrent"):
        value = entry.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST):
            problem = not_a_number(value, f"a whole number from 1 to {MOST}")
            found.append(f"{where}.{key}: {problem}; leave {key} out for no limit")
    models = entry.get("models")
    if models is not None and (not isinstance(models, (list, tuple)) or not models):
        found.append(
            f"{where}.models: found {show_value(models)}, expected a list of model names; leave it out for all models"
        )
    team = entry.get("team")
    if team is not None and not (isinstance(team, str) and NAME.match(team)):
        found.append(f"{where}.team: found {show_value(team)}, expected a name, as for clients")
    return [*found, *_key_problems(where, entry), *_expires_problems(where, entry)]


def _key_problems(where: str, entry: Mapping[str, Any]) -> list[str]:
    if "sha256" not in entry:
        if isinstance(entry.get("key_file"), str) and entry["key_file"]:
            return []
        return [f"{where}.key_file: expected the path of a file on the controller with the key, or set sha256"]
    if "key_file" in entry:
        return [f"{where}: has key_file and sha256; remove one of the two"]
    digests = entry["sha256"]
    if isinstance(digests, (list, tuple)) and digests and all(_is_sha256(digest) for digest in digests):
        return []
    way_out = "; run `sha256sum` on a key without a line end"
    if not isinstance(digests, (list, tuple)) or not digests:
        found = name_kind(digests) if digests or not isinstance(digests, list) else "an empty list"
        return [
            f"{where}.sha256: found {found}, expected a list of texts of 64 digits 0-9a-f, one for each key{way_out}"
        ]
    number = next(number for number, digest in enumerate(digests) if not _is_sha256(digest))
    return [f"{where}.sha256[{number}]: found {_not_sha256(digests[number])}, expected 64 digits 0-9a-f{way_out}"]


def _not_sha256(value: Any) -> str:
    """Return what is wrong with an entry; not the value, which may be a key by mistake."""
    if not isinstance(value, str):
        return name_kind(value)
    if _SHA256.match(value.lower()):
        return "capital letters"
    return f"a text of {len(value)} characters"


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and bool(_SHA256.match(value))


def _expires_problems(where: str, entry: Mapping[str, Any]) -> list[str]:
    try:
        end_of(entry.get("expires"))
    except ValueError as exc:
        return [f"{where}.expires: {exc}; leave it out for keys that stay valid"]
    return []


def ending(clients: Sequence[Client], now: float) -> list[str]:
    """Return a warning for each client whose keys have ended, or end soon; ``now`` in seconds since 1970."""
    found = []
    for client in clients:
        if not client.ends or now < client.ends - WARN_BEFORE:
            continue
        end = end_in_words(str(client.ends))
        found.append(
            f"gateway_clients.{client.name}: its keys expire on {end}; give it a new expires"
            if now < client.ends
            else f"gateway_clients.{client.name}: its keys expired on {end}; remove it, or give it a new expires"
        )
    return found


def hashes_of(text: str) -> tuple[str, ...]:
    """Return the sha256 of each key in the text of a key file, one per line. Raises KeyFileError."""
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    if not keys:
        raise KeyFileError("is empty; expected a key, such as the output of `openssl rand -hex 32`")
    if keys[0].startswith("$ANSIBLE_VAULT"):
        raise KeyFileError("is encrypted with ansible-vault; expected the key itself")
    for number, key in enumerate(keys, 1):
        if len(key) < MIN_KEY_LENGTH:
            raise KeyFileError(f"key {number} has {len(key)} characters, expected at least {MIN_KEY_LENGTH}")
        if not _KEY.match(key):
            raise KeyFileError(
                f"key {number} has characters that are invalid in a bearer token; expected letters, digits, ._~+/=:-"
            )
    return tuple(dict.fromkeys(hashlib.sha256(key.encode()).hexdigest() for key in keys))


def shared_keys(clients: Sequence[Client]) -> list[str]:
    """Return a problem for each pair of clients with the same key."""
    owner: dict[str, str] = {}
    found = []
    for client in clients:
        for digest in client.sha256:
            other = owner.setdefault(digest, client.name)
            if other != client.name:
                found.append(
                    f"gateway_clients: {other} and {client.name} have the same key; give each client its own key"
                )
    return found


def maps_of(clients: Sequence[Client]) -> dict[str, dict[str, str]]:
    """Return the entries of each of HAProxy's maps by the map's file name."""
    return {
        # A client's name has no colon.
        RIGHTS: {f"{client.name}:{service}": "1" for client in clients for service in client.services},
        RATES: {client.name: str(client.rate) for client in clients if client.rate},
        CONCURRENT: {client.name: str(client.concurrent) for client in clients if client.concurrent},
        ENDS: {client.name: str(client.ends) for client in clients if client.ends},
        TEAMS: {client.name: client.team for client in clients if client.team},
        CLIENTS: {digest: client.name for client in clients for digest in client.sha256},
    }


def steps(before: Maps, requested: Maps) -> list[tuple[str, dict[str, str]]]:
    """Return which map gets which entries, one after the other, so that a change may break off after each entry.

    No key may ever do more than before the change or after it: rights and limits become the stricter of both, teams and
    keys change, and the requested rights and limits follow. Teams that end do so before them: a team has a class.
    """
    tight = {name: _tightened(name, before, entries) for name, entries in requested.items()}
    last = sorted(requested, key=lambda name: name != TEAMS)
    return [*tight.items(), *((name, dict(requested[name])) for name in last)]


def _tightened(name: str, before: Maps, requested: Mapping[str, str]) -> dict[str, str]:
    old = before.get(name, requested)
    if name == CLIENTS:
        return dict(requested)
    if name == RIGHTS:
        known = set(before.get(CLIENTS, {}).values())
        added = [right for right in requested if _has(old, right) or right.partition(":")[0] not in known]
        return dict.fromkeys([*added, *(right for right in old if _has(requested, right))], "1")
    both = {**old, **requested}
    # A client that is removed keeps its team and its limits as long as its keys.
    return both if name == TEAMS else {key: _stricter(old.get(key, ""), both[key]) for key in both}


def _has(rights: Mapping[str, str], right: str) -> bool:
    """Return whether rights include one, by itself or because they are all of that client."""
    return right in rights or f"{right.partition(':')[0]}:{ANY}" in rights


def _stricter(one: str, other: str) -> str:
    """Return the smaller of two numbers; 0 is no limit."""
    limits = (text for text in (one, other) if text.isascii() and text.isdigit() and int(text))
    return min(limits, key=int, default=other)


def maps_without(maps: Maps, name: str) -> dict[str, dict[str, str]]:
    """Return maps without a client."""
    return {
        file: {
            key: value
            for key, value in entries.items()
            if name != (value if file == CLIENTS else key.partition(":")[0] if file == RIGHTS else key)
        }
        for file, entries in maps.items()
    }


def describe_maps(maps: Maps) -> dict[str, dict[str, Any]]:
    """Return what maps have of each client: the number of its ``keys``, limits, services, end and team."""
    owners = list(maps.get(CLIENTS, {}).values())
    rights = rights_of(maps)
    return {
        name: {
            "keys": owners.count(name),
            "rate": maps.get(RATES, {}).get(name, ""),
            "concurrent": maps.get(CONCURRENT, {}).get(name, ""),
            "services": _services_in_words(rights.get(name, [ANY])),
            "expires": end_in_words(maps.get(ENDS, {}).get(name)),
            "team": maps.get(TEAMS, {}).get(name, ""),
        }
        for name in sorted(set(owners))
    }


def _services_in_words(rights: Sequence[str]) -> list[str]:
    """Return services, each with the models to which it is limited: chat, or chat (base, sql)."""
    models: dict[str, list[str]] = {}
    for right in rights:
        service, equals, model = right.partition("=")
        models.setdefault(service, []).extend([model] if equals else [])
    return [f"{service} ({', '.join(names)})" if names else service for service, names in models.items()]


def map_text(entries: Mapping[str, str]) -> str:
    """Return a map in the format of HAProxy's files."""
    return "".join(f"{key} {entries[key]}\n" for key in sorted(entries))


def parse_map(text: str) -> dict[str, str]:
    """Return the entries of a map file."""
    pairs = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def commands(path: str, now: Mapping[str, str], requested: Mapping[str, str]) -> list[str]:
    """Return the commands that turn HAProxy's map ``path`` into ``requested``; additions before removals."""
    changed = [f"set map {path} {key} {value}" for key, value in requested.items() if now.get(key, value) != value]
    added = [f"add map {path} {key} {value}" for key, value in requested.items() if key not in now]
    return [*changed, *added, *(f"del map {path} {key}" for key in now if key not in requested)]


def differences(before: Maps, after: Maps) -> dict[str, list[str]]:
    """Return the names of the clients that were ``added``, ``removed`` and ``changed`` between two sets of maps."""
    old, new = _clients(before), _clients(after)
    return {
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
        "changed": sorted(name for name in new.keys() & old.keys() if new[name] != old[name]),
    }


def _clients(maps: Maps) -> dict[str, tuple[Any, ...]]:
    keys: dict[str, list[str]] = {}
    for digest, name in maps.get(CLIENTS, {}).items():
        keys.setdefault(name, []).append(digest)
    limits = [maps.get(name, {}) for name in (RATES, CONCURRENT, ENDS, TEAMS)]
    rights = rights_of(maps)
    return {
        name: (sorted(found), rights.get(name, [ANY]), *(limit.get(name) for limit in limits))
        for name, found in keys.items()
    }


def rights_of(maps: Maps) -> dict[str, list[str]]:
    """Return the services that each client may use; earlier releases had no map of them."""
    found: dict[str, list[str]] = {}
    for key in sorted(maps.get(RIGHTS, {})):
        client, _colon, service = key.partition(":")
        found.setdefault(client, []).append(service)
    return found
