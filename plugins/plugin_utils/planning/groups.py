# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups: the hosts that serve one instance together, their ranks, roles, addresses and ports.

vLLM itself connects the hosts (its executor ``mp`` with --nnodes, or data parallel). A group only says who is who:
the first host of ``nodes`` is rank 0, and its address is where the others meet.
"""

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.vllm.plan_document import DECODE, PREFILL, GroupDocument
from ..common.versions import sort_key
from ..options.table import OptionTable
from .inputs import PlanError

# vLLM's own defaults, written out so that two groups of one head can be told apart.
MASTER_PORT, RPC_PORT = 29501, 29550
# The flag without which a strategy cannot span hosts.
NEEDED_FLAGS = {
    "multi_node_tp": "nnodes",
    "multi_node_tep": "nnodes",
    "multi_node_tp_pp": "nnodes",
    "multi_node_dep": "data-parallel-hybrid-lb",
    "multi_node_tp_dp": "data-parallel-start-rank",
}
MAX_PORT = 65535
EXECUTOR = "distributed-executor-backend"


@dataclass(frozen=True)
class Group:
    """The group of one instance as one of its hosts sees it; ``members`` are addresses by host, in rank order.

    ``port`` is the first of ``ports`` TCP ports. Where some hosts compute prompts for others, ``prefill`` are those
    hosts, ``serves`` is the TCP port of each vLLM, and ``transport`` a range of ports that their connector takes too.
    """

    name: str
    members: Mapping[str, str]
    rank: int
    role: str
    interface: str
    port: int
    ports: int = 1
    prefill: tuple[str, ...] = ()
    serves: int = 0
    transport: str = ""

    @property
    def address(self) -> str:
        return list(self.members.values())[self.rank]

    @property
    def disaggregated(self) -> bool:
        """Whether each host runs a whole vLLM, and some compute prompts for the others."""
        return bool(self.prefill)

    def _guarded(self) -> list[str]:
        own = [f"{self.port}-{self.port + self.ports - 1}" if self.ports > 1 else str(self.port)]
        own += [self.transport] if self.transport else []
        return [*own, str(self.serves)] if self.role == PREFILL else own

    def _watched(self) -> list[str]:
        """Return the addresses whose loss ends this side too."""
        if self.disaggregated:
            return []
        # Rank 0 has connections with all others. Those between two others come and go with the strategy.
        addresses = list(self.members.values())
        return addresses[1:] if self.rank == 0 else addresses[:1]

    def as_dict(self) -> GroupDocument:
        """Return the part of the plan that units, watchdog and firewall read."""
        addresses = list(self.members.values())
        return {
            "name": self.name,
            "hosts": list(self.members),
            "rank": self.rank,
            "role": self.role,
            "address": self.address,
            "interface": self.interface,
            "head_address": addresses[0],
            "peers": {host: addr for host, addr in self.members.items() if addr != self.address},
            "watched": self._watched(),
            "port": self.port,
            "guarded": self._guarded(),
            "prefill": [f"{bracketed(self.members[host])}:{self.serves}" for host in self.prefill],
        }


def role_of(strategy: str, rank: int) -> str:
    """Return ``peer`` if each host has its own API server, else ``head`` or ``worker``."""
    if strategy == "multi_node_dep":
        return "peer"
    return "worker" if rank else "head"


def port_of(strategy: str, requested: Mapping[str, Any]) -> int:
    """Return the TCP port of the first host at which the others meet it."""
    default = MASTER_PORT if NEEDED_FLAGS.get(strategy) == "nnodes" else RPC_PORT
    return int(requested.get("group_port", default))


def bracketed(address: str) -> str:
    """Return an address as it stands before a port."""
    return f"[{address}]" if ":" in address else address


def group_of(
    host: str, name: str, requested: Mapping[str, Any], strategy: str, places: Mapping[str, Mapping[str, str]]
) -> Group | None:
    """Return the group of an instance, None where it has one host.

    ``places`` holds address and interface of each member in the network of the groups. Raises PlanError.
    """
    nodes = list(requested.get("nodes") or [])
    if len(nodes) < 2:
        return None
    where = f"vllm_instances.{name}.nodes"
    unknown = [node for node in nodes if node not in places]
    if unknown:
        raise PlanError(
            f"{where}: no address of {', '.join(unknown)} is known; set vllm_cluster_network to the network that the "
            "hosts of a group share, such as 10.20.0.0/24"
        )
    members = {node: places[node]["address"] for node in nodes}
    if len(set(members.values())) < len(nodes):
        found = ", ".join(f"{node} {address}" for node, address in members.items())
        raise PlanError(f"{where}: two hosts have the same address ({found}); expected one address for each")
    rank = nodes.index(host)
    interface = places[host]["interface"]
    return Group(name, members, rank, role_of(strategy, rank), interface, port_of(strategy, requested))


def check_spanning(strategy: str, table: OptionTable, others: Sequence[OptionTable], release: str, where: str) -> None:
    """Raise PlanError where a release cannot span hosts with a strategy; the error names the first one that can."""
    flag = NEEDED_FLAGS.get(strategy)
    if flag is None or table.canonical(flag):
        return
    able = sorted((each.version for each in others if each.canonical(flag)), key=sort_key)
    way_out = f"choose vllm_release {able[0]!r} or newer" if able else "choose another strategy"
    raise PlanError(
        f"{where}.strategy: {strategy} needs --{flag}, which vLLM {table.version} (release {release!r}) does not have; "
        f"{way_out}. Ray, which older releases need for it, is not set up by this collection"
    )


def check_executor(args: Mapping[str, Any], where: str) -> None:
    """Raise PlanError for an executor that does not span hosts by vLLM's own means."""
    for name in (EXECUTOR, "data-parallel-backend"):
        found = args.get(name)
        if found in (None, "mp"):
            continue
        raise PlanError(
            f"{where}.args.{name}: found {show_value(found)}, expected 'mp' for an instance with nodes: since 0.13 "
            "vLLM spans hosts by itself, and Ray would be a second cluster without a password that fails in the same "
            "way; leave it out"
        )


def environment(group: Group, stack: str, fabric: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that keep vLLM's traffic between hosts in the network of the group.

    Without them vLLM takes the address of the default route, which on servers is the public or management one.
    """
    env = {"VLLM_HOST_IP": group.address, "GLOO_SOCKET_IFNAME": group.interface}
    if stack == "cann":
        env |= {
            "HCCL_IF_IP": group.address,
            "HCCL_SOCKET_IFNAME": group.interface,
            "TP_SOCKET_IFNAME": group.interface,
        }
    elif stack in ("cuda", "rocm"):
        # RCCL reads NCCL's names.
        env["NCCL_SOCKET_IFNAME"] = group.interface
        if fabric.get("hca"):
            env["NCCL_IB_HCA"] = ",".join(map(str, fabric["hca"]))
        if fabric.get("gid_index") is not None:
            env["NCCL_IB_GID_INDEX"] = str(fabric["gid_index"])
    return env


def check_router_ports(groups: Mapping[str, GroupDocument], taken: Mapping[int, str]) -> None:
    """Raise PlanError where a port of a router is a port of something else on its host."""
    used = dict(taken)
    for name, group in groups.items():
        first, _dash, last = group["guarded"][0].partition("-")
        used.update(dict.fromkeys(range(int(first), int(last or first) + 1), f"vllm_instances.{name}.group_port"))
    for name, group in groups.items():
        router = group.get("router")
        for port in (router["port"], router["metrics"]) if router else ():
            where = f"vllm_instances.{name}.router_port"
            if port > MAX_PORT or port in used:
                found = f"is a port of {used[port]} too" if port in used else f"is beyond {MAX_PORT}"
                raise PlanError(
                    f"{where}: the router needs this port and the next one, and {port} {found}; set another router_port"
                )
            used[port] = where


def check_group_ports(groups: Mapping[str, GroupDocument], taken: Mapping[int, str]) -> None:
    """Raise PlanError where the port of a group collides on its first host; ``taken`` says who has a port."""
    used = dict(taken)
    for name, group in groups.items():
        own = f"vllm_instances.{name}"
        # The first of them; the others are the ports after it.
        first, _dash, last = group["guarded"][0].partition("-")
        for port in range(int(first), int(last or first) + 1):
            other = used.setdefault(port, own)
            if (group["rank"] == 0 or group["role"] in (PREFILL, DECODE)) and other != own:
                raise PlanError(
                    f"{own}.group_port: {port}, at which its hosts meet, is a port of {other} too; set another "
                    f"group_port on all hosts of {own}"
                )


def note_other_groups(groups: Mapping[str, GroupDocument]) -> None:
    """Note in each group of a host the hosts of the others: the kernel gives all groups ports of one range."""
    members = {name: {group["address"], *group["peers"].values()} for name, group in groups.items()}
    for name, group in groups.items():
        others = set().union(*members.values()) - members[name]
        if others:
            group["beside"] = sorted(others)
