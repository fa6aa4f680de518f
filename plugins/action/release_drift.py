# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path
from typing import Any, Mapping

from ansible.errors import AnsibleActionFail

from ..module_utils.common.kinds import name_kind
from ..plugin_utils.catalog.accelerators import declared_accelerator, load_catalogue
from ..plugin_utils.catalog.files import load_recipe
from ..plugin_utils.catalog.option_tables import load_foreign, load_replaced, load_table
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show, show_json
from ..plugin_utils.common.yaml import load_yaml
from ..plugin_utils.common.yaml_events import EventYamlError
from ..plugin_utils.drift.report import Side, drift, drift_table, lost, table_drift
from ..plugin_utils.drift.uses import DriftError, Use, command_uses, config_uses, recipe_uses
from ..plugin_utils.evidence.citation import outdated, outdated_lines
from ..plugin_utils.evidence.files import load_evidence

# The playbook's variable for each required option.
VARIABLES = {"older": "drift_from", "newer": "drift_to"}


class ActionModule(ControllerAction):
    """Compares two releases."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        for option, variable in VARIABLES.items():
            if not options[option]:
                raise AnsibleActionFail(
                    f"{variable} is missing: set it to a vLLM release, for example -e {variable}=0.33.0"
                )
        evidence = load_evidence(options["evidence_path"])
        rows = report(options)
        old = outdated(evidence, options["newer"], options["recipe"], options["accelerator"])
        files = [Path(options[key]).name for key in ("command", "config") if options[key]]
        what = " and ".join([*([options["recipe"]] if options["recipe"] else []), *files])
        lines = outdated_lines(old, options["newer"])
        text = "\n\n".join(
            [drift_table(rows, options["older"], options["newer"], what), *(["\n".join(lines)] if lines else [])]
        )
        as_json = options["format"] == "json"
        if as_json:
            show_json(rows)
        else:
            show(text)
        names = [row["setting"] for row in lost(rows)]
        if options["fail"] and names:
            raise AnsibleActionFail(
                f"no longer works in vLLM {options['newer']}: {', '.join(names)}; the play fails because "
                "drift_fail is set"
            )
        return {"settings": rows, "lost": names, "outdated_evidence": old}


def report(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the report that the options ask for."""
    accelerator = None
    if options["accelerator"]:
        catalogue = load_catalogue(options["accelerator_catalog_path"])
        accelerator = declared_accelerator(catalogue, options["accelerator"], 1)
    foreign = load_foreign(accelerator.stack if accelerator else None)
    older, newer = Side(load_table(options["older"]), foreign), Side(load_table(options["newer"]), foreign)
    uses: list[Use] = []
    if options["recipe"]:
        recipe = load_recipe(options["recipe"], options["recipe_path"])
        uses += recipe_uses(recipe, older.version, newer.version, accelerator)
    if options["command"]:
        uses += command_uses(_text("drift_command", options["command"]), Path(options["command"]).name)
    if options["config"]:
        uses += config_uses(_config(options["config"]), Path(options["config"]).name)
    if any(options[key] for key in ("recipe", "command", "config")):
        return drift(uses, older, newer, load_replaced())
    return table_drift(older, newer, load_replaced())


def _text(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise DriftError(f"{variable}: {path} cannot be read: {exc}") from exc


def _config(path: str) -> Mapping[str, Any]:
    try:
        data = load_yaml(_text("drift_config", path))
    except EventYamlError as exc:
        raise DriftError(f"drift_config: {path} is not YAML: {exc.with_place()}") from exc
    if not isinstance(data, dict):
        raise DriftError(f"drift_config: {path}: found {name_kind(data)}, expected a mapping of flags to values")
    return data
