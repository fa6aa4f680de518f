# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect what is known about each host before the inventory changes: its declarations and observations."""

import json
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping

from ...module_utils.accelerator.recognition import UNKNOWN, Catalogue, Model, hardware_of
from ..common.clusters import ClusterError, cluster_of
from ..common.group_names import models_of_groups, name_region_group
from ..discovery.observations import DiscoveryError, Entry, Observation, summary
from ..discovery.observations import detected as recognise
from ..redfish.ask import Bmc
from ..redfish.chips import Chips, found
from .fleet_formats import FleetHost
from .sorting import SortingError, Statement, read_declaration, read_detection, region_name

# The variables of a host that decide its groups.
NAMES = ("accelerator", "accelerator_count", "accelerators", "cluster", "site")
BMC_NAMES = ("accelerator_bmc", "accelerator_bmc_username", "accelerator_bmc_password")


@dataclass
class Candidate:
    """A host to sort.

    ``place`` describes where it was read; an error converts it to text. ``variables`` are its variables in NAMES and
    BMC_NAMES, ``groups`` its present groups, ``own`` all variables from sources. ``new`` are the
    variables to add to the inventory.
    """

    name: str
    place: object
    variables: dict[str, Any]
    groups: tuple[str, ...] = ()
    own: Mapping[str, Any] = field(default_factory=dict)
    new: dict[str, Any] = field(default_factory=dict)
    cluster: str | None = None
    site: str | None = None
    statements: tuple[Statement, ...] = ()

    def problem(self, problem: Exception | str) -> str:
        """Return an error as a sentence that names the host."""
        return f"{self.place}: host {self.name!r}: {problem}"


class Seen:
    """Observations of hosts; equal machines are looked up in the catalogue once."""

    def __init__(self, catalogue: Catalogue, discovery: Mapping[str, Entry]) -> None:
        self._catalogue = catalogue
        self._discovery = discovery
        self._known: dict[str, Mapping[str, Any]] = {}
        self.warnings: list[str] = []

    def discovered(self, host: str) -> dict[str, Any]:
        """Return the variables from the last discovery of a host, empty where there is none."""
        entry = self._discovery.get(host)
        if entry is None:
            return {}
        try:
            document = self._recognised(entry.observation)
        except DiscoveryError as exc:
            self.warnings.append(f"what discovery kept of {host} cannot be read, run discover.yml again: {exc}")
            return {}
        stale = {"accelerator_stale": f"{entry.stale_reason} (since {entry.stale_since})"} if entry.stale_since else {}
        return {"accelerator_detected": document, "accelerator_discovered_at": entry.at, **stale}

    def _recognised(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        # The memory of two equal machines differs slightly, and matters only on hosts without chips.
        parts = {name: part for name, part in observation.items() if name != "cpu"}
        key = json.dumps(parts if observation.get("functions") else observation, sort_keys=True)
        if key not in self._known:
            self._known[key] = summary(recognise(Observation.from_dict(observation), self._catalogue))
        return self._known[key]

    def by_bmc(self, chips: Chips) -> dict[str, Any]:
        """Return ``accelerator_detected`` from the chips that a BMC lists, as far as it can be known."""
        models, unknown = found(chips, self._catalogue)
        # As on the host: one entry for each chip.
        devices = [_device(self._catalogue.models[key]) for key, count in models.items() for _one in range(count)]
        each = [
            {key: value for key, value in chip.items() if key != "count"}
            for chip in unknown
            for _one in range(chip["count"])
        ]
        return summary(hardware_of(devices, each, self._catalogue))


def _device(model: Model) -> dict[str, Any]:
    """Return a chip of which only the model is known."""
    return {"model": model.key, "memory_mib": None if model.memory_gib is None else int(model.memory_gib * 1024)}


def read_groups(groups: Iterable[str], catalogue: Catalogue) -> Statement | None:
    """Return what groups such as accel_h200, set by an earlier source, state about a host."""
    names = models_of_groups(groups, catalogue.models)
    models = tuple((name, None) for name in names if name != UNKNOWN)
    unknown = int(UNKNOWN in names)
    return Statement("its group", models, unknown) if models or unknown else None


def collect_statements(
    candidate: Candidate, facts: Mapping[str, Any], bmc: Mapping[str, Any], catalogue: Catalogue
) -> None:
    """Return all statements about a host, the strongest first, and its cluster and site. Raises SortingError.

    ``facts`` are those that Ansible cached, ``bmc`` is the answer of its BMC; both may be empty.
    """
    variables, new = candidate.variables, candidate.new
    statements = [read_declaration(variables, catalogue), read_groups(candidate.groups, catalogue)]
    statements.append(read_detection(new.get("accelerator_detected"), "discovery", catalogue))
    statements.append(read_detection(facts.get("accelerator_detected"), "the fact cache", catalogue))
    statements.append(read_detection(bmc, "Redfish", catalogue))
    candidate.statements = tuple(statement for statement in statements if statement)
    if bmc and not facts.get("accelerator_detected"):
        new.setdefault("accelerator_detected", bmc)
    candidate.cluster = region_name("cluster", variables.get("cluster"))
    try:
        cluster_of(candidate.cluster, candidate.groups)
    except ClusterError as exc:
        raise SortingError(str(exc)) from exc
    candidate.site = region_name("site", variables.get("site"))


def regional_groups(entry: FleetHost) -> tuple[str, ...]:
    """Return the groups of the cluster and the site of a host of a fleet file. Raises SortingError."""
    groups = []
    for kind in ("cluster", "site"):
        try:
            value = region_name(kind, entry.variables.get(kind))
        except SortingError as exc:
            raise SortingError(f"{entry}: host {entry.name!r}: {exc}") from exc
        if value is not None:
            groups.append(name_region_group(kind, value))
    return tuple(groups)


def kept_chips(data: Any) -> dict[str, Chips]:
    """Return the answers of BMCs by host from the inventory cache. Raises ValueError for anything else."""
    return {str(host): Chips.from_dict(chips) for host, chips in data.items()}


def bmc_of(candidate: Candidate, login: Mapping[str, Any]) -> Bmc:
    """Return the BMC of a host; its own username and password override those of ``login``. Raises SortingError."""
    found = {}
    for name in ("username", "password"):
        value = candidate.variables.get(f"accelerator_bmc_{name}") or login[name]
        if not value:
            raise SortingError(
                candidate.problem(
                    f"no {name} for its BMC: set redfish_{name} in accelerators.yml or REDFISH_{name.upper()} in the "
                    f"environment, or accelerator_bmc_{name} for the host"
                )
            )
        found[name] = str(value)
    return Bmc(candidate.name, str(candidate.variables["accelerator_bmc"]), found["username"], found["password"])
