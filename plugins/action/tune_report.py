# SPDX-License-Identifier: GPL-3.0-or-later

import json
import statistics
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Mapping

from ..module_utils.vllm.plan_document import PlanDocument
from ..plugin_utils.bench.evidence import evidence, evidence_path, evidence_text
from ..plugin_utils.bench.summary import Record
from ..plugin_utils.catalog.files import find
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.tune.choice import Choice, choose, complete_variants, result_table, rows
from ..plugin_utils.tune.proposal import instance_diff, recipe_diff
from ..plugin_utils.tune.store import Store, goal_of, rules_of, step_of
from ..plugin_utils.tune.variants import CURRENT, changed_instances


class ActionModule(ControllerAction):
    """Writes the result of a tune: the table, evidence for each variant, and the proposed change."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host, name = variables["inventory_hostname"], options["instance"]
        store = Store(options["dir"], host, name)
        settings = store.settings()
        names, goal, rules, step = list(settings["variants"]), goal_of(settings), rules_of(settings), step_of(settings)
        taken = store.taken(names, step, rules.rounds)
        choice, found = choose(names, taken, goal, rules), rows(names, taken, goal, rules)
        date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        written = [
            store.write(f"evidence/{_place(document, variant)}", evidence_text(document))
            for variant in complete_variants(names, taken, goal, rules)
            for document in [
                _evidence(
                    store.plan(variant), store.taken_records(variant, step, rules.rounds), options["driver"], date
                )
            ]
        ]
        diffs = self._diffs(store, settings, choice, options, date) if choice.proposed else {}
        proposal = store.write("proposal.diff", "\n".join(diffs.values()))
        result = {
            "goal": goal.describe(),
            "winner": choice.winner,
            "proposed": choice.proposed,
            "reason": choice.reason,
        }
        path = store.write("result.json", json.dumps({**result, "variants": found}, indent=1) + "\n")
        texts = [result_table(found, goal, choice), *diffs.values(), f"Evidence: {store.directory}/evidence"]
        show("\n\n".join(texts))
        return {
            "changed": True,
            **result,
            "variants": found,
            "evidence": written,
            "proposal": proposal,
            "result": path,
            **diffs,
        }

    @staticmethod
    def _diffs(
        store: Store, settings: Mapping[str, Any], choice: Choice, options: Mapping[str, Any], date: str
    ) -> dict[str, str]:
        """Return the proposed change as diffs: of the site's instances, and of the recipe if a rule can express it."""
        name, change, plan = options["instance"], settings["variants"][choice.winner], store.plan(CURRENT)
        after = changed_instances(options["instances"], name, change)
        diffs = {"instance_diff": instance_diff(options["instances"], after, name)}
        recipe = find("recipes", plan["recipe"], (".yaml", ".yml"), options["recipe_path"])
        text = recipe.read_text(encoding="utf-8")
        because = f"Measured by tune.yml on {date}, {choice.reason}"
        hardware = (plan["accelerator"], plan["vllm_version"])
        found = recipe_diff(text, _display_path(recipe), plan.get("preset"), hardware, change, because)
        return {**diffs, "recipe_diff": found} if found else diffs


def _display_path(recipe: Path) -> str:
    """Return the path of a recipe for the diff, from ``catalog`` on for a bundled one."""
    parts = recipe.parts
    return "/".join(parts[parts.index("catalog") :]) if "catalog" in parts else str(recipe)


def _evidence(plan: PlanDocument, records: Mapping[int, Record], driver: str, date: str) -> dict[str, Any]:
    """Return the evidence of a variant; its start took the median of its rounds."""
    seconds = [record["start_seconds"] for record in records.values() if record.get("start_seconds")]
    limits = [record.get("power_limit_watts") for record in records.values()]
    info = {
        "start_seconds": round(statistics.median(seconds), 1) if seconds else None,
        "power_limit_watts": limits[-1] if limits else None,
    }
    return evidence(plan, info, driver, list(records.values()), date)


def _place(document: Mapping[str, Any], variant: str) -> str:
    """Return where the evidence of a variant lies: its name follows the date."""
    path = evidence_path(document)
    return path if variant == CURRENT else f"{path[: -len('.yml')]}-{variant}.yml"
