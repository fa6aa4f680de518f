# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe each host in one line from its variables: its chips, and how certain they are. No value raises an error."""

import re
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.accelerator.recognition import CPU, UNKNOWN, Model
from ..common.clusters import ClusterError, cluster_of, one_spelling
from ..common.group_names import SITE_PREFIX, models_of_groups
from .chips import STATES, UNSEEN, Host, counted_chips, declared_chips, describe_counts, found_chips, state_of

# The variables that a line is computed from.
VARIABLES = (
    "accelerator", "accelerator_count", "accelerators", "cluster", "site", "accelerator_detected",
    "accelerator_discovered_at", "accelerator_stale", "accelerator_conflict", "accelerator_mixed", "vllm_instances",
    "vllm_release", "site_health",
)  # fmt: skip

# Facts about a host's hardware besides its models, with their labels.
FACTS = {"driver_version": "driver", "compute_capability": "compute capability", "mec_firmware": "MEC firmware"}

# Hosts of these groups that serve nothing have no accelerators to report.
WITHOUT_ACCELERATORS = ("gateways", "mirrors")
SERVING_GROUP = "inference"


@dataclass(frozen=True)
class Line:
    """The known state of one host.

    ``chips`` are its models with their numbers, the most numerous first; empty where nothing is known. ``declared`` and
    ``found`` describe the sources in words, ``facts`` the other findings. ``why`` is the reason of the state, ``todo``
    the action to take. ``seen_at`` is when the host last answered, in seconds since 1970. ``serves`` pairs the names of
    instances with their recipes, "" where these are not plain text. An instance that spans several hosts has the others
    as a third text. ``planned`` pairs them with the release of vLLM in the inventory, "" for none or a template;
    ``answers`` with the names by which clients call the model. ``has_health`` is true where the site has the health
    service on the host.
    """

    host: str
    site: str
    cluster: str
    chips: tuple[tuple[str, int], ...]
    state: str
    why: str = ""
    todo: str = ""
    declared: str = ""
    found: str = ""
    facts: tuple[str, ...] = ()
    seen_at: int | None = None
    serves: tuple[tuple[str, ...], ...] = ()
    planned: tuple[tuple[str, str], ...] = ()
    answers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    has_health: bool = False

    @property
    def kind(self) -> str:
        """Return the accelerators without their numbers; "" where none is known."""
        return " + ".join(model for model, _count in self.chips)

    @property
    def count(self) -> int:
        """Return the number of chips; a processor does not count."""
        return sum(count for model, count in self.chips if model != CPU)


def fleet_lines(hosts: Iterable[Host], models: Mapping[str, Model]) -> list[Line]:
    """Return a line for each host but gateways and mirrors, by site, cluster, accelerator and name.

    Numbers in names sort as numbers.
    """
    pairs = [(host, line_of(host, models)) for host in hosts]
    lines = [line for host, line in pairs if not is_service(host, line)]
    spelling = one_spelling(line.cluster for line in lines)
    lines = [
        line if spelling[line.cluster] == line.cluster else replace(line, cluster=spelling[line.cluster])
        for line in lines
    ]
    return sorted(
        lines,
        key=lambda line: (
            _natural(line.site), _natural(line.cluster), not line.chips, _kind_order(line, models), _natural(line.host),
        ),
    )  # fmt: skip


def line_of(host: Host, models: Mapping[str, Model]) -> Line:
    """Return the line of one host. Raises nothing: an invalid value becomes the reason of the state."""
    variables = host.variables
    detected = variables.get("accelerator_detected")
    detected = detected if isinstance(detected, Mapping) else {}
    found = found_chips(detected)
    declared = declared_chips(variables)
    grouped = models_of_groups(host.groups, models)
    if not declared and not set(grouped) & set(found):
        # A group of a model declares it, except the group that discovery put the host into.
        declared = {model: None for model in grouped if model != UNKNOWN}
    cluster, doubt = _cluster(variables.get("cluster"), host.groups)
    if doubt:
        host = host._replace(problem="; ".join(filter(None, (host.problem, doubt))))
    planned = _planned(variables.get("vllm_instances"), variables.get("vllm_release"))
    state, why, todo = state_of(host, declared, found, grouped, detected, models)
    return Line(
        host=host.name,
        site=_place(variables.get("site"), host.groups, SITE_PREFIX),
        cluster=cluster,
        chips=counted_chips(declared, found, grouped),
        state=state,
        why=why,
        todo=todo,
        declared=describe_counts(declared),
        found=describe_counts(found),
        facts=(*_facts(detected), *_releases(planned)),
        seen_at=seconds_of(variables.get("accelerator_discovered_at")),
        serves=_serves(variables.get("vllm_instances"), host.name),
        planned=planned,
        answers=_answers(variables.get("vllm_instances")),
        has_health=str(variables.get("site_health")).lower() in ("true", "yes", "on", "1"),
    )


def is_service(host: Host, line: Line) -> bool:
    """Return whether a host is a gateway or a mirror that serves no model, of whose chips nothing is known."""
    served = line.serves or SERVING_GROUP in host.groups
    return line.state == UNSEEN and not served and any(group in host.groups for group in WITHOUT_ACCELERATORS)


def totals(lines: Sequence[Line]) -> dict[str, Any]:
    """Return the totals of the fleet; a host with two models counts under both of them."""
    accelerators: dict[str, dict[str, int]] = {}
    for line in lines:
        for model, count in line.chips:
            entry = accelerators.setdefault(model, {"hosts": 0, "chips": 0})
            entry["hosts"] += 1
            entry["chips"] += 0 if model == CPU else count
    return {
        "hosts": len(lines),
        "chips": sum(line.count for line in lines),
        "sites": len({line.site for line in lines if line.site}),
        "clusters": len({(line.site, line.cluster) for line in lines if line.cluster}),
        "states": {state: sum(line.state == state for line in lines) for state in STATES},
        "accelerators": {key: accelerators[key] for key in sorted(accelerators)},
    }


# Helpers.


def seconds_of(time: Any) -> int | None:
    """Return a time like 2026-11-21T14:40:00Z in seconds since 1970; None for any other value."""
    try:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", str(time)))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return int(moment.timestamp())
    except (ValueError, OverflowError):
        return None


def _facts(detected: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the findings besides models and numbers, in words."""
    memory = detected.get("memory_mib")
    facts = []
    if isinstance(memory, (int, float)) and memory > 0:
        facts.append(f"{memory / 1024:.0f} GiB" + ("" if detected.get("model") == CPU else " each"))
    for key, words in FACTS.items():
        if detected.get(key) is not None:
            facts.append(f"{words} {detected[key]!s}")
    return tuple(facts)


def _serves(instances: Any, host: str) -> tuple[tuple[str, ...], ...]:
    if not isinstance(instances, Mapping):
        return ()
    entries = {str(name): entry if isinstance(entry, Mapping) else {} for name, entry in instances.items()}
    return tuple(_served(name, entry, host) for name, entry in sorted(entries.items()))


def _planned(instances: Any, release: Any) -> tuple[tuple[str, str], ...]:
    """Return the instances with the release of each: its own, else the host's."""
    if not isinstance(instances, Mapping):
        return ()
    named = {
        str(name): entry.get("release") or release if isinstance(entry, Mapping) else release
        for name, entry in sorted(instances.items(), key=lambda pair: str(pair[0]))
    }
    return tuple((name, _plain_release(value)) for name, value in named.items())


def _answers(instances: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the instances with the names of each: its own, else its recipe's."""
    if not isinstance(instances, Mapping):
        return ()
    entries = {str(name): entry for name, entry in instances.items() if isinstance(entry, Mapping)}
    listed = {name: entry.get("served_model_names") or [entry.get("recipe")] for name, entry in entries.items()}
    return tuple(
        (name, tuple(each for each in names if isinstance(each, str)) if isinstance(names, (list, tuple)) else ())
        for name, names in sorted(listed.items())
    )


def _plain_release(value: Any) -> str:
    text = str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
    return "" if "{" in text else text


def _releases(planned: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the planned releases in words: once where all instances have the same."""
    releases = dict.fromkeys(release for _name, release in planned if release)
    if len(releases) == 1:
        return (f"vLLM {next(iter(releases))} planned",)
    return tuple(f"{name}: vLLM {release} planned" for name, release in planned if release)


def _served(name: str, entry: Mapping[str, Any], host: str) -> tuple[str, ...]:
    recipe, nodes = entry.get("recipe"), entry.get("nodes")
    named = [str(each) for each in nodes] if isinstance(nodes, (list, tuple)) else []
    others = [each for each in named if each != host]
    return (name, recipe if isinstance(recipe, str) else "", *([", ".join(others)] if others else []))


def _cluster(value: Any, groups: Sequence[str]) -> tuple[str, str]:
    """Return the name of the cluster, and the problem where variable and groups disagree."""
    named = value if isinstance(value, (str, int)) else None
    try:
        return cluster_of(named, groups), ""
    except ClusterError as exc:
        return cluster_of(named, ()), str(exc)


def _place(value: Any, groups: Sequence[str], prefix: str) -> str:
    """Return the name of a site or a cluster: from the variable, else from a group."""
    if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
        return str(value)
    return min((group[len(prefix) :] for group in groups if group.startswith(prefix)), default="")


def _natural(text: str) -> tuple[Any, ...]:
    """Return a key that sorts gpu-2 before gpu-10."""
    parts = re.split("([0-9]+)", text)
    return tuple(
        (len(part.lstrip("0")), part.lstrip("0"), part) if index % 2 else part for index, part in enumerate(parts)
    )


def _kind_order(line: Line, models: Mapping[str, Model]) -> tuple[str, ...]:
    """Return a key that sorts accelerators by vendor and generation, and hosts without any last."""
    model = line.chips[0][0] if line.chips else ""
    known = models.get(model)
    return (known.vendor, known.generation, line.kind) if known else ("~", "", line.kind)
