# SPDX-License-Identifier: GPL-3.0-or-later
"""A request to make a client with a key, or to end the keys of one: the options of gateway_keys.yml."""

import re
from typing import Any, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.gateway.clients import BUDGETS, NAME
from ...module_utils.gateway.expiry import end_in_words, end_of

# The sha256 of a key that is made after all checks.
UNMADE = "0" * 64
# Options that only a new client has, in the order of its line in the inventory.
LIMITS = ("rate", "concurrent", *BUDGETS)
OF_CLIENT = ("team", "models", *LIMITS, "expires")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class ClientRequestError(ValueError):
    """The request is not possible; the message has a line for each problem."""


def check_request(options: Mapping[str, Any], now: float) -> None:
    """Raise ClientRequestError unless the options are a request; ``now`` is in seconds since 1970.

    ``make`` and ``end`` name the client, neither of them is a request for the list; ``clients`` are those of the
    inventory.
    """
    problems = _problems(options, now)
    if problems:
        raise ClientRequestError("\n".join(problems))


def _problems(options: Mapping[str, Any], now: float) -> list[str]:
    clients, make, end = options["clients"], options["make"], options["end"]
    if not isinstance(clients, Mapping):
        return [f"gateway_clients: found {show_value(clients)}, expected a mapping of names to {{key_file: ...}}"]
    names = [str(name) for name in clients]
    if make and end:
        return [f"gateway_keys_make: {make}, and gateway_keys_end: {end}; name one of them"]
    unused = [name for name in (*OF_CLIENT, "sha256") if options[name] and not make]
    if unused:
        named = "-e gateway_keys_make=NAME (`inference key add NAME`)"
        return [f"gateway_keys_{unused[0]}: only a new client has it; name the client with {named}"]
    if end and end not in names:
        return [f"gateway_keys_end: gateway_clients has no {show_value(end)}; {nearest(end, names)}"]
    return _problems_of_new(options, names, now) if make else []


def _problems_of_new(options: Mapping[str, Any], names: list[str], now: float) -> list[str]:
    found = []
    make = options["make"]
    if not NAME.match(make):
        found.append(
            f"gateway_keys_make: found {show_value(make)[:80]}, expected a name of at most 64 letters, digits, dots, "
            "dashes and underscores"
        )
    if make in names:
        found.append(
            f"gateway_keys_make: gateway_clients has {make} already; choose another name, or give it another key as "
            "docs/operate/rotate-a-key.md describes"
        )
    # Other values than a mapping are refused with the gateway's own options.
    teams = [str(name) for name in options["teams"]] if isinstance(options["teams"], Mapping) else []
    if options["team"] and teams and options["team"] not in teams:
        found.append(
            f"gateway_keys_team (`inference key add NAME --team TEAM`): gateway_teams has no "
            f"{show_value(options['team'])[:80]}; {nearest(options['team'], teams)}"
        )
    elif options["team"] and not NAME.match(options["team"]):
        found.append(f"gateway_keys_team: found {show_value(options['team'])[:80]}, expected a name, as for clients")
    if options["sha256"] and not _SHA256.match(options["sha256"]):
        # Not the value: it may be a key, by mistake.
        found.append("gateway_keys_sha256: expected 64 digits 0-9a-f; run `sha256sum` on a key without a line end")
    found += [
        f"gateway_keys_{name}: found {options[name]}, expected a whole number from 1; leave it out for no limit"
        for name in LIMITS
        if options[name] < 0
    ]
    return [*found, *_expires_problems(options["expires"], now)]


def _expires_problems(expires: Any, now: float) -> list[str]:
    if not expires:
        return []
    try:
        ends = end_of(expires)
    except ValueError as exc:
        return [f"gateway_keys_expires: {exc}"]
    if ends <= now:
        return [
            f"gateway_keys_expires: found {show_value(expires)}, which is over; expected a time after "
            f"{end_in_words(str(int(now) // 60 * 60 + 1))[:16]}Z"
        ]
    return []


def entry_of(options: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """Return the client as gateway_clients has it, with the sha256 of its key."""
    more = {name: options[name] for name in OF_CLIENT if options[name]}
    return {"sha256": [digest], **more}


def clients_after(options: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """Return gateway_clients after the request."""
    if options["make"]:
        return {**options["clients"], options["make"]: entry_of(options, digest)}
    return {name: entry for name, entry in options["clients"].items() if str(name) != options["end"]}
