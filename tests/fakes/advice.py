# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow the advice of a refusal to the letter, as its reader would, and plan again."""

import re

from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE, Bench, TrialError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import (
    PermissionNeededError,
    PlanError,
)

COUNTS = (1, 2, 4, 8, 16)
# Keys of an instance beside its recipe and variant: what the plan chooses, one chip, a number that divides few models.
ASKED = ({}, {"args": {"tensor-parallel-size": 1}}, {"args": {"tensor-parallel-size": 3}})
BENCH = Bench(load_catalogue())


def hosts():
    """Return a host with each number of chips that one can have of each model of the catalogue."""
    found = []
    for model in BENCH.catalogue.models:
        for count in COUNTS:
            try:
                found += BENCH.hosts([f"{model}:{count}"], [])
            except TrialError:
                continue
    return found


def cases(names, directories=()):
    """Return all pairs of recipe, variant, keys of the instance and host."""
    found = hosts()
    variants = {name: load_recipe(name, directories).get("variants") or {"default": {}} for name in names}
    return [
        (name, variant, keys, host) for name in names for variant in variants[name] for keys in ASKED for host in found
    ]


def problem(host, directories, nodes=1, **keys):
    """Return why an instance is refused, empty where it is planned; it allows what its recipe needs."""
    settings = {**SITE, "recipe_path": list(directories), "release": ""}
    name = "host"
    if nodes > 1:
        keys["nodes"] = [f"host-{number}" for number in range(1, nodes + 1)]
        settings["members"] = {node: {"address": node, "interface": "eth0"} for node in keys["nodes"]}
        name = keys["nodes"][0]
    for _permission in range(10):
        try:
            plan_host(name, host, {**settings, "instances": {"chat": keys}})
        except PermissionNeededError as exc:
            allowed = {key: {**keys.get(key, {}), **values} for key, values in exc.settings.items()}
            keys = {**keys, **allowed}
        except PlanError as exc:
            return str(exc)
        else:
            return ""
    return "permissions without end"


def wrong_advice(case, directories=()):
    """Return the advice of a refusal that is refused when it is followed, each with its own refusal."""
    name, variant, keys, host = case
    instance = {"recipe": name, "variant": variant, **keys}
    text = problem(host, directories, **instance)
    found = []

    def follow(advice, other=host, nodes=1, **more):
        args = {**keys.get("args", {}), **more.pop("args", {})}
        refused = problem(other, directories, nodes, **{**instance, **more, "args": args})
        found.extend([f"{case[:3]} on {host.count} x {host.model}: {advice}: {refused}"] if refused else [])

    sizes = re.findall(r"set args tensor-parallel-size (\d+)|tensor-parallel-size (\d+) would fit", text)
    sizes += re.findall(r"(\d+) chips of this host would do()", text)
    sizes += [
        (size, "")
        for listed in re.findall(r"possible tensor-parallel-size: ([\d, ]+)", text)
        for size in listed.split(",")
    ]
    for size in (int("".join(each)) for each in sizes):
        follow(f"{size} chips", args={"tensor-parallel-size": size})
    for strategy in re.findall(r"or strategy (\w+)", text):
        follow(strategy, strategy=strategy)
    for length in re.findall(r"max-model-len (\d+) would fit", text):
        follow(f"{length} tokens", args={"max-model-len": int(length)})
    for listed in re.findall(r"the variants that (?:fit|run on it): ([^;]+)", text):
        for other in re.sub(r" \(weights [^)]*\)", "", listed).split(", "):
            follow(other, variant=other)
    count = re.search(r"(\d+) x [\w]+ have", text)
    for listed in re.findall(r"as many chips of ([\w, ]+) would do", text):
        for model in listed.split(", "):
            follow(model, BENCH.hosts([f"{model}:{count.group(1)}"], [])[0])
    for nodes in re.findall(r"(\d+) such hosts together would do", text):
        follow(f"{nodes} hosts", nodes=int(nodes))
    return found
