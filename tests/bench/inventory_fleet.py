# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet of the inventory benchmark, written once for every plugin that is measured.

Eight models over four stacks, clusters of 500 hosts, sites of four clusters, one variable that no plugin knows.
"""

from __future__ import annotations

import csv
import json
import marshal
from pathlib import Path
from typing import Any, Iterable

# Model: stack and generation, as catalog/accelerators has them. The benchmark compares groups, so an error here shows.
MODELS = {
    "h200": ("cuda", "hopper"),
    "h100": ("cuda", "hopper"),
    "mi300x": ("rocm", "gfx942"),
    "mi355x": ("rocm", "gfx950"),
    "a100": ("cuda", "ampere"),
    "l40s": ("cuda", "ada"),
    "ascend_a2": ("cann", "ascend_a2"),
    "cpu": ("cpu", "cpu"),
}
NAMES = tuple(MODELS)
PLUGIN = "baremetal.inference.accelerators"
ORDINARY = "ansible.builtin.constructed"


def hosts_of(size: int) -> dict[str, dict[str, Any]]:
    """Return the variables of each host."""
    fleet = {}
    for number in range(size):
        model = NAMES[number % len(NAMES)]
        fleet[f"gpu-{number:06}"] = {
            "accelerator": model,
            "accelerator_count": 1 if model == "cpu" else 8,
            "cluster": f"c{number // 500:03}",
            "site": f"s{number // 2000:02}",
            "rack": f"r{number % 40}",
        }
    return fleet


def groups_of(fleet: dict[str, dict[str, Any]]) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Return the hosts of each group that has hosts of its own, and the pairs of parent and child."""
    members: dict[str, list[str]] = {}
    pairs: dict[tuple[str, str], None] = {}
    for name, variables in fleet.items():
        model, cluster, site = variables["accelerator"], variables["cluster"], variables["site"]
        members.setdefault(f"accel_{model}", []).append(name)
        members.setdefault(f"cluster_{cluster}", []).append(name)
        stack, generation = MODELS[model]
        pairs[(f"accel_{generation}", f"accel_{model}")] = None
        pairs[(f"accel_{stack}", f"accel_{generation}")] = None
        pairs[(f"site_{site}", f"cluster_{cluster}")] = None
    return members, [(parent, child) for parent, child in pairs if parent != child]


def expected(size: int) -> dict[str, set[str]]:
    """Return all hosts of every group, those of its children included."""
    fleet = hosts_of(size)
    groups: dict[str, set[str]] = {}
    for name, variables in fleet.items():
        stack, generation = MODELS[variables["accelerator"]]
        kinds = (stack, generation, variables["accelerator"])
        places = (f"cluster_{variables['cluster']}", f"site_{variables['site']}")
        for group in (*(f"accel_{kind}" for kind in kinds), *places):
            groups.setdefault(group, set()).add(name)
    return groups


def write(top: Path, size: int) -> None:
    """Write the fleet for every plugin into ``top``."""
    top.mkdir(parents=True)
    fleet = hosts_of(size)
    (top / "empty.ini").write_text("[all]\n")
    (top / "fleet.json").write_text(json.dumps({"hosts": fleet}))
    _write_csv(top / "fleet.csv", fleet)
    _write_ini(top / "hosts.ini", fleet)
    _write_yaml(top / "fleet.yml", "", fleet)
    _write_yaml(top / "hosts.yml", "all:\n", fleet)
    (top / "objects.marshal").write_bytes(marshal.dumps((fleet, *groups_of(fleet))))
    _write_json(top / "bare.yml", {"plugin": "bare"})
    for suffix in ("json", "csv", "yml"):
        _write_json(top / f"{suffix}_accelerators.yml", {"plugin": PLUGIN, "fleet_files": [f"fleet.{suffix}"]})
    _write_json(top / "top_accelerators.yml", {"plugin": PLUGIN})
    cache = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(top / "cache")}
    _write_json(top / "cached_accelerators.yml", {"plugin": PLUGIN, "fleet_files": ["fleet.yml"], **cache})
    _write_json(top / "constructed.yml", {"plugin": ORDINARY, **_conditions()})
    _write_json(top / "lookup_constructed.yml", {"plugin": ORDINARY, **_lookups()})


def groups_in(text: str) -> dict[str, set[str]]:
    """Return all hosts of every group but all and ungrouped in what ``ansible-inventory --list`` printed."""
    listed = json.loads(text)
    found: dict[str, set[str]] = {}

    def hosts(group: str) -> set[str]:
        if group not in found:
            entry = listed.get(group, {})
            own = set(entry.get("hosts", ()))
            found[group] = own.union(*(hosts(child) for child in entry.get("children", ())))
        return found[group]

    return {group: hosts(group) for group in listed if group not in ("_meta", "all", "ungrouped") and hosts(group)}


def difference(size: int, output: Path) -> str:
    """Return how the groups of an ``ansible-inventory --list`` differ from the expected ones; empty where they do not.

    Groups without hosts do not count: constructed has none of them.
    """
    wanted, found = expected(size), groups_in(output.read_text())
    if wanted == found:
        return ""
    groups = sorted(group for group in {*wanted, *found} if wanted.get(group) != found.get(group))
    counts = (f"{group}: {len(found.get(group, ()))} of {len(wanted.get(group, ()))}" for group in groups[:5])
    return f"{len(groups)} groups differ, found and expected hosts: {', '.join(counts)}"


def _conditions() -> dict[str, Any]:
    """Return the options of constructed as its documentation teaches them: a condition for each further group."""
    wanted: dict[str, list[str]] = {}
    for model, kinds in MODELS.items():
        for kind in kinds:
            if model not in wanted.setdefault(f"accel_{kind}", []):
                wanted[f"accel_{kind}"].append(model)
    # Those of one model with the model's name are made by keyed_groups already.
    groups = {group: f"accelerator in {models}" for group, models in wanted.items() if models != [group[6:]]}
    return {"keyed_groups": _keyed("accelerator", "cluster", "site"), "groups": groups}


def _lookups() -> dict[str, Any]:
    """Return the options of constructed with the fewest expressions: a table in place of each set of conditions."""
    stacks, generations = ({model: kinds[kind] for model, kinds in MODELS.items()} for kind in (0, 1))
    keyed = _keyed("accelerator", "cluster", "site")
    keyed += [{"prefix": "accel", "key": f"{table}[accelerator]"} for table in (stacks, generations)]
    return {"keyed_groups": keyed}


def _keyed(*names: str) -> list[dict[str, str]]:
    return [{"prefix": name.replace("accelerator", "accel"), "key": name} for name in names]


def _write_json(path: Path, value: Any) -> None:
    # JSON is YAML, and needs no library here.
    path.write_text(json.dumps(value, indent=1) + "\n")


def _write_csv(path: Path, fleet: dict[str, dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("name", *next(iter(fleet.values()))))
        rows.writerows((name, *variables.values()) for name, variables in fleet.items())


def _write_ini(path: Path, fleet: dict[str, dict[str, Any]]) -> None:
    _write_lines(path, (" ".join([name, *_pairs(variables, "=")]) for name, variables in fleet.items()))


def _write_yaml(path: Path, head: str, fleet: dict[str, dict[str, Any]]) -> None:
    indent = "  " if head else ""
    lines = (f"{indent}  {name}:\n{indent}    " + f"\n{indent}    ".join(_pairs(variables, ": "))
             for name, variables in fleet.items())  # fmt: skip
    _write_lines(path, [f"{head}{indent}hosts:", *lines])


def _pairs(variables: dict[str, Any], separator: str) -> list[str]:
    return [f"{key}{separator}{value}" for key, value in variables.items()]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)
