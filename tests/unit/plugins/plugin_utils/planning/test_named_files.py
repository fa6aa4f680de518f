# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_foreign, releases
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import Doubt, Unknown
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.named_files import (
    file_problems,
    quantization_problems,
    unmounted,
    with_files,
)

from tests.fakes.plans import plan

GEMMA = "examples/tool_chat_template_gemma4.jinja"
TEMPLATES = load_foreign("cuda").names_of("chat-template", "0.33.0")
MANIFEST = {"files": {"parser.py": {}, "chat.jinja": {}}}


@pytest.mark.parametrize(
    ("args", "examples", "expected"),
    [
        ({"chat-template": GEMMA}, True, {"chat-template": GEMMA}),
        ({"chat-template": GEMMA}, False, {"chat-template": "/usr/local/lib/vllm/tool_chat_template_gemma4.jinja"}),
        ({"chat-template": "examples/other.jinja"}, False, {"chat-template": "examples/other.jinja"}),
        ({"chat-template": "examples/a-b/c-d.jinja"}, False, {"chat-template": "examples/a-b/c-d.jinja"}),
        ({"chat-template": "chat.jinja"}, True, {"chat-template": "/srv/m/chat.jinja"}),
        ({"reasoning-parser-plugin": "parser.py"}, False, {"reasoning-parser-plugin": "/srv/m/parser.py"}),
        ({"tool-parser-plugin": "/opt/parser.py"}, False, {"tool-parser-plugin": "/opt/parser.py"}),
        ({"chat-template": "{{ parser.py }}"}, False, {"chat-template": "{{ parser.py }}"}),
    ],
)
def test_files_of_the_weights_and_of_this_collection_get_their_path(args, examples, expected):
    assert with_files(args, MANIFEST, "/srv/m", examples) == expected


@pytest.mark.parametrize(
    ("args", "pinned", "examples", "kinds"),
    [
        ({"chat-template": "examples/other.jinja"}, True, False, [str]),
        ({"chat-template": "examples/other.jinja"}, False, False, [str]),
        ({"chat-template": "examples/other.jinja"}, True, True, [str]),
        ({"chat-template": GEMMA}, True, True, []),
        ({"chat-template": "examples/tool_chat_template_gema4.jinja"}, True, True, [Unknown]),
        ({"chat-template": "template_chatmll.jinja"}, True, False, [Unknown]),
        # In an image of 0.23.0, no more in one of 0.33.0.
        ({"chat-template": "examples/template_baichuan.jinja"}, True, True, [Unknown]),
        ({"chat-template": 5}, True, True, [str]),
        *(({"tokenizer": value}, True, True, [str]) for value in (5, "tokens", "./a/b", "a/b/c", "~/x")),
        *(({"hf-config-path": value}, True, True, []) for value in ("/srv/x", "org/x", "s3://bucket/x")),
        ({"speculative-config": {"model": "draft"}, "lora-modules": ["a=b"]}, True, True, [str, str]),
        ({"speculative-config": {"method": "custom_class", "model": "my_pkg.proposer.Mine"}}, True, True, []),
        ({"speculative-config": {"method": "suffix", "model": "suffix"}}, True, True, []),
        ({"speculative-config": {"model": "ngram"}, "lora-modules": [{"name": "a", "path": "/b"}]}, True, True, []),
        ({"chat-template": "examples/pooling/score/template/nemotron-rerank.jinja"}, True, True, []),
        *(
            ({"chat-template": name}, True, True, [str])
            for name in ("chat.jinja", "examples/../x.jinja", "examples/tool_chat_template", "../x.jinja", "x")
        ),
        ({"chat-template": "examples/pooling/embed/template/vlm2vec_phi3v.jinja"}, True, True, []),
        # vLLM looks for these among its own.
        ({"chat-template": "template_chatml.jinja"}, True, False, []),
        ({"reasoning-parser-plugin": "parser.py"}, True, True, [str]),
        # Weights that nobody has pinned may have it.
        ({"reasoning-parser-plugin": "parser.py"}, False, True, [Doubt]),
        ({"reasoning-parser-plugin": "/opt/parser.py", "chat-template": "{{ x }}"}, True, False, []),
    ],
)
def test_files_that_nothing_brings(args, pinned, examples, kinds):
    assert [type(problem) for problem in file_problems(args, pinned, examples, TEMPLATES)] == kinds


def test_the_sentence_names_flag_and_file():
    (problem,) = file_problems({"tool-parser-plugin": "parser.py"}, True, True, TEMPLATES)
    assert problem == (
        "tool-parser-plugin names parser.py, which nothing brings to the place where vLLM starts; set args "
        "tool-parser-plugin to the absolute path of a copy that vLLM can read there (of a container: in its image), or "
        "take it away with null"
    )


def test_a_misspelt_template_has_its_nearest():
    (problem,) = file_problems({"chat-template": "examples/tool_chat_template_hermess.jinja"}, True, True, TEMPLATES)
    assert "; nearest: 'examples/tool_chat_template_hermes.jinja'; or set args chat-template to" in problem


@pytest.mark.parametrize("name", ["chat.jinja", "examples/tool_chat_template", "templates/ours.jinja"])
def test_an_image_of_the_sites_own_may_have_any_file(name):
    """0.14.0 refused it, although vLLM reads it in the image's working directory."""
    (problem,) = file_problems({"chat-template": name}, True, True, TEMPLATES, own=True)
    assert isinstance(problem, Doubt)
    assert problem.startswith(f"chat-template names {name}, which vLLM finds only if it is in the working directory of")
    request = {"runtime": "container", "args": {"chat-template": name}}
    own = {"image": "mirror:5000/ours:1", "strict": False}
    assert any(problem in text for text in plan(request, site=own).warnings)
    with pytest.raises(PlanError, match="which nothing brings"):
        plan(request, site={"strict": False})


def test_every_release_has_templates():
    assert all(
        "template_chatml.jinja" in load_foreign("rocm").names_of("chat-template", version) for version in releases()
    )
    assert "examples/template_baichuan.jinja" in load_foreign("cpu").names_of("chat-template", "0.23.0")
    assert "examples/template_baichuan.jinja" not in load_foreign("cpu").names_of("chat-template", "0.25.1")


def test_paths_that_a_container_does_not_mount():
    args = {"chat-template": "/srv/x.jinja", "root-path": "/v1", "tokenizer": "/srv/m/tokens", "seed": 5}
    assert unmounted("vllm_instances.chat", args, ["/srv/m:/srv/m:ro"]) == [
        "vllm_instances.chat.args.chat-template: names /srv/x.jinja, which no mount of the container holds; vLLM finds "
        "it in the image only"
    ]
    assert unmounted("x", {"chat-template": "/usr/local/lib/vllm/x.jinja"}, ["/srv/m:/srv/m:ro"]) == []
    assert unmounted("x", args, []) == []


def test_a_plan_warns_of_a_path_that_its_container_does_not_mount():
    request = {"args": {"chat-template": "/srv/x.jinja"}}
    assert any(
        "which no mount of the container holds" in text for text in plan(request, site={"strict": False}).warnings
    )


@pytest.mark.parametrize(
    ("method", "changes", "problems"),
    [
        ("awq", {}, 1),
        ("awq_marlin", {}, 1),
        ("auto_gptq", {}, 1),
        ("modelopt_fp4", {}, 1),
        # vLLM quantizes these itself while it loads them.
        ("fp8", {}, 0),
        ("fp8_per_tensor", {}, 0),
        # No method of NVIDIA's, whatever its name begins with.
        ("awqx", {}, 0),
        (None, {}, 0),
        ("awq", {"precision": "awq"}, 0),
        ("gptq", {"files": {"quantize_config.json": {}}}, 0),
        ("awq", {"files": {"quant_config.json": {}}}, 0),
        ("gptq", {"files": {"quant_config.json": {}}}, 1),
        ("modelopt", {"files": {"hf_quant_config.json": {}}}, 0),
        # A manifest of which nobody has read config.json, and weights without a manifest.
        ("awq", {"config": None}, 0),
        ("awq", None, 0),
    ],
)
def test_a_method_of_quantization_needs_its_settings(method, changes, problems):
    manifest = {} if changes is None else {"files": {"a.safetensors": {}}, "config": {"model_type": "llama"}, **changes}
    found = list(quantization_problems({"quantization": method}, manifest))
    assert len(found) == problems and not any(isinstance(text, Doubt) for text in found)
    assert all(text.startswith(f"quantization is {method}, and the weights are not quantized: ") for text in found)


@pytest.mark.parametrize(
    ("args", "architecture"),
    [({}, "LlavaForConditionalGeneration"), ({"hf-overrides": {"x": 1}}, "LlamaForCausalLM")],
)
def test_settings_of_quantization_may_stand_where_no_manifest_shows_them(args, architecture):
    manifest = {"files": {}, "config": {"architectures": [architecture]}}
    (found,) = quantization_problems({"quantization": "awq", **args}, manifest)
    assert isinstance(found, Doubt)
