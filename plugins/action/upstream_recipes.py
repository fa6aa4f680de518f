# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path
from typing import Any

from ..plugin_utils.catalog.files import RECIPES, known_names
from ..plugin_utils.catalog.option_tables import load_restrictions, load_table, releases
from ..plugin_utils.catalog.restricted_recipes import describe_restricted
from ..plugin_utils.catalog.upstream_archive import fetch_recipes, write_recipes
from ..plugin_utils.catalog.upstream_recipes import LICENCE, describe_replaced, load_pins, read_directory
from ..plugin_utils.common.action import ControllerAction


class ActionModule(ControllerAction):
    """Fetches the recipes of a vLLM release into a site's directory, as far as they are not there."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        pins = load_pins(options["release"])
        target = Path(options["dest"])
        # A site's file goes before the collection's own recipe of the same name, so only who names it gets it.
        bundled = [name for name in known_names("recipes", RECIPES, ()) if name in pins.recipes]
        wanted = pins.wanted(options["names"], bundled)
        directory = read_directory(target, wanted)
        missing, kept = directory.missing(wanted), directory.kept(wanted)
        if missing and not self._task.check_mode:
            contents = fetch_recipes(pins, options["source"] or "index", options["ca_file"])
            write_recipes(target, pins, directory, contents, wanted)
        names = sorted(path.rpartition(".")[0] for path in wanted if path != LICENCE)
        found = {"changed": bool(missing), "recipes": names, "fetched": missing, "kept": kept, "release": pins.vllm}
        told = [f"{path} was changed on this site and stays" for path in kept]
        told += describe_replaced(target, bundled, names)
        told += describe_restricted(target, names, load_table(releases()[-1]), load_restrictions())
        return {**found, "diff": {"prepared": "".join(f"+{path}\n" for path in missing)}, "warnings": told}
