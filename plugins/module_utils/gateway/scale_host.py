# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of a gateway that adapts the number of replicas to the load, in the agent.

Each gateway reports to the hosts of the replicas what waits at it. The one whose name comes first decides, and the
others take over when the hosts have not heard of it for some seconds. A host that does not answer is left as it is, and
no replica of its services leaves meanwhile. What a host says counts for the services that it has, and for no other.
"""

from __future__ import annotations

import concurrent.futures
import json
import math
import socket
import time
from dataclasses import replace
from typing import Any, Callable, Mapping, Sequence

from ..common.files_host import publish
from ..common.lines_host import write_line
from ..common.unix_socket_host import ask_root
from ..instance.scale_door import DOOR, MOST_ANSWER_BYTES, RefusedError, seal, unseal
from ..instance.scale_door_host import read_line
from .places import RISES
from .scale import ASLEEP, LOST, SERVING, STARTING, STOPPED, UP_AFTER, Action, Scale
from .scale_replicas import Seen, noticed_after, read_stat, replica_of, reported, shared_out, there_by
from .verdict import Watched

# Seconds of a question to a host, and until one that did not answer is asked again.
TIMEOUT, RESTS = 3.0, 10.0
# So many of them at once: a round must be shorter than the lease, however many hosts are off.
SILENT_AT_ONCE = 8
INTERVAL = 1.0
# Seconds after a reload until no request waits only because the places of the new worker rise. By a simulation: a third
# less is too short where nine tenths of the places are in use.
BEGINS = 3 * RISES
WORKERS = 32
AUTO, SHADOW = "auto", "shadow"


def ask_door(address: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a host's door. Raises OSError and RefusedError."""
    if not key:
        # With the empty key anybody could answer.
        raise RefusedError("the gateway has no key of this host; run gateway.yml")
    host, _colon, port = address.rpartition(":")
    until = time.monotonic() + TIMEOUT
    with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT) as connection:
        nonce = read_line(connection, until).decode("ascii", "replace").strip()
        connection.sendall(seal(key, nonce, document))
        _key, answer = unseal([key], f"{nonce} answer", read_line(connection, until, MOST_ANSWER_BYTES))
    if "error" in answer:
        raise RefusedError(str(answer["error"])[:200])
    return answer


class ScaledService:
    """A service whose replicas are adapted."""

    def __init__(self, name: str, config: Mapping[str, Any], interval: float) -> None:
        self.name, self.config, self.noticed = name, config, noticed_after(interval)
        self.up_after = max(UP_AFTER, interval + INTERVAL)
        self.hosts = {each["host"] for each in config["replicas"].values() if not each["fixed"]}
        self.decided = False
        self.scale: Scale | None = None
        self.counts: dict[str, int] = {}
        self.idle: list[str] = []
        self.waiting = 0
        self.actions: dict[str, int] = {}
        self.last = ""

    def held_by(self, gateway: str, hosts: Mapping[str, Any]) -> bool:
        """Return whether a gateway decides about the service, by all the answers of its hosts."""
        replicas = [each for each in self.config["replicas"].values() if each["host"] in self.hosts & hosts.keys()]
        found = [hosts[each["host"]]["instances"].get(each["instance"]) for each in replicas]
        holders = {each.get("holder") for each in found if each is not None}
        return holders == {gateway}

    def others(self, gateway: str, hosts: Mapping[str, Any]) -> list[Any]:
        """Return what the other gateways report to its hosts, which have the same but for what has not come yet."""
        answers = [hosts[host] for host in sorted(self.hosts & hosts.keys())]
        found = {name: report for answer in answers for name, report in answer["reports"].items() if name != gateway}
        return list(found.values())

    def decide(
        self, gateway: str, seen: Seen, loads: Mapping[str, Watched], hosts: Mapping[str, Any], others: Sequence[Any]
    ) -> Action:
        """Return what is to be done; ``hosts`` has the answers of hosts, ``others`` the reports of other gateways."""
        queued, held = reported(others, self.name)
        held |= seen.held
        replicas = []
        for name, server in self.config["replicas"].items():
            load = loads[server["address"]].load
            answer = hosts.get(server["host"]) if not server["fixed"] else None
            instance = answer["instances"].get(server["instance"]) if answer else None
            up = name in seen.up
            there = seen.there.get(name, 0)
            there += there_by(answer["reports"], gateway, server["instance"]) if answer else 0
            running, waiting = shared_out(there, load) if load and up else (0, 0)
            silent = not (server["fixed"] or answer)
            replicas.append(replica_of(name, server, instance, up, name in held, running, self.noticed, silent))
            # Engines have those of HAProxy's worker before too.
            queued += 0 if seen.begins else waiting
        self.waiting = queued + seen.waiting.get(self.name, 0)
        states = [each.state for each in replicas]
        self.idle = [each.name for each in replicas if each.state in (ASLEEP, STOPPED)]
        self.counts = {state: states.count(state) for state in (SERVING, STARTING, ASLEEP, STOPPED, LOST)}
        if self.scale is None:
            self.scale = Scale(self.config["min"], self.config["max"], self.up_after)
        return self.scale.decide(replicas, self.waiting, time.monotonic())


class Scaler:
    """The loop; ``config`` is the part ``scale`` of the agent's configuration.

    ``notice_reload`` notes at the places of the servers when HAProxy got a new worker.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        stats: str,
        watched: Mapping[str, Watched],
        interval: float,
        notice_reload: Callable[[float], None],
    ) -> None:
        self.config, self.stats, self.watched, self.notice_reload = config, stats, watched, notice_reload
        self.seen = Seen()
        self.services = {name: ScaledService(name, each, interval) for name, each in config["services"].items()}
        # The servers of each host by their instances.
        self.servers: dict[str, dict[str, str]] = {host: {} for host in config["doors"]}
        for service in self.services.values():
            for name, each in service.config["replicas"].items():
                if not each["fixed"]:
                    self.servers[each["host"]][each["instance"]] = name
        self.silent: dict[str, float] = {}
        self.pool = concurrent.futures.ThreadPoolExecutor(WORKERS)

    def step(self) -> None:
        """Look once, and change one replica of each service at most."""
        seen = self._see()
        keys = _read_keys(self.config["secret"])
        own = {name for service in self.services.values() for name in service.config["replicas"]}
        report = {
            "waiting": {name: seen.waiting.get(name, 0) for name in self.services},
            "held": sorted(seen.held & own),
        }
        requests = {host: self._request(host, seen, report) for host in self.servers}
        hosts = self._ask_hosts(keys, requests)
        gateway, before = self.config["gateway"], [each.decided for each in self.services.values()]
        for service in self.services.values():
            service.decided = service.held_by(gateway, hosts)
            if not service.decided:
                # A gateway that takes over has not seen the load of the last minutes.
                service.scale = None
                continue
            action = service.decide(gateway, seen, self.watched, hosts, service.others(gateway, hosts))
            if action.verb:
                self._do(service, action, keys, requests)
        if before != [each.decided for each in self.services.values()]:
            names = [name for name, each in self.services.items() if each.decided]
            write_line(f"scale: {gateway} decides about {', '.join(names) or 'no service'}")
        self._write()

    def _see(self) -> Seen:
        """Return HAProxy's view; after a reload with the requests before it, and those that wait for any server."""
        seen = read_stat(ask_root(self.stats, "show stat -1 6 -1", 5, 10))
        now = time.monotonic()
        # Afterwards: the view of a new worker must not be taken for that of the one before.
        self.notice_reload(now)
        reloaded_at = max((each.places.reloaded_at for each in self.watched.values() if each.places), default=-math.inf)
        if now - reloaded_at >= BEGINS:
            self.seen = seen
            return seen
        lacking = [name for name, each in self.services.items() if not seen.up & each.config["replicas"].keys()]
        waiting = {name: seen.waiting.get(name, 0) for name in lacking}
        return replace(seen, waiting=waiting, there=self.seen.there, begins=True)

    def _ask_hosts(self, keys: Mapping[str, str], requests: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers of the hosts of replicas, without those that do not answer."""
        now = time.monotonic()
        rested = [host for host, at in sorted(self.silent.items(), key=lambda item: item[1]) if now - at >= RESTS]
        due = [host for host in self.config["doors"] if host not in self.silent or host in rested[:SILENT_AT_ONCE]]
        return {
            host: found
            for host, found in zip(
                due, self.pool.map(lambda host: self._ask(host, keys.get(host, ""), requests[host]), due)
            )
            if found
        }

    def _ask(self, host: str, key: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            found = ask_door(self.config["doors"][host], key, request)
            instances, reports = found.get("instances"), found.get("reports")
            if not isinstance(instances, dict) or not isinstance(reports, dict):
                raise RefusedError("the answer lacks instances or reports")
            if not all(isinstance(each, dict) and isinstance(each.get("holder"), str) for each in instances.values()):
                raise RefusedError("the answer has an instance without a state")
        except (OSError, RefusedError) as exc:
            if host not in self.silent:
                write_line(f"scale: {host} does not answer: {exc}")
            self.silent[host] = time.monotonic()
            return None
        if self.silent.pop(host, None) is not None:
            write_line(f"scale: {host} answers again")
        return found

    def _request(self, host: str, seen: Seen, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request to a host, with the instances that this gateway serves there, and its requests of each."""
        there = {instance: seen.there.get(name, 0) for instance, name in self.servers[host].items()}
        own = {"instances": list(there), "report": {**report, "there": there}}
        return {"gateway": self.config["gateway"], "host": host, **own}

    def _do(self, service: ScaledService, action: Action, keys: Mapping[str, str], requests: Mapping[str, Any]) -> None:
        """Have a host change a replica, or only say so in shadow mode."""
        server = service.config["replicas"][action.name]
        shadow = service.config["mode"] == SHADOW
        text = f"{'would ' if shadow else ''}{action.verb} {action.name}: {action.why}"
        if not shadow:
            order = {"verb": action.verb, "instance": server["instance"]}
            document = {**requests[server["host"]], **order}
            try:
                ask_door(self.config["doors"][server["host"]], keys.get(server["host"], ""), document)
            except (OSError, RefusedError) as exc:
                text = f"{text}; it failed: {exc}"
        service.actions[action.verb] = service.actions.get(action.verb, 0) + 1
        service.last = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}"
        write_line(f"scale {service.name}: {text}")

    def _write(self) -> None:
        """Write what status.yml shows."""
        found = {
            name: {
                "mode": each.config["mode"], "min": each.config["min"], "max": each.config["max"],
                "replicas": each.counts, "waiting": each.waiting, "last": each.last,
                "idle": each.idle, "hosts": sorted({each.config["replicas"][name]["host"] for name in each.idle}),
            }
            for name, each in self.services.items() if each.decided
        }  # fmt: skip
        text = json.dumps({"decides": bool(found), "services": found})
        publish(self.config["report"], f"{text}\n", 0o644, durable=False)

    def metrics(self) -> list[str]:
        """Return the lines of GET /metrics."""
        name = "inference_gateway_scale"
        services = [(service, each) for service, each in self.services.items() if each.decided]
        lines = [f"# TYPE {name}_decides gauge", f"{name}_decides {int(bool(services))}"]
        lines.append(f"# TYPE {name}_replicas gauge")
        lines += [
            f'{name}_replicas{{service="{service}",state="{state}"}} {count}'
            for service, each in services
            for state, count in each.counts.items()
        ]
        lines.append(f"# TYPE {name}_waiting gauge")
        lines += [f'{name}_waiting{{service="{service}"}} {each.waiting}' for service, each in services]
        lines.append(f"# TYPE {name}_actions_total counter")
        lines += [
            f'{name}_actions_total{{service="{service}",mode="{each.config["mode"]}",verb="{verb}"}} {count}'
            for service, each in self.services.items()
            for verb, count in sorted(each.actions.items())
        ]
        return lines


def _read_keys(path: str) -> dict[str, str]:
    """Return the keys of the hosts, of the map that HAProxy reads too. Raises OSError."""
    with open(path, encoding="ascii") as file:
        pairs = (line.split() for line in file if line.startswith(f"{DOOR}:"))
        return {name[len(DOOR) + 1 :]: key for name, key in pairs}
