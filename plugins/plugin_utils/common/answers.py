# SPDX-License-Identifier: GPL-3.0-or-later
"""Check what hosts have answered before tables of all hosts are made of it: the shapes of the answers as data.

A shape is ``str``, ``bool``, ``float`` (any number that is finite and not huge) or Amount (such a number from 0 on), a
text or None for itself, a range of whole numbers, a tuple of shapes (any of them), a list of one shape (of all entries)
or of several (an entry of each), or a dict: ``{str: shape}`` for any names, else a shape for each key. One with ``?``
may be missing; others than these are ignored.
"""

from typing import Any, Iterator, Mapping

from ...module_utils.common.kinds import show_value
from .output import problem_of


class Amount:
    """The shape of a rate or a duration: a negative one would be subtracted from those of others."""


_WORDS = {str: "a text", bool: "true or false", float: "a number", Amount: "a number from 0"}
_LARGEST, _LONGEST = 1e15, 200
_YEAR_9999 = 253_370_764_800

_SLOT = {"digest": str, "plan?": ({"args?": ({}, None), "env?": ({}, None)}, None)}
# Answers of instance_slot, by instance.
INSTANCES = {
    str: {
        "installed?": bool, "digest?": str, "good?": (_SLOT, None), "previous?": (_SLOT, None), "slots?": [_SLOT],
        "up?": bool, "stale?": bool, "group?": {"hosts?": [str], "role?": str},
    }
}  # fmt: skip
SLOTS = {"instances?": INSTANCES}
# Of instance_starts.
STARTS = {"instances?": {str: {"phases": [[str, Amount]], "ready": bool, "seconds": Amount}}}
# Of instance_faults; the last second of a date that is printed.
FAULTS = {"instances?": {str: {"at": range(2**33), "fault": str}}}
# Of endpoint, in a loop over instances or for one.
CHECK = {"name": str, "ok": (bool, None), "seconds": (Amount, None), "detail": str}
_ENDPOINT = {
    "ok?": (bool, None), "checks?": [CHECK], "time_to_first_token_s?": (Amount, None),
    "tokens_per_second?": (Amount, None),
}  # fmt: skip
ANSWERS = {**_ENDPOINT, "results?": [{"item": str, **_ENDPOINT}]}
# Of group_links and group_all_reduce.
_LINK = {"problem": str, "mtu": float, "clock": float, "seconds": float}
_PORT = {"port": float, "link": str, "rate": str, "state": str}
LINKS = {
    "groups?": {str: {"mtu": float, "links": {str: _LINK}}}, "driver?": (str, None), "kernel?": str,
    "rdma?": [{"name": str, "ports": [_PORT]}], "redirecting?": [str], "translated?": [str],
}  # fmt: skip
ALL_REDUCE = {"problem?": str, "missing?": [str], "networks?": [str], "gb_per_s?": (Amount, None)}
# A negative one would be added up with those of other gateways.
_COUNT = range(10**15)
# Of gateway_server.
_SERVER = {
    "backend": str, "state": ("ready", "drain", "maint"), "up": bool, "why": str, "owner": str, "reason": str,
    "since": str, **dict.fromkeys(("sessions", "queued", "changed_s", "downs"), _COUNT),
}  # fmt: skip
_SCALE = {
    "mode": str, "last": str, "replicas": {str: _COUNT}, "idle?": [str],
    **dict.fromkeys(("min", "max", "waiting"), _COUNT),
}  # fmt: skip
_ADMISSION = {
    "service": str, "class": str, "team": str, "first_answer_s": Amount,
    **dict.fromkeys(("now", "requests", "waited", "refused"), _COUNT),
}  # fmt: skip
SERVERS = {
    "servers?": {str: _SERVER}, "backends?": {str: dict.fromkeys(("ready", "servers", "queued"), _COUNT)},
    "planned_stops?": {str: _COUNT}, "tokens_per_s?": {str: Amount}, "scale?": {str: _SCALE},
    "admission?": [_ADMISSION],
}  # fmt: skip
# Of gateway_usage_info and gateway_keys.
_ROW = {
    "hour": range(_YEAR_9999), **dict.fromkeys(("gateway", "client", "team", "model"), str),
    **dict.fromkeys(("requests", "aborted", "uncounted", "prompt", "cached", "completion"), _COUNT),
}  # fmt: skip
USAGE = {"rows?": [_ROW], "gaps?": [{"server": str, "missing": _COUNT}]}
KEYS = {"present?": {str: {"keys": _COUNT, "expires": str, "team": str, "services": [str]}}}


def readable(results: Mapping[str, Any], shape: Any) -> dict[str, Any]:
    """Return answers by host; in place of one that has another shape only ``msg``, which names what is odd."""
    problems = {host: find_odd(result, shape) for host, result in results.items()}
    return {host: {"msg": problems[host]} if problems[host] else result for host, result in results.items()}


def describe_silent(results: Mapping[str, Mapping[str, Any]], key: str) -> list[str]:
    """Return a line for each host that was asked and whose answer has no ``key``, the part that is read of it."""
    return [
        f"{host} was not read: {problem_of(result) if result.get('msg') else 'no answer'}"
        for host, result in sorted(results.items())
        if key not in result
    ]


def find_odd(value: Any, shape: Any, where: str = "") -> str:
    """Return the first place of an answer that has another shape, what it has and what is expected; empty for none."""
    if isinstance(shape, tuple) and isinstance(value, (Mapping, list, tuple)):
        # The problem is inside of it.
        shape = next((each for each in shape if isinstance(each, (dict, list))), shape)
    if not _fits(value, shape):
        place = where.lstrip(".")[:_LONGEST] or "the answer"
        return f"{place}: found {show_value(value)}, expected {_describe(shape)}"
    return next(filter(None, (find_odd(each, of, where + place) for each, of, place in _parts(value, shape))), "")


def _fits(value: Any, shape: Any) -> bool:
    """Return whether a value has a shape, apart from what is in it."""
    if isinstance(shape, tuple):
        return any(not find_odd(value, each) for each in shape)
    if isinstance(shape, dict):
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if isinstance(shape, list):
        return isinstance(value, (list, tuple)) and len(shape) in (1, len(value))
    if isinstance(shape, range):
        return isinstance(value, int) and value in shape
    if shape in (float, Amount):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and abs(value) < _LARGEST and (shape is float or value >= 0)
    return isinstance(value, shape) if isinstance(shape, type) else bool(value == shape)


def _parts(value: Any, shape: Any) -> Iterator[tuple[Any, Any, str]]:
    """Yield what is in a value, with the shape and the place of each."""
    if isinstance(shape, list):
        yield from ((each, shape[number % len(shape)], f"[{number}]") for number, each in enumerate(value))
    elif isinstance(shape, dict):
        for name, of in shape.items():
            key = str(name).rstrip("?")
            keys = value if name is str else [key] if key == name or key in value else ()
            yield from ((value.get(each), of, f".{each}") for each in keys)


def _describe(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(map(_describe, shape))
    if isinstance(shape, dict):
        return "a mapping"
    if isinstance(shape, list):
        return "a list" if len(shape) == 1 else f"a list of {len(shape)} entries"
    if isinstance(shape, range):
        return f"a whole number from {shape.start} to {shape.stop - 1}"
    return _WORDS.get(shape) or show_value(shape)
