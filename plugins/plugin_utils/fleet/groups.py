# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of groups over the whole inventory: the plans of all hosts of an instance have to belong together."""

from typing import Any, Iterable, Iterator, Mapping, cast

from ...module_utils.common.kinds import show_value
from ...module_utils.vllm.plan_document import PREFILL, GroupDocument, PlanDocument

# What must be the same on every host of a group, in the order in which it is reported.
EQUAL = (
    "strategy", "accelerator", "chips", "stack", "generation", "vllm_version", "release", "runtime", "image", "recipe",
    "variant", "preset", "features", "model", "revision", "served_model_names",
)  # fmt: skip
# Arguments that say which host it is.
RANKED = ("node-rank", "data-parallel-start-rank", "headless", "api-server-count", "kv-transfer-config.engine_id")
# Variables that differ between the hosts of a group.
OWN_ENV = ("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "HCCL_IF_IP",
           "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "VLLM_NIXL_SIDE_CHANNEL_HOST", "UCX_NET_DEVICES")  # fmt: skip

Plans = Mapping[str, Mapping[str, PlanDocument]]


def group_problems(plans: Plans) -> dict[str, list[str]]:
    """Return what is wrong with groups: a sentence, and the hosts that it is about. ``plans`` are by host and instance.

    A member whose plans are missing is not judged: it is outside of this run, or its own problem is reported elsewhere.
    """
    found: dict[str, list[str]] = {}
    for host, own in plans.items():
        for name, plan in own.items():
            for text in _problems_of(host, name, plan, plans):
                found.setdefault(text, []).append(host)
    return found


def _problems_of(host: str, name: str, plan: PlanDocument, plans: Plans) -> Iterator[str]:
    group = plan.get("group")
    if group is None:
        return
    where, head = f"vllm_instances.{name}", group["hosts"][0]
    for member in group["hosts"]:
        theirs = plans[member].get(name) if member in plans else plan
        if theirs is None or "group" not in theirs:
            yield f"{where}.nodes: names {member}, which has no instance {name!r} with nodes; give it the same entry"
    reference = plans.get(head, {}).get(name)
    other = reference.get("group") if reference else None
    if reference is None or other is None or head == host:
        return
    if other["hosts"] != group["hosts"]:
        yield f"{where}.nodes: found {_listed(group['hosts'])}, and {_listed(other['hosts'])} on its head {head}"
        return
    for key, ours, theirs in _differences(plan, reference):
        yield (
            f"{where}: {key} is {show_value(ours)}, and {show_value(theirs)} on its head {head}; all hosts of a group "
            "need the same"
        )
    if group["role"] == PREFILL:
        yield from _problems_of_side(name, plan, group, plans)


def _problems_of_side(name: str, plan: PlanDocument, group: GroupDocument, plans: Plans) -> Iterator[str]:
    """Yield what differs between a prefill host and the first one: those of one side need the same arguments."""
    number = len(group["hosts"]) - len(group["prefill"])
    first = group["hosts"][number]
    reference = plans.get(first, {}).get(name)
    if reference is None:
        return
    for key, ours, theirs in _word_differences(plan, reference):
        yield (
            f"vllm_instances.{name}: {key} is {show_value(ours)}, and {show_value(theirs)} on {first}; all prefill "
            "hosts need the same"
        )


def _differences(plan: PlanDocument, head: PlanDocument) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs between a member and the head. The first that is reported usually causes the others."""
    for key in EQUAL:
        ours, theirs = cast("Any", plan).get(key), cast("Any", head).get(key)
        if key == "chips":
            ours, theirs = len(plan["chips"]), len(head["chips"])
        if ours != theirs:
            yield key, ours, theirs
            return
    mine, other = plan["group"], head["group"]
    for key in ("prefill", "port"):
        if mine[key] != other[key]:  # type: ignore[literal-required]
            yield key, mine[key], other[key]  # type: ignore[literal-required]
            return
    if mine["role"] != PREFILL:
        yield from _word_differences(plan, head)


def _word_differences(plan: PlanDocument, other: PlanDocument) -> Iterator[tuple[str, Any, Any]]:
    yield from _unequal("args", plan["args"], other["args"], RANKED)
    yield from _unequal("env", plan["env"], other["env"], OWN_ENV)


def _unequal(
    kind: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], but: Iterable[str]
) -> Iterator[tuple[str, Any, Any]]:
    for key in sorted({*ours, *theirs} - set(but)):
        if ours.get(key) != theirs.get(key):
            yield f"{kind}.{key}", ours.get(key), theirs.get(key)


def describe_absent(instances: Mapping[str, Any], present: Iterable[str]) -> list[str]:
    """Return a sentence for each group of which some hosts are not in a play; ``instances`` name their hosts."""
    here = set(present)
    nodes = {name: entry.get("nodes") or [] for name, entry in instances.items() if isinstance(entry, Mapping)}
    absent = {name: [host for host in hosts if host not in here] for name, hosts in nodes.items()}
    return [
        f"vllm_instances.{name} spans hosts that this run leaves out: {_listed(hosts)}; a group is changed as a whole, "
        "so name all of its hosts with -l, or leave -l out"
        for name, hosts in absent.items()
        if hosts
    ]


def _listed(hosts: Iterable[str]) -> str:
    return ", ".join(hosts)
