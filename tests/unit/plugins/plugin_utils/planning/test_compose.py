# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTable
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.compose import (
    Choice,
    Layer,
    Step,
    compose,
    features_on,
    layers_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.strategies import Sizes

H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8)
B200 = Accelerator("b200", "cuda", "blackwell", "nvidia", 8)
MI355X = Accelerator("mi355x", "rocm", "gfx950", "amd", 8)

TABLE = OptionTable.from_data(
    {
        "version": "2.0.0",
        "env": [],
        "flags": {
            "x": {"kind": "text"},
            "y": {"kind": "text"},
            "caching": {"kind": "switch", "negatable": True},
            "j": {"kind": "json"},
            "tensor-parallel-size": {"kind": "integer"},
        },
    }
)


def block(word, args="extra_args", env="extra_env"):
    return {args: ["--x", word], env: {"X": word}}


def rule(word, args="extra_args", env="extra_env"):
    return {**block(word, args, env), "because": f"Because of {word}"}


# One flag and one variable, set by everything that can set them; weakest first.
STEPS = [
    ("model", None),
    ("model", "Because of model rule"),
    ("variants.v", None),
    ("variants.v", "Because of variant rule"),
    ("variants.v.hardware_overrides.h200", None),
    ("strategy single_node_tp", "words of the strategy"),
    ("strategy_overrides.single_node_tp", None),
    ("strategy_overrides.single_node_tp", "Because of strategy rule"),
    ("strategy_overrides.single_node_tp", None),
    ("presets.p", None),
    ("presets.p", "Because of preset rule"),
    ("presets.p.hardware_overrides.hopper", None),
    ("presets.p.hardware_overrides.h200", None),
    ("hardware_overrides.hopper", None),
    ("hardware_overrides.hopper", "Because of hopper rule"),
    ("variants.v.hardware_overrides.hopper", None),
    ("hardware_overrides.h200", None),
    ("hardware_overrides.h200_8x", None),
    ("strategy_overrides.single_node_tp.hardware_overrides.h200", None),
    ("features.f", None),
    ("features.f", "Because of feature rule"),
    ("features.g.modes.m", None),
    ("features.g.modes.m", "Because of mode rule"),
    ("features.g", "Because of feature g rule"),
    ("release_fixes", "Because of fix"),
]


def everything():
    return {
        "model": {
            "model_id": "org/model",
            "base_args": ["--x", "model"],
            "base_env": {"X": "model"},
            "rules": [rule("model rule")],
        },
        "variants": {
            "v": {
                **block("variant"),
                "rules": [rule("variant rule")],
                "hardware_overrides": {"h200": block("variant h200"), "hopper": block("variant hopper")},
            }
        },
        "strategy_overrides": {
            "single_node_tp": {
                **block("strategy"),
                "rules": [rule("strategy rule")],
                "vllm_args": ["--x", "strategy vllm_args"],
                "env": {"X": "strategy env"},
                "hardware_overrides": {"h200": block("strategy h200")},
            }
        },
        "presets": {
            "p": {
                **block("preset"),
                "rules": [rule("preset rule")],
                "hardware_overrides": {"hopper": block("preset hopper"), "h200": block("preset h200")},
            }
        },
        "hardware_overrides": {
            "nvidia": block("vendor"),
            "blackwell": block("blackwell"),
            "hopper": {**block("hopper"), "rules": [rule("hopper rule")]},
            "h200": block("h200"),
            "h200_8x": block("h200 8x"),
        },
        "features": {
            "f": {**block("feature", "args", "env"), "rules": [rule("feature rule", "args", "env")]},
            "g": {
                "args": ["--x", "never: the modes have args of their own"],
                "rules": [rule("feature g rule", "args", "env")],
                "modes": {"m": {**block("mode", "args", "env"), "rules": [rule("mode rule", "args", "env")]}},
            },
        },
        "release_fixes": [rule("fix")],
    }


CHOICE = Choice(
    "v",
    "single_node_tp",
    "p",
    {"f": None, "g": "m"},
    Sizes(["--x", "size"], 1, 1, "words of the strategy", {"X": "size"}),
)


def layers(recipe, accelerator=H200, choice=CHOICE, facts=None):
    return layers_of(recipe, accelerator, choice, facts or {})


def where(found):
    return [layer.where for layer in found]


def test_every_layer_has_its_place_weakest_first():
    assert [(layer.where, layer.because) for layer in layers(everything())] == STEPS


def test_the_strongest_layer_that_is_there_wins():
    """Take the layers away from the strongest on: what is left wins each time, for flags and variables alike."""
    found = layers(everything())
    assert len({str(layer.words) for layer in found}) == len(STEPS)
    while found:
        composed = compose(found, TABLE, "recipe")
        last = found.pop()
        assert composed.args == {"x": last.words[1]}
        assert composed.env == {"X": last.env["X"]}
        assert composed.history["x"][-1] == Step(last.where, last.words[1], last.because)
        assert len(composed.history["x"]) == len(found) + 1


def test_a_strategy_s_block_for_the_generation_stands_in_place_of_the_recipe_s_and_the_variant_s():
    recipe = everything()
    recipe["strategy_overrides"]["single_node_tp"]["hardware_overrides"]["hopper"] = block("strategy hopper")
    names = where(layers(recipe))
    assert "strategy_overrides.single_node_tp.hardware_overrides.hopper" in names
    assert "hardware_overrides.hopper" not in names
    assert "variants.v.hardware_overrides.hopper" not in names
    # What is for exactly this hardware stays.
    assert "hardware_overrides.h200" in names


@pytest.mark.parametrize(
    ("accelerator", "overrides", "found"),
    [
        (H200, ["nvidia"], ["nvidia"]),
        (H200, ["nvidia", "hopper"], ["hopper"]),
        (H200, ["blackwell"], []),
        (MI355X, ["amd", "gfx950", "mi355x", "gfx942", "nvidia"], ["amd", "gfx950", "mi355x"]),
    ],
)
def test_hardware_takes_the_blocks_that_mean_it(accelerator, overrides, found):
    recipe = {"model": {}, "hardware_overrides": {name: block(name) for name in overrides}}
    choice = Choice("default", "single_node_tp", None, {}, Sizes([], 1, 1))
    assert where(layers(recipe, accelerator, choice)) == [f"hardware_overrides.{name}" for name in found]


def test_without_preset_features_and_overrides_only_model_and_strategy_are_left():
    recipe = {"model": {"base_args": ["--x", "a"]}, "presets": {"p": block("preset")}, "features": {"f": None}}
    choice = Choice("default", "single_node_tp", None, {"f": None}, Sizes(["--y", "1"], 1, 1))
    assert where(layers(recipe, H200, choice)) == ["model", "strategy single_node_tp"]


def test_a_preset_and_a_mode_may_be_empty():
    recipe = {"model": {}, "presets": {"p": None}, "features": {"g": {"modes": {"m": None}}}}
    choice = Choice("default", "single_node_tp", "p", {"g": "m"}, Sizes(["--y", "1"], 1, 1))
    assert where(layers(recipe, H200, choice)) == ["strategy single_node_tp"]


def test_rules_of_a_block_are_asked_one_by_one():
    rules = [
        {"when": {"vllm": ">=2"}, "because": "New", "extra_args": ["--x", "new"]},
        {"when": {"vllm": "<2"}, "because": "Old", "extra_args": ["--x", "old"]},
        {"unless": {"driver": ">=9"}, "because": "Unknown driver", "extra_env": {"D": "1"}},
    ]
    recipe = {"model": {"rules": rules}}
    choice = Choice("default", "single_node_tp", None, {}, Sizes([], 1, 1))
    because = {
        version: [layer.because for layer in layers(recipe, H200, choice, {"vllm": version})]
        for version in ("1.9", "2.0")
    }
    assert because == {"1.9": ["Old", "Unknown driver"], "2.0": ["New", "Unknown driver"]}
    known = {"vllm": "2.0", "driver": "9.1"}
    assert [layer.because for layer in layers(recipe, H200, choice, known)] == ["New"]


@pytest.mark.parametrize(
    ("accelerator", "words", "env"),
    [
        (H200, ["--x", "all"], {"A": "all", "B": "all"}),
        # An override stands in place of the words; variables are laid over each other.
        (B200, ["--x", "blackwell"], {"A": "blackwell", "B": "all"}),
        (MI355X, ["--x", "mi355x"], {"A": "all", "B": "all"}),
    ],
)
def test_an_override_of_a_feature_stands_in_place_of_its_words(accelerator, words, env):
    feature = {
        "args": ["--x", "all"],
        "env": {"A": "all", "B": "all"},
        "hardware_overrides": {
            "blackwell": {"args": ["--x", "blackwell"], "env": {"A": "blackwell"}},
            "amd": {"args": ["--x", "amd"]},
            "mi355x": {"args": ["--x", "mi355x"]},
        },
    }
    for entry, mode in ((feature, None), ({"modes": {"m": feature}}, "m")):
        choice = Choice("default", "single_node_tp", None, {"f": mode}, Sizes([], 1, 1))
        (layer,) = layers({"model": {}, "features": {"f": entry}}, accelerator, choice)
        assert (list(layer.words), layer.env) == (words, env)


def test_an_empty_list_of_words_in_an_override_takes_the_feature_s_words_away():
    feature = {"args": ["--x", "all"], "hardware_overrides": {"hopper": {"args": []}}}
    choice = Choice("default", "single_node_tp", None, {"f": None}, Sizes([], 1, 1))
    assert layers({"model": {}, "features": {"f": feature}}, H200, choice) == []


# compose


def test_none_takes_away_and_history_remembers():
    composed = compose(
        [Layer("a", ["--x", "1"], {"E": "1"}), Layer("b", {"x": None}, {"E": None}, "not here")], TABLE, "recipe"
    )
    assert composed.args == composed.env == {}
    assert composed.history == {
        "x": [Step("a", "1", None), Step("b", None, "not here")],
        "env.E": [Step("a", "1", None), Step("b", None, "not here")],
    }


@pytest.mark.parametrize(
    ("first", "then", "args", "name"),
    [
        (["--caching"], ["--no-caching"], {"caching": False}, "no-caching"),
        (["--no-caching"], ["--caching"], {"caching": True}, "caching"),
        (["--no-caching"], {"no-caching": None}, {}, "caching"),
        (["--no-caching"], {"caching": True}, {"caching": True}, "caching"),
    ],
)
def test_a_switch_and_its_negation_are_one_key_with_one_history(first, then, args, name):
    composed = compose([Layer("a", first), Layer("b", then)], TABLE, "recipe")
    assert composed.args == args
    assert list(composed.history) == [name]
    assert [step.layer for step in composed.history[name]] == ["a", "b"]


def test_history_of_a_json_flag_holds_the_whole_of_it():
    composed = compose([Layer("a", ["--j", '{"k": 1}']), Layer("b", {"j.l": 2})], TABLE, "recipe")
    assert composed.history["j"] == [Step("a", {"k": 1}, None), Step("b", {"k": 1, "l": 2}, None)]


def test_numbers_become_variables_as_text():
    assert compose([Layer("a", (), {"N": 1, "F": 0.5})], TABLE, "recipe").env == {"N": "1", "F": "0.5"}


def test_words_that_cannot_be_read_name_recipe_and_layer():
    with pytest.raises(PlanError) as caught:
        compose([Layer("hardware_overrides.cpu", ["word"])], TABLE, "recipe org/model")
    assert str(caught.value) == (
        "recipe org/model, hardware_overrides.cpu: 'word' does not follow a flag; expected words like "
        "'--max-model-len', '4096'"
    )


# features_on

RECIPE = {
    "model": {"model_id": "org/model"},
    "features": {
        "tools": None,
        "spec": {
            "default_mode": "second",
            "modes": {
                "first": {"variants": ["v"]},
                "second": {"hardware": {"amd": "unsupported"}},
                "third": None,
            },
        },
        "fp8": {"hardware": {"default": "unsupported", "hopper": "verified"}},
        "spread": {"strategies": ["multi_node_tp"]},
    },
    "opt_in_features": ["spec"],
    "hardware_opt_in_features": {"blackwell": ["tools"]},
    "variants": {"v": {"default_modes": {"spec": "first"}}, "default": {}},
}


def on(requested=None, modes=None, accelerator=H200, variant="default", strategy="single_node_tp", recipe=None):
    return features_on(recipe or RECIPE, accelerator, strategy, variant, requested, modes or {}, "vllm_instances.chat")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, {"tools": None, "fp8": None}),
        ({"accelerator": B200}, {}),
        ({"accelerator": MI355X}, {"tools": None}),
        ({"strategy": "multi_node_tp"}, {"tools": None, "fp8": None, "spread": None}),
        ({"requested": []}, {}),
        # The order is the recipe's, not the request's.
        ({"requested": ["spec", "tools"]}, {"tools": None, "spec": "second"}),
        ({"requested": ["spec"], "variant": "v"}, {"spec": "first"}),
        ({"requested": ["spec"], "accelerator": MI355X}, {"spec": "third"}),
        ({"requested": ["spec"], "modes": {"spec": "third"}}, {"spec": "third"}),
    ],
)
def test_which_features_are_on(options, found):
    result = on(**options)
    assert result == found
    assert list(result) == list(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"requested": ["tool"]}, "features: recipe org/model has no feature 'tool'; nearest: 'tools'"),
        ({"modes": {"spek": "first"}}, "feature_modes: recipe org/model has no feature 'spek'; nearest: 'spec'"),
        (
            {"requested": ["spec"], "modes": {"spec": "secnd"}},
            "feature_modes.spec: recipe org/model has no mode 'secnd'; nearest: 'second'",
        ),
        (
            {"requested": ["spec"], "modes": {"spec": "first"}},
            "feature_modes.spec: 'first' is not for h200 and the variant 'default'; available: second, third",
        ),
        (
            {"requested": ["tools"], "modes": {"tools": "fast"}},
            "feature_modes.tools: this feature has no modes; found 'fast'",
        ),
        (
            {"requested": ["tools"], "modes": {"spec": "second"}},
            "feature_modes.spec: this feature is off; add it to vllm_instances.chat.features",
        ),
        ({"requested": ["fp8"], "accelerator": B200}, "features: fp8 of recipe org/model does not run on b200"),
        (
            {"requested": ["spread"]},
            "features: spread of recipe org/model does not support the strategy single_node_tp; supported: "
            "multi_node_tp",
        ),
    ],
)
def test_a_feature_that_cannot_be_on_is_one_sentence(options, message):
    with pytest.raises(PlanError) as caught:
        on(**options)
    assert str(caught.value) == f"vllm_instances.chat.{message}"


def test_a_feature_without_a_mode_for_this_hardware():
    recipe = {**RECIPE, "features": {"spec": {"modes": {"m": {"hardware": {"nvidia": "unsupported"}}}}}}
    assert on(recipe={**recipe, "opt_in_features": []}) == {}
    with pytest.raises(PlanError) as caught:
        on(["spec"], recipe=recipe)
    assert str(caught.value) == (
        "vllm_instances.chat.features: spec of recipe org/model has no mode for h200 and the variant 'default'"
    )


@pytest.mark.parametrize(
    "layer", [{"words": [f"--f{n}" for n in range(500)]}, {"env": {f"F{n}": "1" for n in range(500)}}]
)
def test_a_layer_of_hundreds_of_settings_is_refused_before_each_is_compared(layer):
    with pytest.raises(PlanError, match="recipe x, model: found 500 arguments and variables, expected at most 200"):
        compose([Layer("model", **layer)], TABLE, "recipe x")
