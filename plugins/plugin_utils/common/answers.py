# SPDX-License-Identifier: GPL-3.0-or-later
"""Check what hosts have answered before tables of all hosts are made of it: the shapes of the answers as data.

A shape is ``str``, ``bool`` or ``float`` (any number that is finite and not huge), a text or None that the value equals,
a range of whole numbers, a tuple of shapes (any of them), a list of one shape (of all entries) or of several (an entry
of each), or a dict: of ``{str: shape}`` for any names, else with a shape for each key. A key with ``?`` may be missing,
and other keys are not looked at.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from ...module_utils.common.kinds import show_value

_WORDS = {str: "a text", bool: "true or false", float: "a number"}
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
STARTS = {"instances?": {str: {"phases": [[str, float]], "ready": bool, "seconds": float}}}
# Of endpoint, in a loop over instances or for one.
_CHECK = {"name": str, "ok": (bool, None), "seconds": (float, None), "detail": str}
_ENDPOINT = {
    "ok?": (bool, None), "checks?": [_CHECK], "time_to_first_token_s?": (float, None),
    "tokens_per_second?": (float, None),
}  # fmt: skip
ANSWERS = {**_ENDPOINT, "results?": [{"item": str, **_ENDPOINT}]}
# Of gateway_server.
_SERVER = {
    "backend": str, "state": ("ready", "drain", "maint"), "up": bool, "why": str, "sessions": float, "queued": float,
    "changed_s": float, "downs": float, "owner": str, "reason": str, "since": str,
}  # fmt: skip
_SCALE = {
    "min": float, "max": float, "mode": str, "waiting": float, "last": str, "replicas": {str: float}, "idle?": [str],
}  # fmt: skip
_ADMISSION = {
    "service": str, "class": str, "team": str, "now": float, "requests": float, "waited": float, "refused": float,
    "first_answer_s": float,
}  # fmt: skip
SERVERS = {
    "servers?": {str: _SERVER}, "backends?": {str: {"ready": float, "servers": float, "queued": float}},
    "tokens_per_s?": {str: float}, "scale?": {str: _SCALE}, "admission?": [_ADMISSION],
}  # fmt: skip
# Of gateway_usage_info and gateway_keys.
_ROW = {
    "hour": range(_YEAR_9999), **dict.fromkeys(("gateway", "client", "team", "model"), str),
    **dict.fromkeys(("requests", "aborted", "uncounted", "prompt", "cached", "completion"), float),
}  # fmt: skip
USAGE = {"rows?": [_ROW], "gaps?": [{"server": str, "missing": float}]}
KEYS = {"present?": {str: {"keys": float, "expires": str, "team": str, "services": [str]}}}


def readable(results: Mapping[str, Any], shape: Any) -> dict[str, Any]:
    """Return answers by host; in place of one that has another shape only ``msg``, which names what is odd."""
    problems = {host: find_odd(result, shape) for host, result in results.items()}
    return {host: {"msg": problems[host]} if problems[host] else result for host, result in results.items()}


def find_odd(value: Any, shape: Any, where: str = "") -> str:
    """Return the first place of an answer that has another shape, what it has and what is expected; empty for none."""
    if not _fits(value, shape):
        place = where.lstrip(".")[:_LONGEST] or "the answer"
        return f"{place}: found {show_value(value)}, expected {_describe(shape)}"
    return next(filter(None, (find_odd(each, of, where + place) for each, of, place in _parts(value, shape))), "")


def _fits(value: Any, shape: Any) -> bool:
    """Return whether a value has a shape, apart from what is in it."""
    if isinstance(shape, tuple):
        return any(not find_odd(value, each) for each in shape)
    if isinstance(shape, dict):
        named = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
        return named and all(key is str or key.endswith("?") or key in value for key in shape)
    if isinstance(shape, list):
        return isinstance(value, (list, tuple)) and len(shape) in (1, len(value))
    if isinstance(shape, range):
        return isinstance(value, int) and value in shape
    if shape is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST
    return isinstance(value, shape) if isinstance(shape, type) else bool(value == shape)


def _parts(value: Any, shape: Any) -> Iterator[tuple[Any, Any, str]]:
    """Yield what is in a value, with the shape and the place of each."""
    if isinstance(shape, list):
        yield from ((each, shape[number % len(shape)], f"[{number}]") for number, each in enumerate(value))
    elif isinstance(shape, dict):
        for key, each in value.items():
            named = next((name for name in (str, key, f"{key}?") if name in shape), None)
            if named is not None:
                yield each, shape[named], f".{key}"


def _describe(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(map(_describe, shape))
    if isinstance(shape, dict):
        keys = ", ".join(key for key in shape if key is not str and not key.endswith("?"))
        return f"a mapping with {keys}" if keys else "a mapping"
    if isinstance(shape, list):
        return "a list" if len(shape) == 1 else f"a list of {len(shape)} entries"
    if isinstance(shape, range):
        return f"a whole number from {shape.start} to {shape.stop - 1}"
    return _WORDS.get(shape) or show_value(shape)
