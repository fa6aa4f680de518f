# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.compose import Composed, Step
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.explanation import explain

SITE, RECIPE = Step("vllm_instances.chat", 4, None), Step("recipe", 2, "strategy single_node_tp")


def test_the_last_layer_set_a_value_and_the_others_were_overridden():
    composed = Composed({}, {}, {"size": [RECIPE, SITE]})
    (row,) = explain(composed, {"size": 4}, {})
    assert (row["value"], row["layer"], row["because"]) == (4, "vllm_instances.chat", None)
    assert row["overrides"] == [{"layer": "recipe", "value": 2}]


def test_what_no_layer_set_is_the_collections_own():
    rows = explain(Composed({}, {}, {"env.HOME": []}), {"port": 8000}, {"HOME": "/var/cache/vllm/chat"})
    assert [(row["key"], row["layer"], row["overrides"]) for row in rows] == [
        ("port", "collection", []), ("env.HOME", "collection", []),
    ]  # fmt: skip
    assert all(row["because"] for row in rows)


def test_a_key_that_a_layer_removed_is_shown_without_a_value():
    composed = Composed({}, {}, {"env.FLAG": [RECIPE, Step("vllm_instances.chat", None, None)]})
    (row,) = explain(composed, {}, {})
    assert (row["key"], row["value"], row["layer"]) == ("env.FLAG", None, "vllm_instances.chat")
