# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.vllm.unit import advice
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.start_failures import START_FAILURES


def test_a_journal_with_a_symptom_gets_its_advice_and_another_one_none():
    line = "ValueError: Model architectures ['NewForCausalLM'] are not supported for now. Supported architectures: ..."
    assert advice([line], START_FAILURES) == [
        "This release of vLLM does not know the model's architecture: choose a newer vllm_release."
    ]
    line = "ModuleNotFoundError: No module named 'torchvision'"
    assert "set vllm_runtime: container" in advice([line], START_FAILURES)[0]
    assert advice(["INFO 11-21 08:20:14 [api_utils.py:286] ready"], START_FAILURES) == []
