# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.contents import (
    blob_id,
    check_chosen,
    check_model,
    check_revision,
    check_shards,
    choose_files,
    derived_revision,
    manifest_of,
    modelscope_of,
    precision_of,
    render_manifest,
    revision_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.hubs import Listed
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import (
    Manifest,
    WeightsError,
    parse_manifest,
)

WEIGHTS = Path(__file__).resolve().parents[5] / "catalog" / "weights"
SHA = "a" * 63 + "b"
# What openai/gpt-oss-20b has, beside what its manifest in the catalogue has.
REST = [
    *(".gitattributes", "LICENSE", "README.md", "USAGE_POLICY", "metal/model.bin", "original/config.json"),
    *("original/dtypes.json", "original/model.safetensors"),
]


def listed(*names):
    return [Listed(name, 1, SHA) for name in names]


def names(files):
    return [file.name for file in files]


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "openai/gpt-oss-120b"])
def test_the_files_of_the_bundled_models_are_what_is_chosen_of_them(model):
    bundled = [file.name for file in parse_manifest(yaml.safe_load((WEIGHTS / f"{model}.yml").read_text())).files]
    assert names(choose_files(listed(*bundled, *REST), [], [])) == bundled


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "openai/gpt-oss-120b"])
def test_a_manifest_is_written_as_the_bundled_ones_are(model):
    text = (WEIGHTS / f"{model}.yml").read_text()
    manifest = yaml.safe_load(text)
    assert render_manifest(parse_manifest(manifest), manifest["precision"], manifest["config"]) == text


def test_a_revision_is_made_from_files_as_that_of_the_smoke_model():
    manifest = parse_manifest(yaml.safe_load((WEIGHTS / "baremetal/gpt-oss-smoke.yml").read_text()))
    files = [Listed(file.name, file.size, file.sha256) for file in manifest.files]
    assert derived_revision(reversed(files)) == manifest.revision


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (["m.safetensors", "pytorch_model.bin", "x.gguf", "onnx/model.onnx", "tf_model.h5"], ["m.safetensors"]),
        (["m.safetensors", "figures/a.PNG", "figures/a.png", "docs/x.md"], ["figures/a.PNG", "m.safetensors"]),
        (["m.safetensors", "modeling_x.py", "vocab.json", "tekken.json"], None),
        (["m.safetensors", "1_Pooling/config.json", "sub/.cache/x"], ["1_Pooling/config.json", "m.safetensors"]),
        (["model-1.safetensors", "consolidated.safetensors"], ["model-1.safetensors"]),
        (["consolidated.safetensors", "params.json"], ["consolidated.safetensors", "params.json"]),
    ],
)
def test_other_formats_and_things_for_people_are_left_out(there, chosen):
    assert names(choose_files(listed(*there), [], [])) == sorted(chosen or there)


BOTH = ["model-1.safetensors", "model.safetensors.index.json", "consolidated.safetensors", "params.json"]


@pytest.mark.parametrize(
    ("load_format", "left_out"),
    [
        ("auto", {"consolidated.safetensors"}),
        ("mistral", {"model-1.safetensors", "model.safetensors.index.json"}),
        ("both", set()),
    ],
)
def test_format_that_the_recipe_reads_is_pinned(load_format, left_out):
    chosen = choose_files(listed(*BOTH), [], [], load_format)
    assert set(BOTH) - set(names(chosen)) == left_out
    check_chosen("o/n", listed(*BOTH), chosen, [], load_format)


def test_format_that_the_recipe_reads_and_the_model_lacks_is_an_error():
    there = listed("model.safetensors", "config.json")
    with pytest.raises(WeightsError, match=r"o/n: found no consolidated\*\.safetensors, which the load format mistral"):
        check_chosen("o/n", there, choose_files(there, [], [], "mistral"), [], "mistral")
    check_chosen("o/n", there, choose_files(there, ["model*"], [], "mistral"), ["model*"], "mistral")


@pytest.mark.parametrize("name", ["a b.json", 'quote".json', "größe: #1 [x].json", "模型/tokenizer (1).json", "1e5"])
def test_name_with_blanks_and_letters_is_read_back(name):
    manifest = manifest_of("o/n", "c" * 40, [Listed(name, 1, SHA)], None)
    assert parse_manifest(yaml.safe_load(render_manifest(manifest))) == manifest


def test_include_is_the_users_choice_and_exclude_is_left_out_of_any():
    files = listed("m.safetensors", "x.gguf", "a/config.json", "original/m.safetensors", ".hidden/x.gguf")
    assert names(choose_files(files, ["*.gguf", "a/"], [])) == ["a/config.json", "x.gguf"]
    assert names(choose_files(files, ["original/*"], [])) == ["original/m.safetensors"]
    assert names(choose_files(files, ["*"], ["*.gguf", "a/"])) == ["m.safetensors", "original/m.safetensors"]
    assert names(choose_files(files, [], ["a/*"])) == ["m.safetensors"]


def test_a_model_without_safetensors():
    there = listed("pytorch_model.bin", "x.gguf", "config.json")
    with pytest.raises(WeightsError, match=r"o/n: found no \*\.safetensors .* \(the model has \.bin, \.gguf, \.json\)"):
        check_chosen("o/n", there, choose_files(there, [], []), [])
    check_chosen("o/n", there, choose_files(there, ["*.gguf"], []), ["*.gguf"])
    with pytest.raises(WeightsError, match="none of its 3 files matches include"):
        check_chosen("o/n", there, choose_files(there, ["*.pth"], []), ["*.pth"])


@pytest.mark.parametrize(
    "model",
    ["gpt2", "a/b/c", "a/b c", "a/../b", "../b/c", "ä/b", "a/b\n", "a//b", "", "a/b?x=1", "-a/b", "http://h/a/b"],
)
def test_strange_names_of_models(model):
    with pytest.raises(WeightsError, match=r"model: found .*expected <organisation>/<name>"):
        check_model(model)


@pytest.mark.parametrize("revision", ["a b", "../x", "main\n", "-x", "a?b"])
def test_strange_revisions(revision):
    with pytest.raises(WeightsError, match="revision: found"):
        check_revision(revision)


def index(*shards):
    return json.dumps({"metadata": {}, "weight_map": {f"layer.{n}": name for n, name in enumerate(shards)}}).encode()


def test_half_a_model():
    chosen = listed("m-1.safetensors", "sub/n.safetensors", "m.safetensors.index.json")
    check_shards("o/n", "m.safetensors.index.json", index("m-1.safetensors"), chosen)
    check_shards("o/n", "sub/n.safetensors.index.json", index("n.safetensors"), chosen)
    with pytest.raises(WeightsError, match=r"m-2\.safetensors and 1 more of the 3 shards that m\.safe.* is missing"):
        content = index("m-1.safetensors", "m-2.safetensors", "m-3.safetensors")
        check_shards("o/n", "m.safetensors.index.json", content, chosen)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"weight_map": []}', b"\xff"])
def test_an_index_that_is_none(content):
    with pytest.raises(WeightsError, match="cannot be read as an index of shards"):
        check_shards("o/n", "i", content, [])


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "compressed_tensors"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"text_config": {"quantization_config": {"quant_method": "awq"}}}, "awq"),
        ({"quantization_config": None, "torch_dtype": "bfloat16"}, ""),
        ({"quantization_config": {"quant_method": "a b: c"}}, ""),
        ({}, ""),
        ([], ""),
    ],
)
def test_the_number_format_is_that_of_the_configuration(config, precision):
    assert precision_of(json.dumps(config).encode()) == precision


def test_blob_ids_are_gits():
    assert blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


@pytest.mark.parametrize(
    ("revision", "name", "sha256", "modelscope"),
    [
        ("1" * 40, "123", "2" * 64, ("o/n", "1.0")),
        ("1" * 39 + "e", "yes", "1" * 62 + "e1", ("1/2", "master")),
        ("1" * 38 + "e1", "1e5", "a" * 64, ("o/n", "0x1")),
        ("f" * 40, "no/null", "0" * 64, None),
        ("f" * 40, "sub/1.5", "0" * 64, ("x/y", "f" * 40)),
    ],
)
def test_yaml_reads_back_what_was_written(revision, name, sha256, modelscope):
    manifest = manifest_of("o/n", revision, [Listed(name, 5, sha256), Listed("x.json", 0, SHA)], modelscope)
    text = render_manifest(manifest)
    assert parse_manifest(yaml.safe_load(text)) == manifest
    assert revision_of(text) == revision
    assert (modelscope_of(text) or ("o/n", "master")) == (modelscope or ("o/n", "master"))


def test_a_name_that_no_manifest_can_hold():
    with pytest.raises(WeightsError, match=r"manifest of o/n: files: found 'a\\\\b\.safetensors'"):
        manifest_of("o/n", "a" * 40, listed("a\\b.safetensors"), None)


def test_a_manifest_stays_a_manifest():
    assert isinstance(manifest_of("o/n", "a" * 40, listed("x"), None), Manifest)
