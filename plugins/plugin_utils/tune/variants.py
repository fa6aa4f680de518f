# SPDX-License-Identifier: GPL-3.0-or-later
"""The variants of an instance that a tune compares: the unchanged instance, and changes to its settings."""

import itertools
import json
import re
from typing import Any, Dict, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.vllm.plan_document import PlanDocument
from ..fleet.members import HOST_KEYS

# The unchanged instance, with which every other variant is compared.
CURRENT = "current"
# The keys of an instance that a variant may change.
MAPPINGS, TEXTS = ("args", "env"), ("preset", "strategy")
KEYS = (*MAPPINGS, *TEXTS)
# More would take days, and a matrix can reach that with one more value.
MOST = 40
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*\Z")

Variant = Dict[str, Any]


class TuneError(ValueError):
    """The tune cannot continue; the message is the whole sentence for the user."""


def parse_variants(variants: Any, matrix: Any) -> dict[str, Variant]:
    """Return the variants by name. The first one, CURRENT, changes nothing. Raises TuneError.

    ``variants`` maps names to changes, ``matrix`` has lists of values, whose combinations are variants too.
    """
    found: dict[str, Variant] = {CURRENT: {}}
    for name, change in _mapping("tune_variants", variants).items():
        where = f"tune_variants.{name}"
        if not isinstance(name, str) or not _NAME.match(name):
            raise TuneError(f"{where}: found the name {name!r}, expected small letters, digits, '-', '_' and '.'")
        if name == CURRENT:
            raise TuneError(
                f"{where}: this name is reserved for the unchanged instance, which is always measured; choose another"
            )
        found[name] = _checked(where, change)
    for name, change in _combined(_mapping("tune_matrix", matrix)).items():
        if name in found:
            raise TuneError(f"tune_matrix: its variant {name} is in tune_variants too; rename that one")
        found[name] = change
    if len(found) == 1:
        raise TuneError(
            "tune_variants and tune_matrix are empty: name what to compare with the unchanged instance, for example "
            "tune_variants: {marlin: {args: {moe-backend: marlin}}}"
        )
    if len(found) > MOST:
        raise TuneError(f"tune_variants, tune_matrix: found {len(found)} variants, expected at most {MOST}")
    return found


def _mapping(where: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value or {}, Mapping):
        raise TuneError(f"{where}: found {show_value(value)}, expected a mapping")
    return value or {}


def _checked(where: str, change: Any) -> Variant:
    known = _mapping(where, change)
    if not known:
        raise TuneError(f"{where}: found nothing to change, expected one of {', '.join(KEYS)}")
    for key, value in known.items():
        if key not in KEYS:
            raise TuneError(f"{where}: unknown key {show_value(key)}; {nearest(str(key), KEYS)}")
        if key in MAPPINGS:
            _mapping(f"{where}.{key}", value)
        elif not isinstance(value, str) or not value:
            raise TuneError(f"{where}.{key}: found {show_value(value)}, expected a text")
    return dict(known)


def _combined(matrix: Mapping[Any, Any]) -> dict[str, Variant]:
    """Return a variant for each combination of the lists of a matrix."""
    axes: list[tuple[str, str, Sequence[Any]]] = []
    for key, lists in matrix.items():
        where = f"tune_matrix.{key}"
        if key not in KEYS:
            raise TuneError(f"tune_matrix: unknown key {show_value(key)}; {nearest(str(key), KEYS)}")
        for name, values in _mapping(where, lists).items() if key in MAPPINGS else [(key, lists)]:
            place = f"{where}.{name}" if key in MAPPINGS else where
            if not isinstance(values, list) or not values:
                raise TuneError(f"{place}: found {show_value(values)}, expected a list of values")
            axes.append((str(key), str(name), values))
    found: dict[str, Variant] = {}
    for values in itertools.product(*[axis[2] for axis in axes]) if axes else []:
        name, change = _combination(axes, values)
        if name in found:
            raise TuneError(f"tune_matrix: two combinations are called {name}; leave out the value that is there twice")
        found[name] = _checked(f"tune_matrix: {name}", change)
    return found


def _combination(axes: Sequence[tuple[str, str, Any]], values: Sequence[Any]) -> tuple[str, Variant]:
    change: Variant = {}
    words = []
    for (key, name, _values), value in zip(axes, values):
        if key in MAPPINGS:
            change.setdefault(key, {})[name] = value
        else:
            change[key] = value
        words += [name, "none" if value is None else value if isinstance(value, str) else json.dumps(value)]
    return re.sub(r"[^a-z0-9_.]+", "-", "-".join(words).lower()).strip("-_."), change


def changed_instances(instances: Mapping[str, Any], name: str, variant: Variant) -> dict[str, Any]:
    """Return ``vllm_instances`` with the changes of a variant in one instance; args and env are merged by key."""
    before = instances[name]
    after = {**before, **{key: variant[key] for key in TEXTS if key in variant}}
    for key in MAPPINGS:
        if key in variant:
            after[key] = {**(before.get(key) or {}), **(variant[key] or {})}
    return {**instances, name: after}


def check_instance(instances: Any, name: str) -> None:
    """Raise TuneError if an instance does not exist or cannot be tuned."""
    if not name:
        raise TuneError("tune_instance is missing: name the instance to tune, for example -e tune_instance=chat")
    if not isinstance(instances, Mapping) or name not in instances:
        raise TuneError(f"tune_instance: vllm_instances has no {name!r}; {nearest(name, instances or {})}")
    named = [instances[name][key] for key in HOST_KEYS if instances[name].get(key)]
    hosts = [host for names in named for host in ([names] if isinstance(names, str) else names)]
    if hosts:
        raise TuneError(f"tune_instance: {name} spans the hosts {', '.join(hosts)}; only one host can be tuned")


def check_plans(plans: Mapping[str, PlanDocument]) -> None:
    """Raise TuneError if two variants make the same plan, because a setting with higher precedence hides the change."""
    seen: dict[str, str] = {}
    for name, plan in plans.items():
        digest = json.dumps([plan["argv"], plan["env"]], sort_keys=True)
        if digest in seen:
            raise TuneError(
                f"tune_variants: {name} makes the same plan as {seen[digest]}; check that it changes something "
                "(vllm_instances given with -e has the last word), or leave it out"
            )
        seen[digest] = name


def failure_of(result: Any) -> str:
    """Return the message of a failed task in one line; for a loop, the messages of the items that failed."""
    if not isinstance(result, Mapping):
        return str(result or "no message")
    items = [entry for entry in result.get("results") or [] if isinstance(entry, Mapping) and entry.get("failed")]
    text = (
        "; ".join(dict.fromkeys(failure_of(entry) for entry in items))
        if items
        else str(result.get("msg") or "no message")
    )
    return " ".join(text.split())
