# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan instances: where each setting comes from; draft models."""

from __future__ import annotations

import json

import pytest

from tests.fakes.plans import (
    MANIFESTS,
    RELEASE,
    plan,
    recipe,
    warnings_of,
)

SPEC = recipe(
    features={"spec": {"args": ["--speculative-config", '{"model": "org/draft", "num_speculative_tokens": 3}']}},
)


def test_a_draft_model_is_named_by_its_path_on_the_host():
    found = plan(a_recipe=SPEC)
    path = "/srv/models/org/draft/" + "d" * 40
    assert found.args["speculative-config"] == {"model": path, "num_speculative_tokens": 3}
    assert f"{path}:{path}:ro" in found.mounts
    assert found.models == ["org/model", "org/draft"]
    assert json.loads(found.config["speculative-config"])["model"] == path


def test_a_draft_model_without_a_manifest_keeps_its_name_and_is_warned_of():
    found = plan(a_recipe=SPEC, manifests={"org/model": MANIFESTS["org/model"]})
    assert found.args["speculative-config"]["model"] == "org/draft"
    assert warnings_of(found) == [
        "vllm_instances.chat: no manifest pins the weights of org/draft, so no host can fetch them; make a manifest: "
        "ansible-playbook playbooks/pin_weights.yml -e pin_model=org/draft -e pin_dest=DIR, and set "
        "weights_manifest_path: [DIR]"
    ]


@pytest.mark.parametrize("model", ["/srv/mine", "ngram", None])
def test_a_draft_model_that_is_no_repository(model):
    requested = {"args": {"speculative-config.model": model}}
    assert plan(requested, a_recipe=SPEC).models == ["org/model"]


def test_no_speculation_no_draft_model():
    assert plan({"args": {"speculative-config": None}}, a_recipe=SPEC).models == ["org/model"]


def explained(found):
    return {row["key"]: row for row in found.explain}


def test_explain_names_the_layer_the_reason_and_what_was_overridden():
    a_recipe = recipe(
        hardware_overrides={
            "hopper": {
                "rules": [
                    {"because": "Hopper likes it", "extra_args": ["--max-num-seqs", "16"], "extra_env": {"FLAG": "1"}}
                ]
            }
        }
    )
    rows = explained(plan({"args": {"max-num-seqs": 32}, "env": {"FLAG": "2"}}, a_recipe=a_recipe))
    assert rows["max-num-seqs"] == {
        "key": "max-num-seqs",
        "value": 32,
        "layer": "vllm_instances.chat",
        "because": "set by the site",
        "overrides": [{"layer": "model", "value": 8}, {"layer": "hardware_overrides.hopper", "value": 16}],
    }
    assert rows["env.FLAG"]["overrides"] == [{"layer": "hardware_overrides.hopper", "value": "1"}]
    assert rows["tensor-parallel-size"]["because"] == "tp of the recipe's variant"
    assert rows["shutdown-timeout"]["layer"] == rows["env.HF_HUB_OFFLINE"]["layer"] == "collection"
    assert rows["shutdown-timeout"]["because"] == "requests finish before a stop"
    unknown = "by default vLLM ignores a VLLM_* variable that it does not know"
    assert rows["fail-on-environ-validation"]["because"] == unknown
    assert rows["env.HOME"] == {
        "key": "env.HOME",
        "value": "/var/cache/vllm/chat",
        "layer": "collection",
        "because": "the instance's own place on this host",
        "overrides": [],
    }
    rows = explained(plan(a_recipe=a_recipe))
    assert (rows["max-num-seqs"]["because"], rows["env.FLAG"]["because"]) == ("Hopper likes it", "Hopper likes it")


def test_explain_has_a_row_for_every_argument_and_variable():
    found = plan({"args": {"caching": False}})
    assert [row["key"] for row in found.explain] == [*found.args, *(f"env.{name}" for name in found.env)]
    assert explained(found)["no-caching"]["layer"] == "vllm_instances.chat"


def test_an_environment_says_with_what_kernels_are_compiled():
    lock = {
        "requirements": "/l/12.txt",
        "requirements_sha256": "ef" * 32,
        "requirements_text": "# target: cp312-x86_64\nflashinfer-python==1\nninja==1\nnvidia-cuda-nvcc==13.0.88\n",
    }
    cuda = {**RELEASE["stacks"]["cuda"], "requirements": {"3.12": lock}}
    release = {**RELEASE, "stacks": {"cuda": cuda}}
    found = plan({"runtime": "venv"}, release=release)
    root = f"/opt/vllm/2.0.0-cuda-{'ef' * 6}"
    assert found.env["CUDA_HOME"] == f"{root}/lib/python3.12/site-packages/nvidia/cu13"
    assert found.env["PATH"].startswith(f"{root}/bin:/usr/local/sbin:")
    assert found.compilers == ["cc", "Python.h", "c++"]
    assert any(issue["symptom"] == "Python.h: No such file" for issue in found.known_issues)
    row = next(row for row in found.explain if row["key"] == "env.CUDA_HOME")
    assert (row["layer"], row["because"]) == (
        "collection",
        "FlashInfer compiles its kernels with the ninja and the nvcc of the lock",
    )
    own = plan({"runtime": "venv", "env": {"CUDA_HOME": "/usr/local/cuda"}}, release=release)
    assert own.env["CUDA_HOME"] == "/usr/local/cuda"
    container = plan(release=release)
    assert (container.compilers, "PATH" in container.env) == ([], False)
