# SPDX-License-Identifier: GPL-3.0-or-later
"""From words to the keys of an instance."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.entry import Release, adopt
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.forms import read_start
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import CommandError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_foreign,
    load_replaced,
    load_table,
    other_tables,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.instances import check_instance

RELEASE = Release(load_table("0.33.0"), other_tables("0.33.0"), load_foreign("cuda"), load_replaced())
DOCKER = "docker run --gpus all {} vllm/vllm-openai --model o/m {}"


def entry(text, model=""):
    found = adopt(read_start(text), RELEASE, model)
    check_instance("chat", {"recipe": found.model, **found.instance})
    return found


def left_out(found):
    return dict(found.left_out)


@pytest.mark.parametrize(
    ("options", "flags", "place"),
    [
        ("-p 9000:8000", "", ("0.0.0.0", 9000)),
        ("-p 127.0.0.1:9000:8000", "", (None, 9000)),
        ("-p 9000:5000", "--port 5000", ("0.0.0.0", 9000)),
        ("-p 1:2 -p 9000:8000/tcp", "", ("0.0.0.0", 9000)),
        ("--network host", "--host 192.0.2.1 --port 7000", ("192.0.2.1", 7000)),
        ("", "", (None, 8000)),
    ],
)
def test_clients_find_the_same_address(options, flags, place):
    found = entry(DOCKER.format(options, flags)).instance
    assert (found.get("host"), found["port"]) == place


def test_a_bare_command_listens_on_all_addresses_as_vllm_does():
    assert entry("vllm serve o/m").instance["host"] == "0.0.0.0"
    assert "host" not in entry("vllm serve o/m --host 127.0.0.1").instance


def test_a_place_that_is_none_is_left_out():
    found = entry("vllm serve o/m --port 80x --host a/b")
    assert found.instance["port"] == 8000 and found.instance["host"] == "0.0.0.0"
    assert left_out(found) == {"--port": "found '80x', expected a port", "--host": "found 'a/b', expected an address"}


def test_a_copy_stays_one_and_keeps_its_chips():
    assert entry("vllm serve o/m").instance["replicas"] == 1
    assert entry("CUDA_VISIBLE_DEVICES=2,3 vllm serve o/m -tp 2").instance["chips"] == [2, 3]
    assert entry("CUDA_VISIBLE_DEVICES=GPU-abc vllm serve o/m").instance["replicas"] == 1
    assert entry("ZE_AFFINITY_MASK=6 vllm serve o/m").instance["chips"] == [6]
    assert entry("vllm serve o/m -tp 2 --device-ids 4,5").instance["chips"] == [4, 5]
    assert entry("CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve o/m -tp 2 --device-ids 1,3").instance["chips"] == [5, 7]
    assert left_out(entry("vllm serve o/m --device-ids GPU-abc"))["--device-ids"].endswith("expected numbers of chips")


def test_a_flag_that_is_gone_is_not_the_beginning_of_another():
    found = entry("vllm serve o/m --device cuda")
    assert found.instance["args"] == {"tensor-parallel-size": 1}
    assert "one platform" in left_out(found)["--device"]


def test_the_plan_does_not_choose_another_number_of_chips():
    assert entry("vllm serve o/m").instance["args"] == {"tensor-parallel-size": 1}
    assert entry("vllm serve o/m -dp 8").instance["args"]["tensor-parallel-size"] == 1
    found = entry('vllm serve o/m --tensor-parallel-size "$(nvidia-smi -L | wc -l)"')
    assert "args" not in found.instance and "only a shell" in left_out(found)["--tensor-parallel-size"]


@pytest.mark.parametrize(
    ("named", "model"),
    [
        ("o/m", "o/m"),
        ("/root/.cache/huggingface/hub/models--o--m-1/snapshots/0123", "o/m-1"),
        ("/root/.cache/modelscope/hub/models/o/m", "o/m"),
    ],
)
def test_the_repository_is_read_from_a_cache_too(named, model):
    found = entry(f"vllm serve {named}")
    assert found.model == model
    # vLLM calls a model by what it was given.
    assert found.instance.get("served_model_names", [model]) == [named]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("vllm serve --port 1", "names no model"),
        ("vllm serve /models/m", "found '/models/m', a path that only that machine has"),
        ("vllm serve ./m", "a path that only that machine has"),
        ("vllm serve gpt2", "found 'gpt2', expected a repository"),
        ("vllm serve $M", "found $M, which only a shell"),
        ("vllm serve o/m --headless", "--headless: the command starts one of several hosts"),
    ],
)
def test_what_names_no_model_is_answered_with_the_word(text, part):
    with pytest.raises(CommandError) as caught:
        entry(text)
    assert part in str(caught.value)


def test_a_model_that_is_named_beside_the_command_counts():
    assert entry("vllm serve /models/m", "o/m").model == "o/m"
    with pytest.raises(CommandError, match="adopt_model: found 'm'"):
        entry("vllm serve /models/m", "m")


def test_what_the_release_refuses_is_left_out_with_the_replacement():
    found = entry(
        "vllm serve o/m --swap-space 4 --guided-decoding-backend x --max-model-len long --cuda-graph-sizes a b "
        "--revision abc"
    )
    reasons = left_out(found)
    assert "instead: --structured-outputs-config.backend" in reasons["--guided-decoding-backend"]
    assert "expected an integer" in reasons["--max-model-len"] and "pin_revision=abc" in reasons["--revision"]
    assert set(reasons) == {
        "--swap-space",
        "--guided-decoding-backend",
        "--max-model-len",
        "--cuda-graph-sizes",
        "--revision",
    }


@pytest.mark.parametrize(
    ("start", "args", "word", "instead"),
    [
        (
            "vllm serve o/m --guided-decoding-backend xgrammar",
            {"structured-outputs-config": {"backend": "xgrammar"}},
            "--guided-decoding-backend",
            "--structured-outputs-config.backend xgrammar",
        ),
        (
            "vllm serve o/m --cuda-graph-sizes 1 2",
            {"cudagraph-capture-sizes": ["1", "2"]},
            "--cuda-graph-sizes",
            "--cudagraph-capture-sizes 1 2",
        ),
        (
            "vllm serve o/m --cuda-graph-sizes=512",
            {"max-cudagraph-capture-size": 512},
            "--cuda-graph-sizes",
            "--max-cudagraph-capture-size 512",
        ),
        (
            "vllm serve o/m --compilation-config 3",
            {"compilation-config": {"mode": 3}},
            "--compilation-config 3",
            "--compilation-config.mode 3",
        ),
        (
            "vllm serve o/m --limit-mm-per-prompt image=4,video=1",
            {"limit-mm-per-prompt": {"image": 4, "video": 1}},
            "--limit-mm-per-prompt image=4,video=1",
            '--limit-mm-per-prompt {"image": 4, "video": 1}',
        ),
        (
            "vllm serve o/m --speculative-model o/d --num-speculative-tokens 5",
            {"speculative-config": {"model": "o/d", "num_speculative_tokens": 5}},
            "--speculative-model",
            "--speculative-config.model o/d",
        ),
        (
            "vllm serve o/m --task embed",
            {"runner": "pooling", "convert": "embed"},
            "--task",
            "--runner pooling --convert embed",
        ),
        (
            "VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve o/m",
            {"attention-backend": "FLASHINFER"},
            "VLLM_ATTENTION_BACKEND",
            "--attention-backend FLASHINFER",
        ),
        (
            "docker run -e VLLM_MXFP4_USE_MARLIN=1 vllm/vllm-openai --model o/m",
            {"moe-backend": "marlin"},
            "VLLM_MXFP4_USE_MARLIN",
            "--moe-backend marlin",
        ),
        (
            "vllm serve o/m --compilation-config "
            """'{"level": 3, "full_cuda_graph": true, "pass_config": {"enable_noop": true}}'""",
            {
                "compilation-config": {"mode": 3, "cudagraph_mode": "FULL", "pass_config": {"eliminate_noops": True}},
            },
            "--compilation-config level",
            "--compilation-config.mode 3",
        ),
        (
            """vllm serve o/m --compilation-config '{"compile_sizes": [1, 2], "full_cuda_graph": true}'""",
            {"compilation-config": {"compile_sizes": [1, 2], "cudagraph_mode": "FULL"}},
            "--compilation-config full_cuda_graph",
            "--compilation-config.cudagraph_mode FULL",
        ),
    ],
)
def test_what_is_gone_is_replaced_and_said(start, args, word, instead):
    found = entry(start)
    assert {name: value for name, value in found.instance["args"].items() if name != "tensor-parallel-size"} == args
    assert (word, f"is gone, the entry has {instead} in its place") in found.notes
    assert found.left_out == [] and "env" not in found.instance


def test_a_flag_of_the_command_goes_before_a_variable_that_is_gone():
    found = entry("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve o/m --attention-backend FLASH_ATTN")
    assert found.instance["args"]["attention-backend"] == "FLASH_ATTN"
    assert "instead: --attention-backend" in left_out(found)["VLLM_ATTENTION_BACKEND"]


def test_a_value_that_the_replacement_does_not_take_is_left_out():
    found = entry("VLLM_ATTENTION_BACKEND=NO_SUCH vllm serve o/m --task reward")
    assert set(left_out(found)) == {"VLLM_ATTENTION_BACKEND", "--task"}
    assert found.instance["args"] == {"tensor-parallel-size": 1}


def test_a_key_whose_successor_is_gone_too_is_left_out():
    found = entry("""vllm serve o/m --compilation-config '{"pass_config": {"enable_async_tp": true}}'""")
    assert "until 0.30, nothing since" in left_out(found)["--compilation-config"]


def test_a_parser_of_a_plugin_is_kept_with_its_plugin():
    found = entry("vllm serve o/m --tool-parser-plugin /x/p.py --tool-call-parser mine --enable-auto-tool-choice")
    assert found.instance["args"]["tool-call-parser"] == "mine"
    assert ("--tool-parser-plugin", "names /x/p.py, a path of that machine; hosts need it there too") in found.notes


def test_secrets_are_names_and_nothing_else():
    found = entry("docker run -e VLLM_API_KEY=s3cret vllm/vllm-openai --model o/m --api-key 0ther --hf-token hf_x")
    assert found.secrets == ["VLLM_API_KEY"] and not {"s3cret", "0ther", "hf_x"} & set(str(found).split("'"))
