# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a whole fleet, made on the controller: no host is contacted, and equal hosts share one plan.

The plans follow from each host's variables in Ansible, with the role's own defaults below them.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Callable, Container, Iterable, Mapping, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ...module_utils.accelerator.recognition import AcceleratorError, Catalogue
from ...module_utils.vllm.plan_document import PlanDocument
from ..catalog.accelerators import load_catalogue
from ..common.places import listed, misplaced
from ..common.tables import by_name, hosts_in_words
from ..options.table import OptionTableError
from ..planning.hardware import Accelerator
from ..planning.inputs import PlanError
from .groups import group_problems
from .hardware import (
    accelerator_of,
    check_groups,
    count_note,
    hardware_facts,
    has_accelerator,
    has_numbers,
    names_count,
)
from .host_reader import SECRETS, SETTING_VARIABLES, FleetError, HostReader, UnrenderedError, argument_spec
from .ports import clashes
from .secret_names import check_secret_names

Variables = Mapping[str, Any]
Planner = Callable[[str, Accelerator, Mapping[str, Any]], Mapping[str, PlanDocument]]


@dataclass(frozen=True)
class Alike:
    """Hosts whose plans differ only in the host's name, with the variables of the plans.

    ``notes`` are warnings about the hosts, beside those of their plans.
    """

    hosts: list[str]
    plans: Mapping[str, PlanDocument]
    variables: Variables
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Skipped:
    """Hosts without instances; ``idle`` is true if they have an accelerator, so something should probably run there."""

    idle: bool


@dataclass
class Fleet:
    """The plans of all hosts; ``problems`` maps a sentence to its hosts."""

    groups: list[Alike] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def check(self, consequence: str) -> None:
        """Raise FleetError with all problems of all hosts; ``consequence`` names what was not done because of them."""
        if not self.problems:
            return
        hosts = {host for names in self.problems.values() for host in names}
        # Hosts without instances have no plans, and hosts with one may have a problem beside it.
        total = len(hosts.union(*(group.hosts for group in self.groups)))
        lines = [f"{hosts_in_words(by_name(names))}: {text}" for text, names in self.problems.items()]
        raise FleetError(f"{consequence}: {len(hosts)} of {total} hosts cannot be planned.\n" + "\n".join(lines))

    def forget(self, groups: Mapping[str, Iterable[str]]) -> None:
        """Leave gateways and mirrors out of ``skipped``: without instances they are there for something else."""
        others = {*groups.get("gateways", ()), *groups.get("mirrors", ())}
        self.skipped[:] = [host for host in self.skipped if host not in others]

    def check_instances(self, reader: HostReader) -> None:
        """Raise FleetError where no host of the inventory declares instances, and some should.

        Their file may be empty, or have a name that Ansible does not read.
        """
        if self.idle and not self.groups and not reader.declares_instances(reader.all_hosts(self.idle[0])):
            raise FleetError(self.idle_notes()[0])

    def plans(self) -> list[dict[str, Any]]:
        """Return each distinct plan once, with ``hosts`` in place of ``host``."""
        return [
            {"hosts": group.hosts, **{key: value for key, value in plan.items() if key != "host"}}
            for group in self.groups
            for plan in group.plans.values()
        ]

    def notes(self, sources: Iterable[Any] = (), shown: Container[str] = ()) -> list[str]:
        """Return a note on hosts without instances, and the warnings of variables, plans and inventory ``sources``.

        The warnings of plans in ``shown`` are left out.
        """
        about = {text: list(dict.fromkeys(hosts)) for text, hosts in self.warnings.items()}
        for group in self.groups:
            for text in group.notes:
                about.setdefault(text, []).extend(group.hosts)
            for plan in group.plans.values():
                for text in (text for text in plan.get("warnings") or [] if text not in shown):
                    known = about.setdefault(text, [])
                    known += [host for host in group.hosts if host not in known]
        quiet = [host for host in self.skipped if host not in self.idle]
        skipped = [f"skipped because vllm_instances is empty: {hosts_in_words(by_name(quiet))}"] if quiet else []
        places = dict.fromkeys(text for group in self.groups for text in misplaced(group.variables, sources))
        told = [f"{hosts_in_words(by_name(hosts))}: {text}" for text, hosts in about.items()]
        return [*self.idle_notes(), *skipped, *places, *told]

    def idle_notes(self) -> list[str]:
        """Return a warning about the hosts that have an accelerator and nothing to serve."""
        if not self.idle:
            return []
        hosts = hosts_in_words(by_name(self.idle))
        return [
            f"{hosts}: the host has an accelerator and no vllm_instances, so nothing will be "
            "served on it; set vllm_instances, or check that the host is in the group whose group_vars have it"
        ]


def plan_fleet(hosts: Sequence[str], reader: HostReader, planner: Planner) -> Fleet:
    """Return the plans of ``hosts``. Each different set of variables is planned once; all problems are collected."""
    fleet = Fleet(warnings=reader.warnings)
    alike: dict[Any, Alike | Skipped | str] = {}
    for host in hosts:
        try:
            key: Any = reader.read(host)
        except FleetError as exc:
            fleet.problems.setdefault(str(exc), []).append(host)
            continue
        key = (host, key) if '"nodes"' in dict(key)["vllm_instances"] else key
        if key in alike:
            found = alike[key]
        else:
            found = alike[key] = _planned(host, {name: json.loads(text) for name, text in _pairs(key)}, planner, reader)
            if isinstance(found, Alike):
                fleet.groups.append(found)
        if isinstance(found, Alike):
            found.hosts.append(host)
            for text in clashes(found.plans, reader.ports[host]):
                fleet.problems.setdefault(text, []).append(host)
        elif isinstance(found, Skipped):
            fleet.skipped.append(host)
            fleet.idle += [host] if found.idle else []
        else:
            fleet.problems.setdefault(found, []).append(host)
    spanning = [group for group in fleet.groups if any("group" in plan for plan in group.plans.values())]
    if spanning:
        plans = {host: group.plans for group in fleet.groups for host in group.hosts}
        for text, about in group_problems(plans).items():
            fleet.problems.setdefault(text, []).extend(about)
    for text, about in reader.shared_servers():
        fleet.problems.setdefault(text, []).extend(about)
    fleet.problems = reader.located(fleet.problems)
    return fleet


def plan_declared(hosts: Sequence[str], reader: HostReader, planner: Planner) -> Fleet:
    """Return the plans of those hosts whose hardware is declared, with the problems of all that could be read.

    A host whose variables need its facts, or whose number of chips is not declared, can be planned only after it was
    contacted; it is in none of the lists, unless it has no instances.
    """
    declared: list[str] = []
    problems: dict[str, list[str]] = {}
    alike: dict[Any, bool | str] = {}
    for host in hosts:
        try:
            key = reader.read(host)
        except UnrenderedError:
            continue
        except FleetError as exc:
            problems.setdefault(str(exc), []).append(host)
            continue
        if key not in alike:
            alike[key] = _can_be_planned({name: json.loads(text) for name, text in key})
        found = alike[key]
        if isinstance(found, str):
            problems.setdefault(found, []).append(host)
        elif found:
            declared.append(host)
    fleet = plan_fleet(declared, reader, planner)
    fleet.problems = {**reader.located(problems), **fleet.problems}
    return fleet


def _can_be_planned(variables: Variables) -> bool | str:
    """Return whether a host's plans follow from its variables alone, or a sentence if its groups are wrong.

    This is also true for a host without instances, which has no plans. The plans of a host with chips of several models
    need their numbers, which only a detection finds.
    """
    try:
        catalogue = _catalogue(variables)
        check_groups(variables, catalogue)
    except (FleetError, AcceleratorError) as exc:
        return str(exc)
    named = "accelerator" in variables and names_count(variables) and has_numbers(variables, catalogue)
    return not variables["vllm_instances"] or named


def _pairs(key: Any) -> Iterable[tuple[str, str]]:
    # An instance that spans hosts is planned for each of them.
    pairs: Iterable[tuple[str, str]] = key[1] if isinstance(key[0], str) else key
    return pairs


def _planned(host: str, variables: dict[str, Any], planner: Planner, reader: HostReader) -> Alike | Skipped | str:
    """Return the plans for one set of variables, or a sentence on why it cannot be planned."""
    try:
        catalogue = _catalogue(variables)
        check_groups(variables, catalogue)
        if not variables["vllm_instances"]:
            return Skipped(has_accelerator(variables))
        facts = hardware_facts(variables, catalogue)
        accelerator = accelerator_of(facts, catalogue)
        settings = {name: value for name, value in _checked(variables).items() if name != SECRETS}
        asked = {key: settings[name] for key, name in SETTING_VARIABLES.items() if name in settings}
        plans = planner(host, accelerator, {**asked, "secrets": variables[SECRETS]})
        check_secret_names(variables[SECRETS], settings["vllm_instances"], reader, reader.all_hosts(host))
    except (PlanError, AcceleratorError, OptionTableError, FleetError) as exc:
        return str(exc)
    note = count_note(variables, facts)
    return Alike([], plans, settings, [note] if note else [])


def _catalogue(variables: Variables) -> Catalogue:
    return load_catalogue(listed(variables.get("accelerator_catalog_path")))


def _checked(variables: dict[str, Any]) -> dict[str, Any]:
    """Return variables converted by the role's own argument spec: numbers from texts, expanded paths."""
    spec = argument_spec()
    names = [name for name in variables if name in spec and name != "vllm_instances"]
    result = ArgumentSpecValidator({name: spec[name] for name in names}).validate(
        {name: variables[name] for name in names}
    )
    if result.error_messages:
        raise FleetError("; ".join(result.error_messages))
    return {**variables, **result.validated_parameters}
