# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tool import environment, last_reason


def test_the_key_is_in_one_variable_and_no_hub_is_asked():
    key = "sk-planted-0123456789"
    found = environment("/w", key)
    assert [name for name, value in found.items() if key in value] == ["OPENAI_API_KEY"]
    assert {name for name in found if name.endswith("OFFLINE")} == {
        "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE",
    }  # fmt: skip
    assert environment("/w", "")["OPENAI_API_KEY"] == "none"
    assert found["HOME"] == found["TMPDIR"] == "/w" and found["PYTHONPATH"].startswith("/w/")


def test_the_last_line_that_is_a_reason():
    trace = 'Traceback (most recent call last):\n  File "x", line 1\n    x()\nModuleNotFoundError: no x\n\n'
    assert last_reason(trace) == "ModuleNotFoundError: no x"
    assert last_reason("") == "it wrote nothing"
    assert len(last_reason("x" * 1000)) == 403
