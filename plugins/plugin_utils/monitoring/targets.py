# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what Prometheus scrapes: instances, gateways and node exporters of an inventory, as files for file_sd."""

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.vllm.plan_document import INNER
from ..common.tables import by_name, hosts_in_words
from ..gateway.services import EVERYWHERE, Backend, is_loopback
from ..planning.groups import bracketed

NODE_PORT = 9100
JOBS = ("vllm", "node", "haproxy", "usage", "admission", "scale")


@dataclass(frozen=True)
class Gateway:
    """A gateway: its address as seen from Prometheus, where it serves its metrics, and which others than HAProxy's."""

    host: str
    address: str
    listen: str
    port: int
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exporter:
    """The node exporter that the role monitoring runs on a host: the address that it listens on, and its port."""

    listen: str
    port: int


@dataclass
class Targets:
    """The targets of each job, and warnings about what cannot be scraped."""

    jobs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {job: [] for job in JOBS})
    unreachable: dict[str, list[str]] = field(default_factory=dict)

    def add(self, job: str, address: str, port: int, labels: Mapping[str, str]) -> None:
        """Add a target."""
        known = {name: value for name, value in labels.items() if value}
        self.jobs[job].append({"targets": [f"{bracketed(address)}:{port}"], "labels": known})

    def warnings(self) -> list[str]:
        """Return a sentence for each reason why something is not scraped."""
        return [f"{hosts_in_words(by_name(hosts))}: {why}" for why, hosts in self.unreachable.items()]

    def files(self) -> dict[str, str]:
        """Return the text of each file, by its name; one line for each target, so that a diff shows what changed."""
        return {
            f"{job}.json": "[\n" + ",\n".join(json.dumps(entry, sort_keys=True) for entry in entries) + "\n]\n"
            for job, entries in self.jobs.items()
        }


def decide(
    backends: Sequence[Backend],
    gateways: Iterable[Gateway],
    clusters: Mapping[str, str],
    node_port: int = NODE_PORT,
    exporters: Mapping[str, Exporter] = MappingProxyType({}),
    others: Mapping[str, str] = MappingProxyType({}),
) -> Targets:
    """Return the targets of hosts with their plans, and of gateways.

    ``clusters`` has the cluster of each host. ``exporters`` are the node exporters of the role monitoring by host; a
    host that serves has one of its own otherwise. ``others`` are the addresses of hosts that have one and do not serve.
    """
    found = Targets()
    for host, address in others.items():
        _add_node(found, host, address, exporters[host], {"host": host})
    for backend in backends:
        own = {"cluster": clusters.get(backend.host, ""), "host": backend.host}
        exporter = exporters.get(backend.host) or Exporter("", node_port)
        _add_node(found, backend.host, backend.address, exporter, own)
        for name, plan in backend.plans.items():
            # A worker has no metrics, and the firewall of a group hides those of a prefill host.
            if plan.get("group", {}).get("role") in INNER:
                continue
            _add_instance(found, backend, name, plan, own)
    for gateway in gateways:
        if is_loopback(gateway.listen):
            why = "gateway_stats_listen is a loopback address, so it is not scraped; set it to an address of the host"
            found.unreachable.setdefault(why, []).append(gateway.host)
            continue
        address = gateway.address if gateway.listen in EVERYWHERE else gateway.listen
        for job in ("haproxy", *gateway.more):
            found.add(job, address, gateway.port, {"gateway": gateway.host, "instance": gateway.host})
    return found


def _add_node(found: Targets, host: str, address: str, exporter: Exporter, own: Mapping[str, str]) -> None:
    if is_loopback(exporter.listen):
        why = "monitoring_node_listen is a loopback address, so it is not scraped; set it to an address of the host"
        found.unreachable.setdefault(why, []).append(host)
        return
    found.add(
        "node", address if exporter.listen in EVERYWHERE else exporter.listen, exporter.port, {**own, "instance": host}
    )


def _add_instance(found: Targets, backend: Backend, name: str, plan: Mapping[str, Any], own: Mapping[str, str]) -> None:
    listen, port = str(plan["listen"]["host"]), int(plan["listen"]["port"])
    if is_loopback(listen):
        option = f"vllm_instances.{plan['replica_of']}.host"
        why = f"{plan['replica_of']} listens on {listen}, so it is not scraped; set {option} to an address of the host"
        found.unreachable.setdefault(why, []).append(backend.host)
        return
    labels = {
        **own,
        "instance": name,
        "service": plan["replica_of"],
        "accelerator": plan["accelerator"],
        "release": plan["vllm_version"],
    }
    if "ssl-certfile" in plan["config"]:
        labels["__scheme__"] = "https"
    found.add("vllm", backend.address if listen in EVERYWHERE else listen, port, labels)
