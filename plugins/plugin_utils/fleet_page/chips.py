# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge what variables declare of a host's chips and what was found there: the chips to count, and the state."""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from ...module_utils.accelerator.recognition import CPU, UNKNOWN, Model
from ...module_utils.common.spelling import nearest
from ..common.group_names import CONFLICT_GROUP, MODEL_PREFIX

CONFLICT, STALE, DECLARED, SEEN, UNSEEN = "conflict", "stale", "declared", "seen", "unseen"
# Only gateways report these (service.py).
SICK, DRAINED, SERVES = "sick", "drained", "serves"
# Only hosts report this (versions.py).
DRIFTED = "drifted"
# Worst first; the first state that applies is the host's.
STATES = (SICK, CONFLICT, UNKNOWN, STALE, DRAINED, DRIFTED, SERVES, DECLARED, SEEN, UNSEEN)
# The states that need an action.
ATTENTION = (SICK, CONFLICT, UNKNOWN, STALE, DRAINED, DRIFTED, UNSEEN)

# None for a number that no source states.
Counts = Dict[str, Optional[int]]


class Host(NamedTuple):
    """A host of the inventory; ``problem`` names the variables that cannot be read."""

    name: str
    groups: Sequence[str]
    variables: Mapping[str, Any]
    problem: str = ""


def declared_chips(variables: Mapping[str, Any]) -> Counts:
    """Return the models that the variables declare; ``accelerators`` takes precedence over ``accelerator``."""
    several = variables.get("accelerators")
    if isinstance(several, str):
        several = dict(part.partition(":")[::2] for part in several.replace(",", " ").split())
    if isinstance(several, Mapping) and several:
        return {str(model): _number(count) for model, count in several.items()}
    model = variables.get("accelerator")
    return {str(model): _number(variables.get("accelerator_count"))} if model not in (None, "") else {}


def found_chips(detected: Mapping[str, Any]) -> Counts:
    """Return the models of the fact ``accelerator_detected``; chips outside the catalogue count as one model."""
    if not detected:
        return {}
    models = detected.get("models")
    found: Counts = {}
    if isinstance(models, Mapping):
        found = {str(model): _number(count) for model, count in models.items()}
    unknown = detected.get("unknown")
    if isinstance(unknown, (list, tuple)) and unknown:
        found[UNKNOWN] = len(unknown)
    model = detected.get("model")
    if not found and model:
        found = {str(model): _number(detected.get("count"))}
    return found


def counted_chips(declared: Counts, found: Counts, grouped: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return the chips to count: the declared ones, else those found; a missing number is the one found, or 1."""
    counts = declared or found or dict.fromkeys([name for name in grouped if name == UNKNOWN])
    pairs = [(model, found.get(model) or 1 if count is None else count) for model, count in counts.items()]
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def state_of(
    host: Host,
    declared: Counts,
    found: Counts,
    grouped: Sequence[str],
    detected: Mapping[str, Any],
    models: Mapping[str, Model],
) -> tuple[str, str, str]:
    """Return the state, its reason and the action to take."""
    variables = host.variables
    conflict = _conflict(host, declared, found)
    if conflict:
        return CONFLICT, conflict, "correct the inventory or the host, then run discover.yml"
    strange = _strange(declared, models) or host.problem
    if strange:
        return UNKNOWN, strange, "correct the inventory"
    if UNKNOWN in found or UNKNOWN in grouped:
        chips = _unknown_ids(detected) or "a chip"
        return UNKNOWN, f"{chips} is in no file of the catalogue", "add the chip to a file of accelerator_catalog_path"
    stale = variables.get("accelerator_stale")
    if stale:
        return STALE, str(stale), "make it reachable, then run discover.yml"
    if found:
        return SEEN, "", ""
    if declared:
        return DECLARED, "", ""
    return UNSEEN, "no accelerator is declared or detected", "set accelerator, or run discover.yml"


def _conflict(host: Host, declared: Counts, found: Counts) -> str:
    reason = host.variables.get("accelerator_conflict")
    if reason:
        return str(reason)
    if CONFLICT_GROUP in host.groups:
        return f"it is in the group {CONFLICT_GROUP}"
    single = not declared_chips(host.variables)
    if single and len(declared) > 1:
        return "in several groups of a model: " + ", ".join(MODEL_PREFIX + name for name in declared)
    if not declared or not found or UNKNOWN in found or _agree(declared, found):
        return ""
    return f"declared {describe_counts(declared)}, found {describe_counts(found)}"


def _agree(declared: Counts, found: Counts) -> bool:
    """Return whether all declared chips were found; a single declared model must only be the leading one."""
    if CPU in declared:
        return CPU in found
    same = all(found.get(model) and count in (None, found[model]) for model, count in declared.items())
    return same and (len(declared) == 1 or set(declared) == set(found))


def _strange(declared: Counts, models: Mapping[str, Model]) -> str:
    """Return the sentence on a declared model that is not in the catalogue, "" where all are."""
    for model in declared:
        if model not in models and model != CPU:
            return f"accelerator {str(model)!r} is in no file of the catalogue; {nearest(model, [*models, CPU])}"
    return ""


def _unknown_ids(detected: Mapping[str, Any]) -> str:
    entries = detected.get("unknown")
    ids = [
        f"{entry.get('vendor_id')}:{entry.get('device_id')}"
        for entry in (entries if isinstance(entries, (list, tuple)) else [])
        if isinstance(entry, Mapping) and entry.get("device_id")
    ]
    return ", ".join(dict.fromkeys(ids))


def describe_counts(counts: Counts) -> str:
    """Return models with their numbers as a text: ``h200 x 4, l40s x 2``."""
    return ", ".join(
        model if count is None or model == CPU else f"{model} x {count}" for model, count in counts.items()
    )


def _number(value: Any) -> int | None:
    try:
        number = -1 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 10**6 else None
