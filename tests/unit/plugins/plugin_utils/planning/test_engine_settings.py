# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan instances: arguments and variables against the release's table, guards and rules."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTable
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.start_failures import START_FAILURES

from tests.fakes import plans as fakes
from tests.fakes.plans import (
    A3,
    FOREIGN,
    plan,
    recipe,
    refusal,
    warnings_of,
)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (
            {"args": {"max-model-length": 1}},
            "--max-model-length: vLLM 2.0.0 has no such flag; nearest: 'max-model-len'",
        ),
        (
            {"args": {"old-flag": "x"}},
            "--old-flag: vLLM 2.0.0 has no such flag, the last release here that has it is 1.0.0; instead: --new-flag",
        ),
        (
            {"args": {"new-flag": "x"}},
            "--new-flag: vLLM 2.0.0 has no such flag, the first release here that has it is 3.0.0; "
            "no flag has a similar name",
        ),
        ({"args": {"cc": {}}}, "--cc: vLLM 2.0.0 has no such flag; nearest: 'compilation-config'"),
        (
            {"args": {"compilation-config": {"level": 3}}},
            "--compilation-config.level: no such key in vLLM 2.0.0, the last release here that has it is 1.0.0, "
            "instead: "
            "mode; known: mode, sizes",
        ),
        (
            {"args": {"compilation-config.mod": 3}},
            "--compilation-config.mod: no such key in vLLM 2.0.0; nearest: 'mode'",
        ),
        ({"args": {"max-num-seqs": "many"}}, '--max-num-seqs: expected an integer, found "many"'),
        ({"args": {"headless": False}}, "--headless: vLLM 2.0.0 has no --no-headless; leave it out"),
        ({"args": {"caching": "yes"}}, '--caching: expected true or false (a switch, it takes no value), found "yes"'),
        (
            {"args": {"backend": "marlinn"}},
            "--backend: expected one of auto, marlin, found \"marlinn\"; nearest: 'marlin'",
        ),
        (
            {"env": {"VLLM_OLD": "1"}},
            "VLLM_OLD: vLLM 2.0.0 does not read this variable, the last release here that has it is 1.0.0; "
            "instead: --backend",
        ),
        ({"env": {"VLLM_USE_Y": "1"}}, "VLLM_USE_Y: vLLM 2.0.0 does not read this variable; nearest: 'VLLM_USE_X'"),
        (
            {"args": {"a": "1", "b": "2"}},
            "--a and --b exclude each other: vLLM takes one only",
        ),
        (
            {"args": {"zzz": 1, "max-num-seqs": []}},
            "--max-num-seqs: expected an integer, found []",
        ),
    ],
)
def test_what_the_release_does_not_take_is_refused(requested, message):
    found = refusal(requested)
    assert found.startswith("vllm_instances.chat: ")
    assert message in found


@pytest.mark.parametrize(
    ("requested", "warning"),
    [
        (
            {"args": {"max-model-length": 1}},
            "vllm_instances.chat: --max-model-length: vLLM 2.0.0 has no such flag; nearest: 'max-model-len'",
        ),
        (
            {"args": {"compilation-config": {"mod": 3}}},
            "vllm_instances.chat: --compilation-config.mod: no such key in vLLM 2.0.0; nearest: 'mode'",
        ),
        (
            {"env": {"VLLM_USE_Y": "1"}},
            "vllm_instances.chat: VLLM_USE_Y: vLLM 2.0.0 does not read this variable; nearest: 'VLLM_USE_X'",
        ),
    ],
)
def test_a_lenient_site_is_warned_of_names_that_the_table_does_not_have(requested, warning):
    refusal(requested)
    assert warning in plan(requested, site={"strict": False}).warnings


@pytest.mark.parametrize(
    "args",
    [
        {"max-num-seqs": "many"},
        {"headless": False},
        {"backend": "marlni"},
        {"compilation-config": {"mode": "x"}},
        {"a": "1", "b": "2"},
    ],
)
def test_a_lenient_site_is_refused_what_is_wrong_all_the_same(args):
    assert refusal({"args": args}, site={"strict": False}) == refusal({"args": args})


def test_names_with_underscores_are_those_of_vllms_command_line():
    given = {"max_num_seqs": 7, "compilation_config.mode": "3", "max-model-len": 4096}
    args = plan({"args": given}).args
    assert (args["max-num-seqs"], args["compilation-config"], args["max-model-len"]) == (7, {"mode": 3}, 4096)


def test_doubts_are_warnings():
    found = plan({"args": {"parser": "opnai"}, "env": {"MY_OWN": "1"}}).warnings
    assert "vllm_instances.chat: --parser: the types of vLLM 2.0.0 do not name 'opnai'; nearest: 'openai'" in found
    assert (
        "vllm_instances.chat.env: MY_OWN: neither vLLM 2.0.0 nor a library on this stack is known to read it; it may "
        "have no effect"
    ) in found


def test_what_the_collection_sets_itself_gives_no_warning():
    assert warnings_of(plan({"replicas": 1}, a_recipe=recipe())) == []


def test_a_recipe_for_a_nightly_and_weights_without_a_manifest_are_warnings():
    found = plan(a_recipe=recipe(model={"nightly_required": True}), manifests={}).warnings
    assert found == [
        "vllm_instances.chat.recipe: org/model was written for a nightly of vLLM; release '2.0' may be too old for it",
        "vllm_instances.chat: no manifest pins the weights of org/model, so no host can fetch them; make a manifest: "
        "ansible-playbook playbooks/pin_weights.yml -e pin_model=org/model -e pin_dest=DIR, and set "
        "weights_manifest_path: [DIR]",
    ]


def test_guards_see_what_came_out():
    guards = [
        {"when": {"args": {"max-num-seqs": ">=8"}, "tensor_parallel_size": 2}, "warn": "Many."},
        {"when": {"env": {"FLAG": "absent"}, "secrets": {"FLAG": "absent"}}, "refuse": "FLAG is missing."},
        {"when": {"args": {"no-caching": True}}, "refuse": "Caching is needed."},
    ]
    a_recipe = recipe(guards=guards)
    assert refusal(a_recipe=a_recipe) == "vllm_instances.chat: FLAG is missing."
    assert warnings_of(plan({"env": {"FLAG": "1"}}, a_recipe=a_recipe)) == ["vllm_instances.chat: Many."]
    by_secret = {"secrets": {"chat": ["FLAG"]}}
    assert warnings_of(plan({"args": {"max-num-seqs": 7}}, a_recipe=a_recipe, site=by_secret)) == []
    assert refusal({"args": {"caching": False}}, a_recipe=a_recipe, site=by_secret) == (
        "vllm_instances.chat: Caching is needed."
    )


def test_known_issues_of_this_host():
    issues = [
        {"symptom": "boom", "advice": "Duck.", "when": {"generation": "hopper"}},
        {"symptom": "b", "advice": "x", "when": {"generation": "amd"}},
    ]
    found = plan(a_recipe=recipe(known_issues=issues)).known_issues
    assert found == [{"symptom": "boom", "advice": "Duck."}, *START_FAILURES]


def test_rules_know_the_sizes_that_the_instance_asked_for():
    rules = [
        {
            "when": {"tensor_parallel_size": 1, "memory_gib": ">140", "runtime": "container"},
            "extra_args": ["--a", "one"],
        }
    ]
    a_recipe = recipe(hardware_overrides={"h200": {"rules": rules}})
    assert "a" not in plan(a_recipe=a_recipe).args
    assert plan({"args": {"tensor-parallel-size": 1}}, a_recipe=a_recipe).args["a"] == "one"


def test_no_client_has_vllm_fetch_pictures_from_any_address(monkeypatch):
    flags = {**fakes.FLAGS, "allowed-media-domains": {"kind": "list", "of": "text"}}
    data = {"version": "2.0.0", "flags": flags, "env": [*fakes.ENV, "VLLM_MEDIA_URL_ALLOW_REDIRECTS"]}
    monkeypatch.setattr(fakes, "TABLE", OptionTable.from_data(data))
    seeing = recipe(meta={"tasks": ["multimodal"]})
    found = plan(a_recipe=seeing)
    assert found.args["allowed-media-domains"] == ["none.invalid"]
    assert found.env["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"
    allowed = {"args": {"allowed-media-domains": ["pictures.example.org"]}}
    assert plan(allowed, a_recipe=seeing).args["allowed-media-domains"] == ["pictures.example.org"]
    assert "allowed-media-domains" not in plan({"args": {"allowed-media-domains": None}}, a_recipe=seeing).args
    assert "allowed-media-domains" not in plan().args
    # A recipe says text, and the weights can do more.
    for config in (
        {"vision_config": {}}, {"img_processor": {}}, {"visual": {}}, {"vq_config": {}}, {"patch_size": 14},
        {"encoder_config": {}}, {"architectures": ["MolmoForCausalLM"]},
    ):  # fmt: skip
        pinned = {"org/model": {**fakes.MANIFESTS["org/model"], "config": config}}
        assert plan(manifests=pinned).args["allowed-media-domains"] == ["none.invalid"], config


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        ({"args": {"max-modle-len": None}}, "--max-modle-len: vLLM 2.0.0 has no such flag; nearest: 'max-model-len'"),
        ({"env": {"VLLM_LOGING_LEVEL": None}}, "VLLM_LOGING_LEVEL: vLLM 2.0.0 does not read this variable"),
    ],
)
def test_a_name_that_takes_nothing_away_is_refused(requested, said):
    """A null took the name away before anything judged it."""
    with pytest.raises(PlanError) as error:
        plan(requested)
    assert said in str(error.value)
    # What a recipe sets can be taken away by its name, whatever the release makes of it.
    a_recipe = recipe()
    a_recipe["model"] |= {"base_args": ["--max-modle-len", "1"], "base_env": {"VLLM_LOGING_LEVEL": "x"}}
    plan({"args": {"max-modle-len": None}, "env": {"VLLM_LOGING_LEVEL": None}}, a_recipe=a_recipe)
    plan({"args": {"max_model_len": None}, "env": {"NCCL_SOMETHING": None}})


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "DO_NOT_TRACK"])
def test_a_recipe_alone_takes_nothing_away_that_the_collection_sets(name):
    a_recipe = recipe()
    a_recipe["model"]["base_env"] = {name: None}
    with pytest.raises(PlanError, match=f"the recipe sets {name} to null, which takes away what the collection"):
        plan(a_recipe=a_recipe)
    assert name not in plan({"env": {name: None}}, a_recipe=a_recipe).env


def test_vllm_s_own_check_of_variables_is_left_out_where_a_plugin_has_variables(monkeypatch):
    assert plan().args["fail-on-environ-validation"] is True
    monkeypatch.setattr(fakes, "FOREIGN", FOREIGN._replace(plugin="VLLM_ASCEND_"))
    found = plan({"env": {"VLLM_ASCEND_NEW": "1"}}, A3)
    assert "fail-on-environ-validation" not in found.args
    assert any("VLLM_ASCEND_NEW: no release of vLLM's plugin" in text for text in found.warnings)


def test_an_instance_that_requests_it_has_no_variable_at_which_vllm_would_stop(monkeypatch):
    monkeypatch.setattr(fakes, "FOREIGN", FOREIGN._replace(plugin="VLLM_ASCEND_"))
    stopping = {"env": {"VLLM_ASCEND_NEW": "1"}, "args": {"fail-on-environ-validation": True}}
    assert "VLLM_ASCEND_NEW: --fail-on-environ-validation lets vLLM stop at it" in refusal(stopping, A3)
    assert plan({**stopping, "env": {"TZ": "UTC"}}, A3).args["fail-on-environ-validation"] is True


def test_a_variable_that_a_lenient_site_permits_does_not_stop_vllm():
    found = plan({"env": {"VLLM_OF_A_NIGHTLY": "1"}}, site={"strict": False})
    assert "fail-on-environ-validation" not in found.args
    assert any("VLLM_OF_A_NIGHTLY: vLLM" in text for text in found.warnings)


def test_a_list_of_features_that_leaves_out_a_default_says_so():
    offered = recipe(
        features={"tools": {"args": []}, "defaults": {"args": ["--a", "1"]}, "more": {}}, opt_in_features=["more"]
    )
    left = "vllm_instances.chat.features: leaves out defaults, which the recipe has on by default"
    assert any(text.startswith(left) for text in plan({"features": ["tools", "more"]}, a_recipe=offered).warnings)
    for requested in ({}, {"features": []}, {"features": ["tools", "defaults"]}):
        assert not any(".features:" in text for text in plan(requested, a_recipe=offered).warnings)


def test_a_misspelt_key_of_vllm_ascend_is_refused_before_a_host_is_asked():
    host = declared_accelerator(load_catalogue(), "ascend_a3", 16)
    instance = {"recipe": "openai/gpt-oss-120b", "args": {"additional-config": {"enable_cpu_bindin": True}}}
    with pytest.raises(PlanError, match=r"additional-config.enable_cpu_bindin: .* nearest: 'enable_cpu_binding'"):
        plan_host("a", host, {**SITE, "release": "", "instances": {"chat": instance}})
    instance["args"] = {"additional-config": {"enable_cpu_binding": True, "of_tomorrow": 1}}
    plan = plan_host("a", host, {**SITE, "release": "", "instances": {"chat": instance}})["chat"]
    assert [text for text in plan["warnings"] if "additional-config.of_tomorrow" in text]
