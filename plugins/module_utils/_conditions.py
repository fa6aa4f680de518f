# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions of rules and guards in recipes: on releases, hardware, facts of a host and what was chosen."""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Mapping

_PART = re.compile(r"(>=|<=|==|!=|>|<)?\s*([\w.+-]+)$")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}

VERSIONS = ("vllm", "driver", "cuda")
NUMBERS = ("tensor_parallel_size", "count", "memory_gib", "mec_firmware")
NAMES = ("accelerator", "generation", "stack", "runtime", "preset", "variant", "strategy")
LISTS = ("features",)
# Looked at when all layers are laid: only guards and known issues may ask for them.
RESULTS = ("args", "env", "secrets")
CONDITIONS = (*VERSIONS, *NUMBERS, *NAMES, *LISTS)

ABSENT = "absent"
PRESENT = "present"


def version_key(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparing: ``580.65.06`` is (580, 65, 6)."""
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0]))


def satisfies(version: str, spec: str) -> bool:
    """Return whether a version lies in ``>=0.24,<0.33`` or is ``0.33.0``. Raises ValueError for another form."""
    return _in_spec(version, spec, version_key)


def _in_spec(value: Any, spec: Any, key: Callable[[Any], Any]) -> bool:
    for part in str(spec).split(","):
        found = _PART.match(part.strip())
        if found is None:
            raise ValueError(f"found {spec!r}, expected a form like '>=0.24,<0.33'")
        left, right = key(value), key(found.group(2))
        if right == ():
            raise ValueError(f"found {spec!r}, expected a form like '>=0.24,<0.33'")
        if isinstance(left, tuple):
            # 0.24 means 0.24.0 here.
            width = max(len(left), len(right))
            left, right = left + (0,) * (width - len(left)), right + (0,) * (width - len(right))
        if not _COMPARE[found.group(1) or "=="](left, right):
            return False
    return True


def _number(value: Any) -> float:
    return float(value)


def holds(name: str, wanted: Any, facts: Mapping[str, Any]) -> bool | None:
    """Return whether one condition holds, None where the fact is not known. Raises ValueError for a wrong form."""
    if name in RESULTS:
        if not isinstance(wanted, Mapping):
            raise ValueError(f"found {wanted!r}, expected a mapping of names to what is wanted of them")
        return _results_hold(wanted, facts.get(name) or {})
    fact = facts.get(name)
    if fact is None:
        return None
    if name in VERSIONS:
        return any(satisfies(str(fact), str(spec)) for spec in _listed(wanted))
    if name in NUMBERS:
        return any(_in_spec(fact, spec, _number) for spec in _listed(wanted))
    have = {str(item) for item in _listed(fact)}
    if name in LISTS:
        return all(str(item) in have for item in _listed(wanted))
    return any(str(item) in have for item in _listed(wanted))


def applies(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return whether a rule is in force: all of ``when`` hold, and ``unless`` does not hold as a whole.

    A condition on a fact that nobody knows does not hold, so ``unless`` states the exception to the safe side.
    """
    if not all(holds(name, wanted, facts) for name, wanted in (rule.get("when") or {}).items()):
        return False
    exception = rule.get("unless") or {}
    return not (exception and all(holds(name, wanted, facts) for name, wanted in exception.items()))


def _results_hold(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(_result_holds(spec, key in found, found.get(key)) for key, spec in wanted.items())


def _result_holds(spec: Any, there: bool, value: Any) -> bool:
    if spec in (ABSENT, PRESENT):
        return there is (spec == PRESENT)
    if not there:
        return False
    if isinstance(spec, bool) or isinstance(value, bool):
        return spec is value
    if isinstance(spec, str) and spec[:1] in "<>=!":
        try:
            return _in_spec(value, spec, _number)
        except (TypeError, ValueError):
            return False
    return str(value) == str(spec)


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple, set, frozenset)) else [value]
