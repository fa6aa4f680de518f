# SPDX-License-Identifier: GPL-3.0-or-later
"""What the instances of hosts name and a site lacks: recipes that vLLM carries, and manifests of weights."""

import json
import os
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..catalog.files import RECIPES, lookup
from ..catalog.upstream_recipes import has_recipe
from ..common.tables import hosts_in_words
from ..fleet.host_reader import FleetError, HostReader
from ..fleet.plans import plan_fleet
from .needs import Needs, add_fleet, plan_from_origin

RECIPE_PATH, MANIFEST_PATH = "vllm_recipe_path", "vllm_weights_manifest_path"
# The variable that a user sets, and an example of it.
_NAMES = {RECIPE_PATH: RECIPE_PATH, MANIFEST_PATH: "weights_manifest_path"}
_EXAMPLES = {
    RECIPE_PATH: '["{{ inventory_dir | dirname }}/recipes"]',
    MANIFEST_PATH: '["{{ inventory_dir | dirname }}/manifests"]',
}


class MissingError(ValueError):
    """What is missing cannot be found out, or has no place; the message is the whole sentence for the user."""


@dataclass
class Missing:
    """Recipes by name, and models as options of weights_manifest; each with the directory that gets them.

    While a recipe is missing, nothing can be planned: ``models`` is empty then. A directory is empty if no host names
    one and nothing needs it.
    """

    recipes: list[str] = field(default_factory=list)
    recipe_dest: str = ""
    models: list[dict[str, Any]] = field(default_factory=list)
    manifest_dest: str = ""

    @property
    def directories(self) -> list[str]:
        """The directories that hosts search first."""
        return [path for path in (self.recipe_dest, self.manifest_dest) if path]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for an action's result."""
        return {**vars(self), "directories": self.directories}


def missing_of(hosts: Sequence[str], reader: HostReader) -> Missing:
    """Return what hosts lack. Raises MissingError, and FleetError with all problems of all hosts."""
    variables = _read(hosts, reader)
    found = Missing(recipes=_missing_recipes(variables))
    found.recipe_dest = _destination(RECIPE_PATH, variables, bool(found.recipes))
    found.manifest_dest = _destination(MANIFEST_PATH, variables, needed=False)
    # A plan needs every recipe, and directories that exist; in check mode neither is made.
    if found.recipes or not all(os.path.isdir(path) for path in found.directories):
        return found
    fleet = plan_fleet(hosts, reader, plan_from_origin)
    fleet.check("nothing was pinned")
    needs = Needs(unpinned={})
    add_fleet(needs, fleet)
    found.models = needs.as_dict()["unpinned"]
    found.manifest_dest = _destination(MANIFEST_PATH, variables, bool(found.models))
    return found


def _read(hosts: Sequence[str], reader: HostReader) -> dict[str, Mapping[str, Any]]:
    """Return the variables of the hosts that have instances."""
    found: dict[str, Mapping[str, Any]] = {}
    problems: dict[str, list[str]] = {}
    for host in hosts:
        try:
            variables = {name: json.loads(text) for name, text in reader.read(host)}
        except FleetError as exc:
            problems.setdefault(str(exc), []).append(host)
            continue
        if variables.get("vllm_instances"):
            found[host] = variables
    if problems:
        lines = [f"{hosts_in_words(names)}: {text}" for text, names in problems.items()]
        raise FleetError("\n".join(lines))
    if not found:
        raise MissingError("no host of target_hosts has vllm_instances")
    return found


def _missing_recipes(variables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the recipes that instances name, no directory has and a release of vLLM carries.

    Others that are not there are problems of the plans.
    """
    found: dict[str, None] = {}
    for values in variables.values():
        directories = [path for path in _directories(values, RECIPE_PATH) if os.path.isdir(path)]
        for name in _recipes_of(values["vllm_instances"]):
            if has_recipe(name) and not lookup("recipes", name, RECIPES, directories):
                found[name] = None
    return list(found)


def _recipes_of(instances: Any) -> list[str]:
    requests = instances.values() if isinstance(instances, Mapping) else ()
    names = [requested.get("recipe") for requested in requests if isinstance(requested, Mapping)]
    return [name for name in names if isinstance(name, str)]


def _destination(variable: str, variables: Mapping[str, Mapping[str, Any]], needed: bool) -> str:
    """Return the directory that hosts search first, the same for all. Raises MissingError if it is needed."""
    first: dict[str, list[str]] = {}
    for host, values in variables.items():
        first.setdefault(next(iter(_directories(values, variable)), ""), []).append(host)
    if needed and len(first) > 1:
        places = ", ".join(f"{path or 'none'} on {hosts_in_words(hosts)}" for path, hosts in first.items())
        raise MissingError(
            f"{_NAMES[variable]}: found {places}; name hosts of one directory with -e target_hosts=PATTERN"
        )
    if needed and "" in first:
        raise MissingError(
            f"{_NAMES[variable]}: found none, expected a directory to write to, such as {_EXAMPLES[variable]}"
        )
    return next((path for path in first if path), "")


def _directories(values: Mapping[str, Any], variable: str) -> list[str]:
    listed = values.get(variable) or []
    paths = [listed] if isinstance(listed, str) else listed
    return [os.path.abspath(os.path.expanduser(str(path))) for path in paths]
