# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Mapping

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import warn
from ..plugin_utils.fleet.group_check import Findings, Member, judge_all_reduce, judge_links

# What the tasks before this one have registered on each host.
LINKS, ALL_REDUCE = "__vllm_group_links", "__vllm_all_reduce"


class GroupReportError(ValueError):
    """A group cannot work; the message has a sentence for each reason."""


class ActionModule(ControllerAction):
    """Judge what the hosts of a group have found out about each other."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host, hostvars = str(variables["inventory_hostname"]), variables["hostvars"]
        found = Findings()
        for name, group in options["groups"].items():
            member = Member(name, host, group, options["port"])
            own = {each: dict(hostvars.raw_get(each)) for each in group["hosts"]}
            if options["what"] == "links":
                judged = judge_links(member, {each: _links(own[each]) for each in own}, options["fabric"])
            else:
                results = {each: _all_reduce(own[each], name) for each in own}
                judged = judge_all_reduce(member, results, options["min_gb_per_s"])
            found.errors += judged.errors
            found.warnings += judged.warnings
            found.lines += judged.lines
        for text in dict.fromkeys(found.warnings):
            warn(text)
        if found.errors:
            raise GroupReportError("; ".join(dict.fromkeys(found.errors)))
        return {"lines": list(dict.fromkeys(found.lines))}


def _links(variables: Mapping[str, Any]) -> dict[str, Any]:
    facts = variables.get("ansible_facts") or {}
    detected = facts.get("accelerator_detected")
    driver = detected.get("driver_version") if isinstance(detected, Mapping) else None
    return {**(variables.get(LINKS) or {}), "driver": driver}


def _all_reduce(variables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a host's result for one instance; that of async_status repeats the item of the first task."""
    results = (variables.get(ALL_REDUCE) or {}).get("results") or []
    found = [entry for entry in results if (entry.get("item") or {}).get("item") == name]
    result: Mapping[str, Any] = found[0] if found else {}
    return result if "problem" in result else {**result, "problem": str(result.get("msg") or "it has no result")}
