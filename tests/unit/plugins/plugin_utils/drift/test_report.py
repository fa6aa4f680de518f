# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.drift.report import (
    Side,
    drift,
    drift_table,
    lost,
    table_drift,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.drift.uses import (
    DriftError,
    Use,
    command_uses,
    config_uses,
    recipe_uses,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import Foreign, OptionTable
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator

FOREIGN = Foreign(frozenset({"OMP_NUM_THREADS"}), ("NCCL_",))
OLD = Side(
    OptionTable.from_data(
        {
            "version": "0.11.0",
            "flags": {
                "cuda-graph-sizes": {"kind": "list", "of": "integer"},
                "block-size": {"kind": "choice", "values": [16, 32]},
                "async-scheduling": {"kind": "switch"},
                "compilation-config": {"kind": "json", "keys": {"full_cuda_graph": "boolean", "level": "integer"}},
                "max-model-len": {"kind": "integer"},
            },
            "env": ["VLLM_USE_V1", "VLLM_CACHE_ROOT"],
        }
    ),
    FOREIGN,
)
NEW = Side(
    OptionTable.from_data(
        {
            "version": "0.33.0",
            "flags": {
                "block-size": {"kind": "integer"},
                "async-scheduling": {"kind": "switch", "negatable": True},
                "compilation-config": {"kind": "json", "aliases": ["-cc"], "keys": {"level": "integer", "mode": "any"}},
                "max-model-len": {"kind": "integer"},
                "stream-interval": {"kind": "integer"},
            },
            "env": ["VLLM_CACHE_ROOT", "VLLM_ROCM_USE_AITER"],
        }
    ),
    FOREIGN,
)
REPLACED = {
    "cuda-graph-sizes": {"instead": "--max-cudagraph-capture-size", "since": "0.13.0"},
    "VLLM_USE_V1": {"instead": "leave it out", "since": "0.13.0", "because": "there is no other engine"},
}
H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8)
MI300X = Accelerator("mi300x", "rocm", "gfx942", "amd", 8)


def rows(*uses, replaced=None):
    rows_of = drift(list(uses), OLD, NEW, REPLACED if replaced is None else replaced)
    return {row["setting"]: row for row in rows_of}


def use(name, value=True):
    return Use(name, value, "guide:1")


@pytest.mark.parametrize(
    ("setting", "change", "effect"),
    [
        (use("--cuda-graph-sizes", "2048"), "vanishes", "is refused"),
        (use("--stream-interval", "20"), "appears", "works"),
        (use("--block-size", "16"), "changes", "works"),
        (use("--max-model-len", "10"), "same", "works"),
        (use("--nothing-like-it"), "unknown", "is refused"),
        (use("VLLM_USE_V1", "1"), "vanishes", "does nothing"),
        (use("VLLM_ROCM_USE_AITER", "1"), "appears", "works"),
        (use("VLLM_NEVER", "1"), "unknown", "does nothing"),
        (use("NCCL_DEBUG", "1"), "same", "works"),
    ],
)
def test_each_setting_is_what_it_becomes(setting, change, effect):
    (row,) = rows(setting).values()
    assert (row["change"], row["effect"]) == (change, effect)


def test_keys_of_a_json_flag_are_settings_of_their_own():
    found = rows(use("--compilation-config", '{"full_cuda_graph": true, "level": 3}'))
    assert found["--compilation-config.full_cuda_graph"]["change"] == "vanishes"
    assert found["--compilation-config.level"]["change"] == "same"


def test_a_dotted_key_and_a_json_key_are_one_setting():
    (row,) = rows(use("--compilation-config.level", "3"), use("--compilation-config", {"level": 3})).values()
    assert row["setting"] == "--compilation-config.level"


def test_a_spelling_that_is_younger_than_its_flag_is_told():
    (row,) = rows(use("-cc.level=3")).values()
    assert (row["setting"], row["change"], row["older"]) == (
        "--compilation-config.level", "appears", "-cc is not there",
    )  # fmt: skip


def test_what_replaced_a_setting_is_told_with_since_and_because():
    found = rows(use("--cuda-graph-sizes", "1"), use("VLLM_USE_V1", "1"))
    assert found["--cuda-graph-sizes"]["instead"] == "--max-cudagraph-capture-size (since 0.13.0)"
    assert found["VLLM_USE_V1"]["instead"] == "leave it out (since 0.13.0): there is no other engine"


def test_without_a_replacement_the_nearest_name_is_told():
    assert rows(use("VLLM_ROCM_USE_AITR", "1"))["VLLM_ROCM_USE_AITR"]["instead"] == "perhaps VLLM_ROCM_USE_AITER"


def test_a_value_that_is_refused_now_is_lost():
    row = rows(use("--max-model-len", "10"), use("--block-size", "16"))["--block-size"]
    assert not row["lost"]
    old = Side(NEW.table, FOREIGN)
    new = Side(OptionTable.from_data({"version": "0.34.0", "flags": {"block-size": {"kind": "choice", "values": [32]}},
                                      "env": []}), FOREIGN)  # fmt: skip
    (row,) = drift([use("--block-size", "16")], old, new, {})
    assert row["lost"] and row["effect"] == "is refused" and "found" in row["newer"]


def test_only_what_worked_before_is_lost():
    found = drift([use("VLLM_USE_V1", "1"), use("VLLM_NEVER", "1"), use("--max-model-len", "1")], OLD, NEW, {})
    assert [row["setting"] for row in lost(found)] == ["VLLM_USE_V1"]


GUIDE = """Some prose about `vllm serve` in the middle of a line.
# export VLLM_COMMENTED_OUT=1
export OMP_NUM_THREADS=1 VLLM_USE_V1='1'
    export VLLM_CACHE_ROOT="/a b"
$ NCCL_DEBUG=INFO vllm serve openai/gpt-oss-120b \\
  --tensor_parallel_size 8 --no-enable-prefix-caching \\
  --compilation-config '{"level": 3}' -cc.pass_config.x=True --api-key a b -O3 &
python3 -m vllm.entrypoints.openai.api_server --port=80 | tee log
export NOT_CLOSED
"""


def test_a_guide_is_read_line_by_line():
    uses = [(entry.name, entry.value, entry.where) for entry in command_uses(GUIDE, "g")]
    assert uses == [
        ("OMP_NUM_THREADS", "1", "g:3"),
        ("VLLM_USE_V1", "1", "g:3"),
        ("VLLM_CACHE_ROOT", "/a b", "g:4"),
        ("NCCL_DEBUG", "INFO", "g:5"),
        ("--tensor_parallel_size", "8", "g:5"),
        ("--no-enable-prefix-caching", True, "g:5"),
        ("--compilation-config", '{"level": 3}', "g:5"),
        ("-cc.pass_config.x", "True", "g:5"),
        ("--api-key", ["a", "b"], "g:5"),
        ("-O3", "3", "g:5"),
        ("--port", "80", "g:8"),
    ]


def test_a_quote_that_does_not_end_names_file_and_line():
    with pytest.raises(DriftError, match="g:2: No closing quotation"):
        command_uses("\nexport A='x\n", "g")


def test_a_config_file_is_read():
    assert config_uses({"max-model-len": 5}, "c.yaml") == [Use("--max-model-len", 5, "c.yaml")]


RECIPE = {
    "model": {
        "base_args": ["--max-model-len", "4096"],
        "rules": [{"when": {"vllm": "<0.13", "stack": "cuda"}, "extra_args": ["--async-scheduling"]}],
    },
    "features": {"draft": {"args": ["--stream-interval", "20"], "hardware": {"mi300x": "unsupported"}}},
    "variants": {"bf16": {"supported_hardware": ["ascend_a2"], "extra_args": ["--block-size", "16"]}},
    "hardware_overrides": {"amd": {"extra_env": {"VLLM_ROCM_USE_AITER": "1"}}},
    "guards": [{"when": {"args": {"x": 1}}, "refuse": "no"}],
}


def names(accelerator=None):
    return {use.name: (use.older, use.newer) for use in recipe_uses(RECIPE, "0.11.0", "0.33.0", accelerator)}


def test_all_blocks_of_a_recipe_are_looked_at_for_both_releases():
    assert names() == {
        "--max-model-len": (True, True),
        "--async-scheduling": (True, False),
        "--stream-interval": (True, True),
        "--block-size": (True, True),
        "VLLM_ROCM_USE_AITER": (True, True),
    }


def test_for_one_accelerator_only_its_blocks_are():
    assert set(names(H200)) == {"--max-model-len", "--async-scheduling", "--stream-interval"}
    assert set(names(MI300X)) == {"--max-model-len", "VLLM_ROCM_USE_AITER"}


def test_what_a_recipe_leaves_out_for_the_newer_release_is_not_lost():
    uses = recipe_uses(RECIPE, "0.11.0", "0.33.0", H200)
    row = {row["setting"]: row for row in drift(uses, OLD, NEW, {})}["--async-scheduling"]
    assert (row["change"], row["effect"], row["lost"]) == ("vanishes", "is not set", False)
    assert row["newer"] == "the recipe does not set it"


def test_a_release_against_itself_changes_nothing():
    uses = recipe_uses(RECIPE, "0.11.0", "0.11.0")
    assert {row["change"] for row in drift(uses, OLD, OLD, {})} <= {"same", "unknown"}
    assert table_drift(OLD, OLD, {}) == []


def test_tables_alone_are_compared_too():
    found = {row["setting"]: row["change"] for row in table_drift(OLD, NEW, REPLACED)}
    assert found == {
        "--cuda-graph-sizes": "vanishes",
        "--compilation-config.full_cuda_graph": "vanishes",
        "VLLM_USE_V1": "vanishes",
        "--block-size": "changes",
        "--compilation-config.mode": "appears",
        "--stream-interval": "appears",
        "VLLM_ROCM_USE_AITER": "appears",
    }


def test_the_report_fits_a_terminal_and_cuts_nothing():
    uses = [*command_uses(GUIDE, "guide"), use("--cuda-graph-sizes", "1"), use("--block-size", "16")]
    text = drift_table(drift(uses, OLD, NEW, REPLACED), "0.11.0", "0.33.0", "guide")
    assert max(len(line) for line in text.splitlines()) <= 120
    assert text.startswith("guide, vLLM 0.11.0 to 0.33.0: ")
    for words in ("VLLM_USE_V1 does nothing", "--cuda-graph-sizes is refused", "Vanishes", "Stays: ", "guide:3"):
        assert words in text
