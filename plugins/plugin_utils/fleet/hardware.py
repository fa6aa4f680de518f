# SPDX-License-Identifier: GPL-3.0-or-later
"""Which accelerator a host has: facts from its variables, its groups or an earlier detection."""

import re
from dataclasses import replace
from typing import Any, Callable, Mapping

from ...module_utils.accelerator.recognition import CPU, NUMBERED, UNKNOWN, AcceleratorError, Catalogue
from ...module_utils.common.foreign_numbers import read_finite
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..catalog.accelerators import count_problem, declared_accelerator
from ..common.group_names import MODEL_PREFIX as GROUP
from ..common.group_names import known_groups, models_of_groups, unknown_groups
from ..common.option_contents import ContentError, check_contents
from ..planning.hardware import FACTS, HOST_FACTS, Accelerator
from .host_reader import FleetError, Variables


def accelerator_of(facts: Mapping[str, Any], catalogue: Catalogue) -> Accelerator:
    """Return the accelerator that facts of a host describe.

    Raises AcceleratorError for one that cannot serve, and for one beside others whose places nobody has read.
    ``facts`` has the shape of the fact accelerator_detected: ``model``, ``count``, ``memory_mib`` (one chip's, on a CPU
    the host's), ``driver_version``, ``cuda_version``, ``mec_firmware``, ``partition``, ``pythons``, ``rdma``, ``cpu``,
    ``models`` and ``numbers``. All but model and count may be missing or None; other keys are ignored.
    """
    memory_mib = facts.get("memory_mib")
    found = declared_accelerator(
        catalogue,
        str(facts["model"]),
        int(facts["count"]),
        None if memory_mib is None else memory_mib / 1024,
        {name: facts.get(name) for name in (*FACTS, *HOST_FACTS)},
    )
    if problem := unnumbered(facts, catalogue):
        raise AcceleratorError(problem)
    numbers = (facts.get("numbers") or {}).get(found.model)
    return replace(found, numbers=tuple(numbers)) if numbers else found


def unnumbered(facts: Mapping[str, Any], catalogue: Catalogue) -> str:
    """Return why the chips of a host beside others of the vendor cannot be told apart by numbers, "" where they can.

    ``facts`` are those of accelerator_of.
    """
    model, models = str(facts["model"]), facts.get("models") or {}
    stack = catalogue.models[model].stack if model in catalogue.models else CPU
    known = [key for key in models if key in catalogue.models]
    others = [key for key in known if key != model and catalogue.models[key].stack == stack]
    numbers = (facts.get("numbers") or {}).get(model)
    if numbers is None and not others:
        return ""
    beside = f"accelerator: the host has {' and '.join(others) or 'other chips'} beside {model}"
    if stack not in NUMBERED:
        return f"{beside}, and nothing says how its driver numbers chips of several models; keep one model in the host"
    valid = isinstance(numbers, list) and all(
        isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers
    )
    if valid and len(numbers or ()) == facts["count"]:
        return ""
    return (
        f"{beside}, so the numbers of its {facts['count']} x {model} depend on the PCI addresses of all of them, which "
        "were not read; run playbooks/discover.yml (docs/operate/discovery.md), or the role accelerator once with a "
        "fact cache"
    )


def hardware_facts(variables: Variables, catalogue: Catalogue) -> dict[str, Any]:
    """Return the facts of a host's accelerator, as far as they are known without asking the host.

    The host's own variables come first, then a group that names a model, then cached facts. Raises FleetError if none
    of them names it.
    """
    detected = variables.get("accelerator_detected") or {}
    model = variables.get("accelerator") or _model_of_groups(variables, catalogue, detected.get("model"))
    if not model:
        raise FleetError(
            "the accelerator is unknown: set accelerator and accelerator_count for the host in the inventory, or put "
            f"the host into a group {GROUP}<model> such as {GROUP}h200 and set accelerator_count, or run "
            "playbooks/discover.yml without --check (docs/operate/discovery.md), or the role accelerator once with a "
            "fact cache (accelerator_detected)"
        )
    models = detected.get("models") or {}
    if model not in models:  # what was found is of another time
        models = _declared_kinds(variables)
    seen = detected if detected.get("model") == model else {"count": models.get(model) or 1}
    count = _number("accelerator_count", variables.get("accelerator_count", seen.get("count", 1)), int)
    if variables.get("accelerator_count") is not None and (problem := count_problem(catalogue, model, count)):
        raise FleetError(f"accelerator_count: {problem}")
    memory_mib = seen.get("memory_mib")
    if variables.get("accelerator_memory_gib") is not None:
        memory_mib = _number("accelerator_memory_gib", variables["accelerator_memory_gib"], float) * 1024
    facts = {name: variables.get(f"accelerator_{name}", seen.get(name)) for name in FACTS}
    for name in ("accelerator_cuda_version", "accelerator_driver_version"):
        found = facts[name.removeprefix("accelerator_")]
        try:
            check_contents(name, "" if found is None else found)
        except ContentError as exc:
            raise FleetError(str(exc)) from exc
    # Facts that do not depend on the chips are valid even if the inventory declares other chips than those found.
    facts.update({name: detected.get(name) for name in HOST_FACTS})
    return {
        "model": str(model),
        "count": count,
        "memory_mib": memory_mib,
        **facts,
        "models": models,
        "numbers": detected.get("numbers"),
    }


def _declared_kinds(variables: Variables) -> Mapping[str, Any]:
    """Return the models that a host declares with ``accelerators``, a mapping or a text such as h200:4 l40s:2."""
    declared = variables.get("accelerators") or {}
    return declared if isinstance(declared, Mapping) else dict.fromkeys(re.findall(r"\b(\w+):", str(declared)))


def has_numbers(variables: Variables, catalogue: Catalogue) -> bool:
    """Return whether the numbers of a host's chips follow from its variables; true where these are wrong."""
    try:
        return not unnumbered(hardware_facts(variables, catalogue), catalogue)
    except FleetError:
        return True


def count_note(variables: Variables, facts: Mapping[str, Any]) -> str:
    """Return a warning if the number of a host's chips is unknown, so that its plans assume one; else ""."""
    detected = variables.get("accelerator_detected") or {}
    found = {detected.get("model"), *(detected.get("models") or ())}
    counted = variables.get("accelerator_count") is not None or facts["model"] in found
    if counted or facts["model"] == CPU:
        return ""
    return (
        f"accelerator_count is not set, so the plan is for one {facts['model']}; set it to the number of chips that "
        "the host has"
    )


def names_count(variables: Variables) -> bool:
    """Return whether the variables declare model and number of a host's chips; a CPU has no number."""
    return variables.get("accelerator") == CPU or variables.get("accelerator_count") is not None


def check_groups(variables: Variables, catalogue: Catalogue) -> None:
    """Raise FleetError for a group such as accel_b20: its group_vars would not apply as the user expects."""
    groups = unknown_groups(variables.get("group_names") or [], catalogue.models)
    if groups:
        raise FleetError(
            f"the group {groups[0]} names no accelerator of the catalogue; "
            f"{nearest(groups[0], known_groups(catalogue.models))}"
        )


def has_accelerator(variables: Variables) -> bool:
    """Return whether variables, groups or an earlier detection give a host chips to serve on; a CPU does not count.

    A host that is in ``mirrors`` or ``gateways`` and not in ``inference`` serves nothing, even if it has chips.
    """
    groups = set(variables.get("group_names") or [])
    if "inference" not in groups and groups & {"mirrors", "gateways"}:
        return False
    named = {variables.get("accelerator"), (variables.get("accelerator_detected") or {}).get("model")}
    named |= {name[len(GROUP) :] for name in groups if name.startswith(GROUP)}
    return bool(named - {None, CPU})


def _model_of_groups(variables: Variables, catalogue: Catalogue, detected: str | None) -> str | None:
    """Return the model that a host's groups name, else the detected one, which also leads among several."""
    models = models_of_groups(variables.get("group_names") or [], catalogue.models)
    if models == [UNKNOWN]:
        raise FleetError(f"the host is in the group {GROUP}{UNKNOWN}: set accelerator for it in the inventory")
    if detected in models or not models:
        return detected
    if len(models) > 1:
        raise FleetError(
            f"the host is in several groups that name a model: {', '.join(GROUP + name for name in models)}; "
            "keep it in one of them, or set accelerator for it in the inventory"
        )
    return models[0]


def _number(name: str, value: Any, kind: Callable[[Any], Any]) -> Any:
    number = None if isinstance(value, bool) else read_finite(str(value))
    if number is None or kind(number) <= 0:
        raise FleetError(f"{name}: found {show_value(value)}, expected a number above 0")
    return kind(number)
