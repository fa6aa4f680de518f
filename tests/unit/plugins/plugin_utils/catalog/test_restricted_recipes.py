# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of a directory that set what an instance has to allow."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_restrictions,
    load_table,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.restricted_recipes import describe_restricted

RECIPE = """\
model:
  model_id: org/model
  base_env: {LD_PRELOAD: /x.so, PYTHONHASHSEED: "0"}
variants:
  default:
    hardware_overrides: {h200: {extra_args: [--allowed-local-media-path, /]}}
features:
  vision:
    modes: {all: {args: ["--kv-transfer-config", '{"kv_connector_module_path": "evil"}']}}
"""


def test_each_recipe_is_named_once_with_what_it_sets(tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org/model.yaml").write_text(RECIPE)
    (tmp_path / "org/plain.yaml").write_text("model: {model_id: org/plain, base_args: [--max-num-seqs, '8']}\n")
    (tmp_path / "org/odd.yaml").write_text("model: {model_id: org/odd, base_args: [word]}\n")
    names = ["org/model", "org/plain", "org/odd", "org/missing"]
    assert describe_restricted(tmp_path, names, load_table("0.33.0"), load_restrictions()) == [
        "org/model sets LD_PRELOAD, --allowed-local-media-path, --kv-transfer-config.kv_connector_module_path, which "
        "an instance that uses it has to allow"
    ]
