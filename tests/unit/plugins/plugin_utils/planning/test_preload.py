# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of instances whose weights stay on the chips, with the recipes and releases of the catalogue."""

from __future__ import annotations

import copy

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_manifest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

MODEL, DRAFT = "baremetal/gpt-oss-smoke", "org/draft"
EAGLE = {"method": "eagle3", "model": DRAFT, "num_speculative_tokens": 2}


def plans(requested=None, chip="h200", release="0.33.0", **more):
    chat = {"recipe": MODEL, "runtime": "venv", "preload": True, "args": {}, "env": {}, **(requested or {})}
    settings = {**SITE, "instances": {"chat": chat}, "release": release, **more}
    return plan_host("host", declared_accelerator(load_catalogue(), chip, 8), settings)


def plan(*given, **more):
    return plans(*given, **more)["chat"]


def pinned(top, name, **changes):
    """Pin a repository in a directory of its own, like that of the catalogue but for the changes."""
    manifest = {**copy.deepcopy(load_manifest(MODEL)), "repository": name, **changes}
    (top / name).parent.mkdir(parents=True, exist_ok=True)
    (top / f"{name}.yml").write_text(yaml.safe_dump(manifest))
    return {"weights_manifest_path": [str(top)]}


def with_other_bytes():
    """Return the files of the catalogue's manifest, one with another sha256: names, sizes and headers are the same."""
    files = copy.deepcopy(load_manifest(MODEL)["files"])
    files[next(name for name in files if name.endswith(".safetensors"))]["sha256"] = "0" * 64
    return files


def refusal(*given, **more):
    with pytest.raises(PlanError) as caught:
        plan(*given, **more)
    return str(caught.value)


def directory_of(found):
    assert found["args"]["load-format"] == "ipc_cache" and found["preload"] is True
    return found["args"]["model-loader-extra-config"]["socket_dir"]


def test_the_engine_takes_the_weights_from_the_directory_of_its_manifest():
    found = plan()
    directory = directory_of(found)
    # With vLLM's name of a socket, its path has at most 107 bytes.
    assert directory.startswith("/run/vllm-preload/") and len(directory) <= 45
    assert directory in " ".join(found["argv"])
    assert {line["key"] for line in found["explain"]} >= {"load-format"}


def test_a_checkpoint_with_the_same_headers_and_other_bytes_is_not_served(tmp_path):
    """vLLM's own key would be equal: it has the headers alone, and these two differ in no name, size or revision."""
    assert directory_of(plan(**pinned(tmp_path, MODEL, files=with_other_bytes()))) != directory_of(plan())


@pytest.mark.parametrize("changes", [{"files": with_other_bytes()}, {"revision": "1" * 40}])
def test_a_draft_is_bound_to_its_manifest_too(tmp_path, changes):
    """vLLM holds drafts as well, by the headers alone."""
    first = plan({"args": {"speculative-config": EAGLE}}, **pinned(tmp_path / "1", DRAFT))
    other = plan({"args": {"speculative-config": EAGLE}}, **pinned(tmp_path / "2", DRAFT, **changes))
    assert len({directory_of(first), directory_of(other), directory_of(plan())}) == 3
    named = {"args": {"spec-method": "eagle3", "spec-model": DRAFT, "spec-tokens": 2}}
    first = plan(named, **pinned(tmp_path / "1", DRAFT))
    assert directory_of(first) != directory_of(plan(named, **pinned(tmp_path / "2", DRAFT, **changes)))


def test_a_draft_without_a_manifest_is_refused():
    said = refusal({"args": {"speculative-config": EAGLE}})
    assert f"chat.preload: no manifest pins the weights of {DRAFT}" in said
    said = refusal({"args": {"speculative-config": {**EAGLE, "model": "/srv/drafts/x"}}})
    assert "chat.preload: no manifest pins a draft at a path (/srv/drafts/x)" in said
    assert plan({"preload": False, "args": {"speculative-config": EAGLE}})


@pytest.mark.parametrize(("requested", "more"), [
    ({"args": {"kv-cache-dtype": "fp8"}}, {}),
    ({"args": {"tensor-parallel-size": 2}}, {}),
    ({"args": {"dtype": "float16"}}, {}),
    ({"args": {"linear-backend": "cutlass"}}, {}),
    ({"args": {"model-impl": "transformers"}}, {}),
    ({"env": {"VLLM_USE_DEEP_GEMM": "0"}}, {}),
    ({"chips": [1]}, {}),
    ({}, {"release": "0.32.0"}),
    ({}, {"venv_root": "/opt/other"}),
])  # fmt: skip
def test_what_vllm_would_read_beside_the_old_weights_has_another_directory(requested, more):
    """At a mismatch vLLM warns and reads the files, and who holds the old weights keeps half of the chip."""
    assert directory_of(plan(requested, **more)) != directory_of(plan())


@pytest.mark.parametrize("requested", [
    {}, {"port": 9000}, {"served_model_names": ["a"]}, {"args": {"enable-prefix-caching": False}},
    {"args": {"max-logprobs": 5, "scheduling-policy": "priority"}},
    {"args": {"gpu-memory-utilization": 0.8, "max-num-seqs": 32, "max-num-batched-tokens": 4096}},
])  # fmt: skip
def test_what_only_the_engine_reads_leaves_the_weights_where_they_are(requested):
    assert directory_of(plan(requested)) == directory_of(plan())


def test_each_replica_has_its_own():
    """The program of one removes what is left in its directory, and counts the sockets there."""
    found = plans({"replicas": 2})
    assert directory_of(found["chat"]) != directory_of(found["chat-2"])
    # The first one has the same chip as before, and keeps its weights.
    assert directory_of(found["chat"]) == directory_of(plan())


def test_it_is_off_by_default():
    found = plan({"preload": False})
    assert "preload" not in found and "load-format" not in found["args"]


@pytest.mark.parametrize(("requested", "more", "why"), [
    ({"runtime": "container"}, {"chip": "mi300x"}, "mi300x is no chip of NVIDIA"),
    ({"runtime": "container"}, {}, "the runtime is 'container', expected 'venv'"),
    ({}, {"release": "0.25.1"}, "vLLM 0.25.1 has no `vllm preload`"),
    ({"residents": "a"}, {}, "an instance with residents sleeps"),
    ({"args": {"enable-sleep-mode": True}}, {}, "weights of another process cannot sleep"),
    (
        {"args": {"gpu-memory-utilization": 0.999}},
        {},
        "gpu-memory-utilization 0.999 leaves 0.1 GiB of a chip, of which the process that holds the weights takes 0.5",
    ),
    ({"args": {"enable-lora": True}}, {}, "enable-lora is set, with which the engine cannot take the weights over"),
    ({"args": {"load-format": "dummy"}}, {}, "args set load-format, which preload sets"),
])  # fmt: skip
def test_what_excludes_it_is_one_sentence(requested, more, why):
    said = refusal(requested, **more)
    assert said.startswith("vllm_instances.chat.preload: found true, and ") and why in said
    assert said.endswith("; remove preload")


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "openai/gpt-oss-120b"])
def test_experts_that_vllm_cannot_hand_over_are_refused(model):
    """``GptOssMxfp4MoEMethod`` of 0.32 and 0.33 does not declare ``supports_pre_processed_weights``."""
    assert "cannot take gpt-oss's experts over from `vllm preload`" in refusal({"recipe": model})


def test_weights_without_a_manifest_are_refused(tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org/model.yaml").write_text("model: {model_id: org/unpinned, context_length: 4096}\n")
    said = refusal({"recipe": "org/model"}, recipe_path=[str(tmp_path)])
    assert "chat.preload: no manifest pins the weights of org/unpinned" in said


def test_the_format_alone_is_refused():
    assert "set preload: true in place of load-format" in refusal(
        {"preload": False, "args": {"load-format": "ipc_cache"}}
    )


def test_anything_but_true_or_false_is_refused():
    assert "preload: found 'yes', expected true or false" in refusal({"preload": "yes"})
