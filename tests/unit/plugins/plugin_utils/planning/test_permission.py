# SPDX-License-Identifier: GPL-3.0-or-later
"""What loads code or opens the server needs the instance's permission, as code that comes with weights does."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import LIBRARY
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_restrictions
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.restricted import Restrictions
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import Foreign, OptionTable
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.compose import Layer, compose
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import (
    PermissionNeededError,
    PlanError,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.permission import (
    check_permission,
    check_secrets,
)

from tests.fakes.plans import CPU, H200, RELEASE, TABLE, plan, recipe

TRUSTING = recipe(model={"base_args": ["--trust-remote-code"]})


def manifests(*names):
    files = {name: {"size": 1, "sha256": "0" * 64} for name in ("model.safetensors", *names)}
    return {"org/model": {"repository": "org/model", "revision": "e" * 40, "files": files}}


def test_a_recipe_alone_cannot_allow_it():
    with pytest.raises(PlanError) as caught:
        plan(a_recipe=TRUSTING, manifests=manifests("modeling_x.py", "b.py", "c.py", "a.py"))
    assert str(caught.value) == (
        "vllm_instances.chat: the recipe sets --trust-remote-code, and the weights of org/model bring code that vLLM "
        "would run: a.py, b.py, c.py and 1 more; read these files, then allow them with vllm_instances.chat.args: "
        "{trust-remote-code: true}, or remove the flag with {trust-remote-code: null}"
    )


def test_the_site_allows_or_removes_it():
    code = manifests("modeling_x.py")
    assert plan({"args": {"trust-remote-code": True}}, a_recipe=TRUSTING, manifests=code).args["trust-remote-code"]
    removed = plan({"args": {"trust-remote-code": None}}, a_recipe=TRUSTING, manifests=code)
    assert "trust-remote-code" not in removed.args


def test_weights_without_code_are_not_affected():
    assert plan(a_recipe=TRUSTING, manifests=manifests()).args["trust-remote-code"] is True
    assert plan(a_recipe=TRUSTING, manifests={}).args["trust-remote-code"] is True
    assert "trust-remote-code" not in plan(a_recipe=recipe(), manifests=manifests("modeling_x.py")).args


@pytest.mark.parametrize("flag", ["spec-model", "tokenizer", "hf-config-path"])
def test_code_of_any_other_pinned_repository_needs_it_too(flag):
    code = {**manifests(), "org/other": {**manifests("x.py")["org/model"], "repository": "org/other"}}
    words = ["--trust-remote-code", f"--{flag}", "org/other"]
    with pytest.raises(PermissionNeededError, match=r"the weights of org/other bring code that vLLM would run: x\.py"):
        plan(a_recipe=recipe(model={"base_args": words}), manifests=code, site={"strict": False})


RESTRICTIONS = load_restrictions()
# As a lenient site plans: the small table of these tests lacks most names.
LENIENT = {"strict": False}


def strict_plan(requested=None, **more):
    return plan(requested, restrictions=RESTRICTIONS, site=LENIENT, **more)


def test_a_recipe_alone_cannot_load_code_into_vllm():
    evil = recipe(model={"base_env": {"LD_PRELOAD": "/srv/models/org/model/x.so"}})
    with pytest.raises(PermissionNeededError) as caught:
        strict_plan(a_recipe=evil)
    assert str(caught.value) == (
        'vllm_instances.chat: the recipe sets LD_PRELOAD to "/srv/models/org/model/x.so", which the dynamic linker and '
        "the C library obey in every process; a recipe alone cannot allow that: read what it is for, then allow it "
        'with vllm_instances.chat.env: {LD_PRELOAD: "/srv/models/org/model/x.so"}, or remove it with the value null'
    )


@pytest.mark.parametrize("value", ["1\0", "1\r2", "\x1b[2J", "1\x7f"])
def test_no_value_of_a_recipe_has_control_characters(value):
    with pytest.raises(PermissionNeededError, match="which recipes may not set to such a value"):
        strict_plan(a_recipe=recipe(model={"base_env": {"OMP_NUM_THREADS": value}}))


def test_what_the_message_says_to_write_is_no_template():
    evil = recipe(model={"base_args": ["--chat-template", "{{ 6 * 7 }}"], "base_env": {"NOBODY_KNOWS": "{% x %}"}})
    with pytest.raises(PermissionNeededError) as caught:
        strict_plan(a_recipe=evil)
    assert 'vllm_instances.chat.args: {chat-template: !unsafe "{{ 6 * 7 }}"}' in str(caught.value)
    assert 'vllm_instances.chat.env: {NOBODY_KNOWS: !unsafe "{% x %}"}' in str(caught.value)


BLOCKS = {
    "model": {"model": {"base_args": ["--middleware", "evil.Code"]}},
    "rule": {"model": {"rules": [{"when": {"stack": "cuda"}, "extra_args": ["--middleware", "evil.Code"]}]}},
    "variant": {"variants": {"default": {"extra_args": ["--middleware=evil.Code"]}}},
    "hardware": {"hardware_overrides": {"hopper": {"extra_args": ["--middleware", "evil.Code"]}}},
    "feature": {"features": {"f": {"args": ["--middleware", "evil.Code"]}}},
    "release": {"release_fixes": [{"when": {"stack": "cuda"}, "extra_args": ["--middleware", "evil.Code"]}]},
    "strategy": {"strategy_overrides": {"single_node_tp": {"vllm_args": ["--middleware", "evil.Code"]}}},
}


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("runtime", ["container", "venv"])
def test_no_block_of_a_recipe_can_in_either_runtime(block, runtime):
    evil = recipe(**BLOCKS[block])
    accelerator = H200 if runtime == "container" else CPU
    if runtime == "venv" and block in ("rule", "release", "hardware"):
        # These name the hardware.
        evil = json.loads(json.dumps(evil).replace('"cuda"', '"cpu"').replace('"hopper"', '"cpu"'))
    with pytest.raises(PermissionNeededError, match=r"--middleware to .*evil\.Code.*\.args: \{middleware: "):
        strict_plan({"runtime": runtime}, a_recipe=evil, accelerator=accelerator)


def test_the_instance_allows_the_same_value_only_or_removes_it():
    evil = recipe(model={"base_env": {"PYTHONPATH": "/srv/a"}, "base_args": ["--middleware", "evil.Code"]})
    allowed = {"env": {"PYTHONPATH": "/srv/a"}, "args": {"middleware": "evil.Code"}}
    assert strict_plan(allowed, a_recipe=evil).env["PYTHONPATH"] == f"{LIBRARY}:/srv/a"
    removed = strict_plan({"env": {"PYTHONPATH": None}, "args": {"middleware": None}}, a_recipe=evil)
    assert removed.env["PYTHONPATH"] == LIBRARY and "middleware" not in removed.args
    with pytest.raises(PermissionNeededError) as caught:
        strict_plan({"env": {"PYTHONPATH": "/srv/a"}}, a_recipe=evil)
    assert caught.value.settings == {"args": {"middleware": "evil.Code"}, "env": {}}
    # Its own value replaces the recipe's.
    own = {"env": {"PYTHONPATH": "/srv/b"}, "args": {"middleware": "mine.Code"}}
    assert strict_plan(own, a_recipe=evil).env["PYTHONPATH"] == f"{LIBRARY}:/srv/b"


def test_a_value_from_elsewhere_allows_a_recipe_no_other_one():
    entry = SimpleNamespace(table=TABLE, where="vllm_instances.chat", requested={})
    layers = [
        Layer("release", ["--middleware", "own.Code"], {"LD_PRELOAD": "/image/a.so"}),
        Layer("model", ["--middleware", "evil.Code"], {"LD_PRELOAD": "/srv/b.so"}, by_recipe=True),
    ]
    check_permission(entry, compose(layers[:1], TABLE, entry.where), layers[:1], RESTRICTIONS)
    with pytest.raises(PermissionNeededError) as caught:
        check_permission(entry, compose(layers, TABLE, entry.where), layers, RESTRICTIONS)
    assert caught.value.settings == {"args": {"middleware": "evil.Code"}, "env": {"LD_PRELOAD": "/srv/b.so"}}


def test_a_key_inside_json_needs_a_permission_of_its_own():
    nested = '{"mode": 1, "inductor_passes": {"a": "evil.run"}}'
    evil = recipe(model={"base_args": ["--compilation-config", nested]})
    with pytest.raises(PermissionNeededError, match=r"--compilation-config\.inductor_passes to "):
        strict_plan({"args": {"compilation-config.mode": 2}}, a_recipe=evil)
    allowed = {"args": {"compilation-config.inductor_passes": {"a": "evil.run"}}}
    assert strict_plan(allowed, a_recipe=evil).args["compilation-config"]["mode"] == 1


@pytest.mark.parametrize(
    ("words", "names"),
    [
        # vLLM's parser takes the beginning of a flag for the flag, and a lenient site passes on what its table lacks.
        (["--trust-remote", "--lora-mod", "a"], "trust-remote, lora-mod"),
        (["--some-new-flag=1"], "some-new-flag"),
        (["--compilation-config", '{"some_new_key": 1}'], "compilation-config.some_new_key"),
        (["--tokenizer", "/srv/evil"], "tokenizer"),
        (["--chat-template", "/etc/passwd"], "chat-template"),
        (["--speculative-config", '{"model": "https://example.org/draft"}'], "speculative-config.model"),
    ],
)
def test_a_recipe_alone_sets_nothing_that_nobody_has_reviewed(words, names):
    with pytest.raises(PermissionNeededError) as caught:
        strict_plan(a_recipe=recipe(model={"base_args": words}))
    assert list(caught.value.settings["args"]) == names.split(", ")
    assert "(catalog/options/recipe_settings.yml lists what they may)" in str(caught.value)
    assert strict_plan({"args": caught.value.settings["args"]}, a_recipe=recipe(model={"base_args": words}))


@pytest.mark.parametrize("flag", ["tool-call-parser", "optimization-level", "cpu-offload-params", "unknown-flag"])
def test_a_flag_in_the_place_of_a_value_is_refused_for_everybody(flag):
    hidden = "--middleware=evil.Code"
    of_recipe = {"a_recipe": recipe(model={"base_args": [f"--{flag}={hidden}"]})}
    for more in (of_recipe, {"requested": {"args": {flag: hidden}}}):
        with pytest.raises(PlanError) as caught:
            plan(**more, site=LENIENT)
        assert str(caught.value) == (
            f"vllm_instances.chat: --{flag}: found '--middleware=evil.Code', which vLLM would take for a flag; take it "
            "away with null"
        )
    assert plan({"args": {"seed": "-1"}}, site=LENIENT).args["seed"] == "-1"


def test_an_unknown_variable_is_named_with_what_allows_it():
    with pytest.raises(PermissionNeededError) as caught:
        strict_plan(a_recipe=recipe(model={"base_env": {"SOME_NEW_LIBRARY": "1"}}))
    assert str(caught.value) == (
        'vllm_instances.chat: the recipe sets SOME_NEW_LIBRARY to "1", which recipes may not set '
        "(catalog/options/recipe_settings.yml lists what they may); a recipe alone cannot allow that: read what it is "
        'for, then allow it with vllm_instances.chat.env: {SOME_NEW_LIBRARY: "1"}, or remove it with the value null'
    )


def test_a_template_of_the_pinned_weights_is_the_model_s_own():
    own = recipe(model={"base_args": ["--chat-template", "chat/own.jinja"]})
    assert strict_plan(a_recipe=own, manifests=manifests("chat/own.jinja")).args["chat-template"].endswith("/own.jinja")
    for words in (["chat/own.jinja"], ["examples/../../../etc/passwd"], ["evil.jinja"]):
        other = recipe(model={"base_args": ["--chat-template", *words]})
        with pytest.raises(PlanError, match=f"chat-template names {words[0]}, which nothing brings"):
            strict_plan(a_recipe=other, manifests=manifests("own.jinja"))


def test_what_the_collection_itself_sets_needs_none():
    found = strict_plan({"args": {"enable-lora": True}}, release={**RELEASE, "supports": ["runtime-lora"]})
    assert found.env["OPERATOR_GUARD"] == "1" and found.env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"


def test_a_feature_that_the_instance_requests_is_allowed_with_it():
    tools = recipe(features={"tool_server": {"args": ["--tool-server", "demo"]}}, opt_in_features=["tool_server"])
    assert strict_plan({"features": ["tool_server"]}, a_recipe=tools).args["tool-server"] == "demo"
    always = recipe(model={"base_args": ["--tool-server", "demo"]})
    with pytest.raises(PermissionNeededError, match="lets the model run tools"):
        strict_plan(a_recipe=always)


def test_a_message_holds_no_control_characters():
    evil = recipe(model={"base_env": {"LD_PRELOAD": "\x1b[2J\x07x"}})
    with pytest.raises(PermissionNeededError) as caught:
        strict_plan(a_recipe=evil)
    assert str(caught.value).isprintable()


def test_what_programs_of_root_obey_is_no_secret():
    site = {**LENIENT, "secrets": {"chat": ["HF_TOKEN", "LD_PRELOAD"]}}
    with pytest.raises(PlanError, match=r"vllm_secrets\.chat\.LD_PRELOAD: cannot be a secret, because programs that"):
        plan(restrictions=RESTRICTIONS, site=site)
    assert plan(restrictions=RESTRICTIONS, site={**LENIENT, "secrets": {"chat": ["HTTPS_PROXY"]}}).secrets


def test_a_variable_of_a_feature_is_allowed_with_the_feature():
    table = Restrictions.from_data([{"variables": ["VLLM_USE_X"], "because": "opens a door", "feature": "door"}])
    evil = recipe(model={"base_env": {"VLLM_USE_X": "1"}}, features={"door": {}}, opt_in_features=["door"])
    with pytest.raises(PermissionNeededError, match=r"VLLM_USE_X to .*, which opens a door"):
        plan(a_recipe=evil, restrictions=table)
    assert plan({"features": ["door"]}, a_recipe=evil, restrictions=table).env["VLLM_USE_X"] == "1"


def test_a_secret_whose_value_vllm_reads_as_a_number_is_refused():
    typed = OptionTable.from_data({"version": "2.0.0", "flags": {}, "env": {"integer": ["VLLM_PORT"]}})
    entry = SimpleNamespace(name="chat", where="vllm_instances.chat", table=typed)
    foreign = Foreign(frozenset(), (), env={"FLA_USE_TMA": {"kind": "one"}})
    for name in ("VLLM_PORT", "FLA_USE_TMA"):
        with pytest.raises(PlanError, match=rf"vllm_secrets\.chat\.{name}: is no secret, and nothing checks"):
            check_secrets(entry, [name], SimpleNamespace(strict=True), foreign, Restrictions())


@pytest.mark.parametrize(
    ("name", "found"), [("BAD NAME", "' ' after 'BAD'"), ("HF_TOKEN=hush", "'=' after 'HF_TOKEN'")]
)
def test_the_impossible_name_of_a_secret_is_refused_without_the_rest_of_it(name, found):
    with pytest.raises(PlanError) as caught:
        plan(site={**LENIENT, "secrets": {"chat": [name]}})
    expected = "expected letters, digits and '_', and no digit first"
    assert str(caught.value) == f"vllm_secrets.chat: found a name with {found}, {expected}"


@pytest.mark.parametrize(
    ("secret", "strict", "problem"),
    [
        ("VLLM_USE_Y", True, "vLLM 2.0.0 does not read this variable"),  # nothing of the table has this name
        ("VLLM_USE_Y", False, None),  # a lenient site knows more than the table
        ("VLLM_USE_X", True, None),
        ("S3_TOKEN", True, None),  # for a library: the table lists variables of vLLM
        ("VLLM_API_KYE", False, "nearest: 'VLLM_API_KEY'"),
        *((name, True, None) for name in ("XAI_API_KEY", "GH_TOKEN", "LLM_API_KEY", "LLAMA_API_KEY")),
        ("HF_TOKEN", True, None),
    ],
)
def test_a_secret_that_nobody_reads_is_refused(secret, strict, problem):
    site = {"strict": strict, "secrets": {"chat": [secret]}}
    if problem is None:
        assert plan(site=site).secrets
        return
    with pytest.raises(PlanError) as caught:
        plan(site=site)
    assert str(caught.value).startswith(f"vllm_secrets.chat.{secret}: ") and problem in str(caught.value)


@pytest.mark.parametrize(("length", "shown"), [(198, '"' + "x" * 198 + '"'), (199, '"' + "x" * 199 + "...")])
def test_a_long_value_is_shortened_in_the_message(length, shown):
    with pytest.raises(PermissionNeededError) as caught:
        strict_plan(a_recipe=recipe(model={"base_env": {"LD_PRELOAD": "x" * length}}))
    assert f"LD_PRELOAD to {shown}, which" in str(caught.value)


def test_three_files_of_code_are_named_and_the_setting_to_repeat():
    with pytest.raises(PermissionNeededError) as caught:
        plan(a_recipe=TRUSTING, manifests=manifests("b.py", "c.py", "a.py"))
    assert "would run: a.py, b.py, c.py; read these files" in str(caught.value)
    assert caught.value.settings == {"args": {"trust-remote-code": True}}


@pytest.mark.parametrize("words", [["--uds", "/run/x"], ["--grpc"]])
def test_nobody_is_told_to_allow_what_the_plan_refuses_then(words):
    with pytest.raises(PlanError, match="nobody answers at the port") as caught:
        strict_plan(a_recipe=recipe(model={"base_args": words}))
    assert "allow it with" not in str(caught.value)
