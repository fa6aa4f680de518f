# SPDX-License-Identifier: GPL-3.0-or-later
"""Add to the lines of a fleet which release of vLLM each host has installed, and where that differs from the plan."""

import re
from dataclasses import replace
from typing import Any, Iterable, Mapping

from .chips import DRIFTED, STATES
from .lines import Line

# Results of instance_slot without an instance, by host; a host that was not read has no ``instances``.
Installed = Mapping[str, Mapping[str, Any]]
TODO = "update it with rollout.yml or site.yml"


def with_versions(lines: Iterable[Line], installed: Installed) -> list[Line]:
    """Return the lines with the installed releases, and the state drifted where these or the files are not as planned.

    A host keeps a worse state that it has already, and has both reasons.
    """
    return [_with_versions(line, installed.get(line.host, {})) for line in lines]


def _with_versions(line: Line, result: Mapping[str, Any]) -> Line:
    instances = result.get("instances")
    if not isinstance(instances, Mapping):
        return line
    releases = {name: release_of(entry) for name, entry in sorted(instances.items()) if entry.get("installed")}
    facts = [f"{name} has vLLM {release}" for name, release in releases.items() if release]
    planned = dict(line.planned)
    problems = [
        f"{name}: {problem}"
        for name, entry in sorted(instances.items())
        if entry.get("installed")
        and (problem := _problem(entry, releases[name], planned.get(_declared(name, planned), "")))
    ]
    problems += [f"{name}: is not installed" for name in planned if name not in releases]
    line = replace(line, facts=(*line.facts, *facts))
    if not problems:
        return line
    why = "; ".join(problems)
    if STATES.index(line.state) < STATES.index(DRIFTED):
        return replace(line, why=f"{line.why}; {why}")
    return replace(line, state=DRIFTED, why=f"{why}; {line.why}" if line.why else why, todo=TODO)


def release_of(entry: Mapping[str, Any]) -> str:
    """Return the release that an instance has installed; "" where its files are none of its kept states."""
    digest = entry.get("digest")
    for slot in entry.get("slots") or ():
        plan = slot.get("plan") or {}
        if digest and slot.get("digest") == digest:
            return str(plan.get("release") or plan.get("vllm_version") or "")
    return ""


def _declared(name: str, planned: Mapping[str, str]) -> str:
    """Return the instance of the inventory that an installed one is a copy of, such as chat for chat-2."""
    return name if name in planned else re.sub(r"-[0-9]+\Z", "", name)


def _problem(entry: Mapping[str, Any], release: str, planned: str) -> str:
    if release and planned and release != planned:
        return f"vLLM {release} is installed, {planned} is planned"
    good = entry.get("good") or {}
    if good and good.get("digest") != entry.get("digest"):
        return "its files differ from its last good state"
    return "it runs with older files than those installed" if entry.get("stale") else ""
