# SPDX-License-Identifier: GPL-3.0-or-later

import tempfile
from pathlib import Path
from typing import Any, Mapping

from ..plugin_utils.catalog.accelerators import load_catalogue
from ..plugin_utils.catalog.files import RECIPES, known_names, load_recipe, load_release
from ..plugin_utils.catalog.new_recipe import NewRecipe, read_new
from ..plugin_utils.catalog.upstream_recipes import describe_replaced
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.fleet.explain import plan_table
from ..plugin_utils.fleet.trial import Bench, Trial, TrialError, models_of, tokenizers_of, trial_table
from ..plugin_utils.planning.inputs import UnknownNameError


class ActionModule(ControllerAction):
    """Plans recipes on chips, and places a new recipe among those of a site once it can be planned."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        new = read_new(options["file"]) if options["file"] else None
        if new and not options["dest"]:
            raise TrialError("dest is missing: the directory of the site's recipes")
        names = [*_named(options), *([new.name] if new else [])]
        if not names:
            raise TrialError("recipes: found none, expected the name of a recipe, such as openai/gpt-oss-120b")
        _check_release(options)
        trials = _tried(options, names, new)
        if new and not any(trial.plan for trial in trials):
            raise TrialError(
                f"{options['file']}: no variant can be planned on any of these chips\n{trial_table(trials)}"
            )
        show(trial_table(trials))
        plan = next((trial.plan for trial in trials if trial.plan), None)
        if plan and options["show_plan"]:
            show("\n" + plan_table([plan]))
        placed = _place(new, options["dest"], self._task.check_mode) if new else {}
        found = {
            "recipes": names,
            "models": models_of(trials),
            "tokenizers": tokenizers_of(trials),
            "trials": [trial.as_dict() for trial in trials],
        }
        return {**found, **placed}


def _named(options: Mapping[str, Any]) -> list[str]:
    """Return the requested names; ``all`` stands for every recipe of the site and of the collection."""
    names: list[str] = options["recipes"]
    return known_names("recipes", RECIPES, options["recipe_path"]) if names == ["all"] else names


def _check_release(options: Mapping[str, Any]) -> None:
    """Raise TrialError for a release that does not exist; otherwise it would be the reason of each trial."""
    if options["release"]:
        try:
            load_release(options["release"], options["release_path"])
        except UnknownNameError as exc:
            raise TrialError(f"release: {exc}") from exc


def _tried(options: Mapping[str, Any], names: list[str], new: NewRecipe | None) -> list[Trial]:
    """Return the trials of all recipes; a new one is tried in a scratch directory: nothing has changed yet."""
    with tempfile.TemporaryDirectory(prefix="recipe-") as scratch:
        directories = list(options["recipe_path"])
        if new:
            new.write(scratch)
            directories.insert(0, scratch)
        paths = {key: options[key] for key in ("release_path", "weights_manifest_path")}
        catalogue = load_catalogue(options["accelerator_catalog_path"])
        bench = Bench(catalogue, options["release"], {**paths, "recipe_path": directories})
        recipes = {name: load_recipe(name, directories) for name in names}
        hosts = {name: bench.hosts(options["accelerators"], [recipe]) for name, recipe in recipes.items()}
        if not any(hosts.values()):
            raise TrialError("accelerators: the recipe lists no chip of the catalogue; name some, such as h200:8")
        return [trial for name, recipe in recipes.items() for trial in bench.try_recipe(name, recipe, hosts[name])]


def _place(new: NewRecipe, directory: str, check_mode: bool) -> dict[str, Any]:
    """Return whether the recipe is new at its place, and write it where it is."""
    before, after = new.text_at(directory), new.content.decode(errors="replace")
    if before != after and not check_mode:
        new.write(directory)
    path = str(new.place(directory))
    diff = {"before": before, "after": after, "before_header": path, "after_header": path}
    # What is there already was reported when it came.
    own = [new.name] if before != after and new.name in known_names("recipes", RECIPES, ()) else []
    told = describe_replaced(Path(directory), own, own)
    return {"changed": before != after, "path": path, "diff": diff, "warnings": told}
