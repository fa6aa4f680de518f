# SPDX-License-Identifier: GPL-3.0-or-later
"""The quantizations that vLLM refuses on a platform by its own lists: the guards of catalog/families.yml have them."""

from __future__ import annotations

import ast

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_families

from tests.parity.conftest import fetched
from tools.vllm.fetch_vllm_release import sources

METHODS = "vllm/model_executor/layers/quantization/__init__.py"


def listed(file, name):
    """Return the texts that the first assignment to a name lists, as vLLM writes them."""
    found = next(
        node.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and name in [getattr(each, "id", "") for each in getattr(node, "targets", [getattr(node, "target", None)])]
    )
    return {each.value for each in ast.walk(found) if isinstance(each, ast.Constant)}


@pytest.fixture(scope="module")
def top():
    return fetched(sources, "0.33.0")


@pytest.mark.parametrize("platform", ["rocm", "xpu"])
def test_the_guard_of_a_platform_has_what_vllm_refuses_there(platform, top):
    file = f"vllm/platforms/{platform}.py"
    guards = [each for each in load_families()["guards"] if each["source"] == file and "quantization" in each["when"]]
    refused = listed(top / METHODS, "QuantizationMethods") - listed(top / file, "supported_quantization")
    # Weights name this one by their format, which vLLM then calls modelopt_fp4.
    assert {name for each in guards for name in each["when"]["quantization"]} - {"nvfp4"} == refused


def test_ascend_refuses_all_that_its_plugin_does_not_have(top):
    """The plugin's list, of main of August 2026, is in its own repository; names of before 0.33.0 stay refused."""
    has = {"ascend", "compressed-tensors", "fp8", "deepseek_v4_fp8", "modelopt_mxfp8", "mxfp8"}
    conditions = [each["when"] for each in load_families()["guards"] if each["when"].get("stack") == "cann"]
    guard = next({*each["quantization"]} for each in conditions if "awq" in each.get("quantization", ()))
    assert listed(top / METHODS, "QuantizationMethods") - has <= guard
    assert not has & guard
