# SPDX-License-Identifier: GPL-3.0-or-later
"""The drift report over the bundled tables, and what the guides of old set."""

from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.inference.plugins.action.release_drift import report
from ansible_collections.baremetal.inference.plugins.plugin_utils.drift.uses import DriftError
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTableError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

from tests.fakes.actions import run_action
from tests.fakes.evidence import NAME, document

OPTIONS = {"older": "0.11.0", "newer": "0.33.0", "recipe": "", "accelerator": "", "command": "", "config": "",
           "recipe_path": [], "accelerator_catalog_path": []}  # fmt: skip

GUIDE = """
export VLLM_USE_TRTLLM_ATTENTION=1
export VLLM_USE_FLASHINFER_MXFP4_MOE=1
export VLLM_ROCM_USE_AITER=1
vllm serve openai/gpt-oss-120b --compilation-config '{"full_cuda_graph": true}' --block-size 64
"""


def rows(**options):
    return {row["setting"]: row for row in report({**OPTIONS, **options})}


def test_what_a_guide_sets_and_nobody_reads_is_told(tmp_path):
    guide = tmp_path / "guide.sh"
    guide.write_text(GUIDE)
    found = rows(command=str(guide))
    effects = {name: (row["change"], row["effect"]) for name, row in found.items()}
    assert effects == {
        "VLLM_USE_TRTLLM_ATTENTION": ("vanishes", "does nothing"),
        "VLLM_USE_FLASHINFER_MXFP4_MOE": ("unknown", "does nothing"),
        "VLLM_ROCM_USE_AITER": ("same", "works"),
        "--compilation-config.full_cuda_graph": ("vanishes", "is refused"),
        "--block-size": ("changes", "works"),
    }
    assert found["--block-size"]["where"] == ["guide.sh:5"]


def test_a_config_file_is_looked_at(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("cuda-graph-sizes: 2048\nasync-scheduling: true\n")
    found = rows(config=str(config))
    assert found["--cuda-graph-sizes"]["effect"] == "is refused" and found["--async-scheduling"]["effect"] == "works"


def test_a_recipe_is_composed_for_either_release():
    found = rows(recipe="openai/gpt-oss-120b", accelerator="b200")
    # What is gone is not set for the newer release, so nothing is of no use there.
    assert {row["effect"] for row in found.values()} <= {"works", "is not set"}
    assert not [name for name, row in found.items() if row["lost"]]
    assert "VLLM_ROCM_USE_AITER" not in found


def test_without_anything_to_look_for_the_tables_are_compared():
    found = rows(older="0.32.0")
    assert found["VLLM_USE_RAY_V2_EXECUTOR_BACKEND"]["change"] == "vanishes"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"older": "0.11.1"}, OptionTableError, "no option table for vLLM 0.11.1"),
        ({"recipe": "openai/gpt-oss-12b"}, PlanError, "nearest: 'openai/gpt-oss-120b'"),
        ({"command": "/nowhere/guide.sh"}, DriftError, "drift_command: /nowhere/guide.sh cannot be read"),
        ({"config": __file__}, DriftError, "drift_config: "),
    ],
)
def test_bad_input_is_one_sentence(options, error, message):
    with pytest.raises(error, match=message):
        report({**OPTIONS, **options})


def test_a_config_that_is_no_mapping_is_named_in_plain_words(tmp_path):
    (tmp_path / "config.yaml").write_text("- model\n")
    with pytest.raises(DriftError, match="found a list, expected a mapping of flags to values"):
        report({**OPTIONS, "config": str(tmp_path / "config.yaml")})


def test_evidence_that_is_older_than_the_newer_release_is_marked(tmp_path):
    path = tmp_path / f"{NAME}-ours.yml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(document()))
    options = {"older": "0.25.1", "recipe": "openai/gpt-oss-20b", "evidence_path": [str(tmp_path)]}
    names = [
        {row["name"] for row in run_action("release_drift", {**options, "newer": newer}, {})["outdated_evidence"]}
        for newer in ("0.33.0", "0.25.1")
    ]
    assert f"{NAME}-ours" in names[0] and names[1] == set()
    with pytest.raises(AnsibleActionFail, match="evidence_path: /nowhere is not a directory"):
        run_action("release_drift", {**options, "newer": "0.33.0", "evidence_path": ["/nowhere"]}, {})
