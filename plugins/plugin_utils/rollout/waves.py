# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a rollout updates, and in which waves."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..common.tables import hosts_in_words
from ..common.wave_sizes import WaveSizeError, size_of

CLUSTERS, TOGETHER = "clusters", "together"


class RolloutError(ValueError):
    """The requested rollout is not possible; the message has a line for each problem."""


@dataclass(frozen=True)
class Serving:
    """A host of a cluster with the service of each of its instances, whether the rollout changes it or not."""

    host: str
    cluster: str
    services: Sequence[str]


@dataclass(frozen=True)
class Concerned:
    """A host to change. ``interrupted``: the rollout that was interrupted while it updated the host, empty for none."""

    host: str
    cluster: str
    interrupted: str = ""


@dataclass(frozen=True)
class Pace:
    """The wave sizes of a cluster: of its first wave, and of the others as numbers or shares such as ``25%`` of the
    hosts to change (the last one repeats); and the servers of each service that must stay in service."""

    canaries: int = 1
    waves: Sequence[Any] = ("25%",)
    min_available: int = 1


@dataclass
class Wave:
    """Hosts that are updated at the same time, by cluster; any failure in a ``canary`` wave stops the rollout."""

    canary: bool
    hosts: dict[str, list[str]] = field(default_factory=dict)

    def all_hosts(self) -> list[str]:
        """Return the hosts of all clusters."""
        return [host for hosts in self.hosts.values() for host in hosts]


def waves_of(
    concerned: Sequence[Concerned],
    serving: Sequence[Serving],
    paces: Mapping[str, Pace],
    order: str = CLUSTERS,
    units: Mapping[str, Sequence[str]] | None = None,
) -> list[Wave]:
    """Return the waves of a rollout over ``concerned``, in their order. Raises RolloutError with all problems.

    ``serving`` are all hosts of the clusters; ``paces`` has an entry for each cluster that has a host to change. Hosts
    that an earlier rollout left interrupted come first, since they are out of service already. ``units`` has the hosts
    that are changed together; they count as one host.
    """
    names = {host: members[0] for host, members in (units or {}).items()}
    problems: list[str] = []
    queues = []
    everyone: dict[str, list[Serving]] = {}
    for entry in serving:
        everyone.setdefault(entry.cluster, []).append(entry)
    changing: dict[str, list[Concerned]] = {}
    for host in concerned:
        changing.setdefault(host.cluster, []).append(host)
    for cluster, hosts in changing.items():
        peers = everyone.get(cluster, [])
        found = _pace_problems(cluster, paces[cluster], len({names.get(peer.host, peer.host) for peer in peers}))
        if not found:
            waves = _cluster_waves(hosts, paces[cluster], names)
            found = _gaps(cluster, waves, peers, paces[cluster].min_available)
            queues.append(waves)
        problems += dict.fromkeys(found)
    if problems:
        raise RolloutError("\n".join(problems))
    return _together(queues) if order == TOGETHER else [wave for waves in queues for wave in waves]


def _cluster_waves(hosts: Sequence[Concerned], pace: Pace, names: Mapping[str, str]) -> list[Wave]:
    """Return the waves of one cluster: interrupted units, canaries, then the others by ``pace.waves``."""
    cluster = hosts[0].cluster
    units: dict[str, list[Concerned]] = {}
    for host in hosts:
        units.setdefault(names.get(host.host, host.host), []).append(host)
    begun = [unit for unit in units.values() if any(host.interrupted for host in unit)]
    others = [unit for unit in units.values() if unit not in begun]
    waves = [_wave(True, cluster, [unit]) for unit in begun]
    sizes = [size_of(entry, len(units)) for entry in pace.waves] or [1]
    if pace.canaries and others:
        waves.append(_wave(True, cluster, others[: pace.canaries]))
        others = others[pace.canaries :]
    number = 0
    while others:
        size = sizes[min(number, len(sizes) - 1)]
        waves.append(_wave(False, cluster, others[:size]))
        others, number = others[size:], number + 1
    return waves


def _wave(canary: bool, cluster: str, units: Sequence[Sequence[Concerned]]) -> Wave:
    return Wave(canary, {cluster: [host.host for unit in units for host in unit]})


def _pace_problems(cluster: str, pace: Pace, hosts: int) -> list[str]:
    """Return the sizes that a cluster of so many hosts cannot have; hosts that are changed together count as one."""
    where, problems = _named(cluster), []
    for number, entry in enumerate(pace.waves):
        try:
            size = size_of(entry, hosts)
        except WaveSizeError as exc:
            problems.append(f"{where}: rollout_waves[{number}]: {exc}")
            continue
        if size > hosts:
            problems.append(f"{where}: rollout_waves[{number}] is {size}, and the cluster has {hosts} hosts")
    if pace.canaries > hosts:
        problems.append(f"{where}: rollout_canaries is {pace.canaries}, and the cluster has {hosts} hosts")
    if pace.canaries < 0:
        problems.append(f"{where}: rollout_canaries is {pace.canaries}, expected 0 or more")
    if pace.min_available < 0:
        problems.append(f"{where}: rollout_min_available is {pace.min_available}, expected 0 or more")
    return problems


def _gaps(cluster: str, waves: Sequence[Wave], peers: Sequence[Serving], min_available: int) -> list[str]:
    """Return a problem for each service that a wave would leave with too few servers."""
    servers = Counter(service for peer in peers for service in peer.services)
    services = {peer.host: peer.services for peer in peers}
    problems = []
    for hosts in (wave.hosts[cluster] for wave in waves):
        out = Counter(service for host in hosts for service in services.get(host, ()))
        for service, gone in out.items():
            left = servers[service] - gone
            if left < min_available:
                problems.append(
                    f"{_named(cluster)}: a wave of {hosts_in_words(hosts)} leaves {left or 'none'} of "
                    f"{servers[service]} servers for the service {service}, and rollout_min_available is "
                    f"{min_available}; make rollout_canaries or rollout_waves smaller, add servers, or set "
                    "rollout_min_available: 0 where the service may be down meanwhile"
                )
    return problems


def _together(queues: Sequence[Sequence[Wave]]) -> list[Wave]:
    """Return the waves of several clusters merged: the first of each cluster, the second of each, and so on."""
    waves = []
    for number in range(max((len(queue) for queue in queues), default=0)):
        abreast = [queue[number] for queue in queues if number < len(queue)]
        merged = Wave(any(wave.canary for wave in abreast))
        for wave in abreast:
            merged.hosts.update(wave.hosts)
        waves.append(merged)
    return waves


def _named(cluster: str) -> str:
    return f"cluster {cluster}" if cluster else "the hosts without a cluster"


def verdict(
    waves: Sequence[Mapping[str, Any]],
    number: int,
    failed: Mapping[str, str],
    limits: Mapping[str, int],
    units: Mapping[str, str] | None = None,
) -> str:
    """Return why the rollout stops after a wave, empty where it continues.

    ``waves`` are ``{"canary": bool, "hosts": {cluster: [host]}}``; ``failed`` maps every host that has failed so far to
    its cluster, ``limits`` each cluster to the number of failures that it may have after its canaries. Hosts with the
    same entry in ``units`` count as one.
    """
    unit = units or {}
    here = [host for hosts in waves[number]["hosts"].values() for host in hosts if host in failed]
    if not here:
        return ""
    if waves[number]["canary"]:
        return f"{hosts_in_words(here)} went first and failed"
    canaries = {host for wave in waves if wave["canary"] for hosts in wave["hosts"].values() for host in hosts}
    for cluster in dict.fromkeys(failed[host] for host in here):
        lost = [host for host, of in failed.items() if of == cluster and host not in canaries]
        if len({unit.get(host, host) for host in lost}) > limits[cluster]:
            return f"{_named(cluster)}: {hosts_in_words(lost)} failed, and rollout_max_failures is {limits[cluster]}"
    return ""
