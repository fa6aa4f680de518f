# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan an adopted entry, and set what its recipe would add to ``null``, so that vLLM gets what it got before."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from ...module_utils.vllm.plan_document import PlanDocument
from ..catalog.files import known_names, load_recipe
from ..catalog.upstream_recipes import has_recipe
from ..common.yaml import dump_yaml
from ..fleet.host_plans import plan_host
from ..fleet.trial import SITE, Bench
from ..planning.explanation import COLLECTION
from ..planning.inputs import PermissionNeededError, PlanError
from ..planning.instances import check_instance
from .entry import Adopted

# The hosts on which an entry is planned where none is named.
HOSTS = {"cuda": "h100", "rocm": "mi300x", "cann": "ascend_a2", "cpu": "cpu", "xpu": "arc_pro_b60"}
# A recipe may add keys that only appear once others are removed.
_ROUNDS = 4


@dataclass(frozen=True)
class Compared:
    """The entry with its recipe, what the recipe would add, what the collection adds, and why there is no plan.

    ``host`` and ``version`` are those of the plan. ``recipe`` is the text of a recipe that must be written, empty
    where there is one; ``carried`` is the release of vLLM that carries one.
    """

    host: str
    version: str
    instance: dict[str, Any]
    recipe: str = ""
    carried: str = ""
    removed: dict[str, Any] = field(default_factory=dict)
    added: list[tuple[str, str]] = field(default_factory=list)
    problem: str = ""
    plan: PlanDocument | None = None


def compare(adopted: Adopted, bench: Bench, host: str, version: str, name: str = "chat") -> Compared:
    """Return the entry of this name as it is planned on a host, MODEL or MODEL:COUNT. Raises PlanError, TrialError."""
    check_instance(name, {"recipe": adopted.model})
    accelerator = bench.hosts([host], [])[0]
    host = f"{accelerator.count} x {accelerator.model}"
    directories = list(bench.paths.get("recipe_path") or ())
    found = recipe_of(adopted.model, directories)
    instance = {**(found or {"recipe": adopted.model}), "features": [], **adopted.instance}
    text = "" if found else dump_yaml({"model": {"model_id": adopted.model}})
    carried = "" if found else has_recipe(adopted.model) or ""
    with tempfile.TemporaryDirectory(prefix="adopt-") as scratch:
        if text:
            del instance["features"]
            path = Path(scratch, f"{adopted.model}.yaml")
            path.parent.mkdir()
            path.write_text(text, encoding="utf-8")
        paths = {**bench.paths, "recipe_path": [scratch, *directories] if text else directories}
        settings = {**SITE, **paths, "release": bench.release, "secrets": {name: adopted.secrets}}
        removed: dict[str, Any] = {}
        for _round in range(_ROUNDS):
            instance = {**instance, **_without(instance, removed)}
            try:
                plan = plan_host("adopt", accelerator, {**settings, "instances": {name: instance}})[name]
            except PermissionNeededError as exc:
                more = {f"env.{key}": value for key, value in exc.settings.get("env", {}).items()}
                more.update(exc.settings.get("args", {}))
            except PlanError as exc:
                return Compared(host, version, instance, text, carried, removed, problem=str(exc))
            else:
                more = {row["key"]: row["value"] for row in plan["explain"] if _of_recipe(row)}
            if not more:
                return Compared(host, version, instance, text, carried, removed, _added(plan), plan=plan)
            removed.update(more)
    return Compared(
        host, version, instance, text, carried, removed, problem="the recipe adds what null does not remove"
    )


def recipe_of(model: str, directories: Sequence[str]) -> dict[str, str] | None:
    """Return recipe and variant whose weights are a model; None where no directory has one."""
    names = known_names("recipes", (".yaml", ".yml"), directories)
    for name in sorted(names, key=lambda each: each != model):
        recipe = load_recipe(name, directories)
        variants: Mapping[str, Any] = recipe.get("variants") or {"default": {}}
        for variant, entry in variants.items():
            if ((entry or {}).get("model_id") or recipe["model"]["model_id"]) == model:
                return {"recipe": name, **({"variant": variant} if len(variants) > 1 else {})}
    return None


def _without(instance: Mapping[str, Any], removed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys args and env with null for what is removed."""
    found: dict[str, Any] = {}
    for key, value in removed.items():
        del value
        part, name = ("env", key[4:]) if key.startswith("env.") else ("args", key)
        found.setdefault(part, dict(instance.get(part) or {}))[name] = None
    return found


def _of_recipe(row: Mapping[str, Any]) -> bool:
    """Return whether a recipe, or the plan by its recipe, has set a key of a plan."""
    own = row["layer"] in (COLLECTION, "group") or row["layer"].startswith("vllm_instances.")
    return row["value"] is not None and not own


def _added(plan: PlanDocument) -> list[tuple[str, str]]:
    """Return the arguments that the collection adds to those of the command, with their reasons."""
    rows = [row for row in plan["explain"] if row["layer"] == COLLECTION and not row["key"].startswith("env.")]
    return [(f"--{row['key']}", str(row["because"])) for row in rows if row["value"] is not None]
