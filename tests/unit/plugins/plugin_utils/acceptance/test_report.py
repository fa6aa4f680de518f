# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.plugin_utils.acceptance.report import (
    file_stem,
    result_of,
    summary_lines,
)

from tests.unit.plugins.plugin_utils.acceptance.test_judge import BENCH, changed, healthy

NOW = 1795473900


def document_of(parts):
    document, _judgement = result_of("gpu-1", "baremetal.inference 0.8.0", NOW, {**parts, "minutes": 2.0})
    return json.loads(json.dumps(document))


def test_the_document_of_a_healthy_machine():
    document = document_of({**healthy(), "accelerator": {"model": "h200", "count": 2, "pythons": ["3.12"]}})
    assert (document["format"], document["accepted"], document["host"]) == (1, True, "gpu-1")
    assert document["date"] == "2026-11-23T22:45:00Z"
    assert document["accelerator"] == {"model": "h200", "count": 2}
    assert document["figures"][0] == {
        "chip": "0000:1b:00.0", "figure": "bf16_tflops", "unit": "TFLOP/s", "found": 788, "lowest": 780, "highest": 800,
        "expected": 790, "fraction": 0.997,
    }  # fmt: skip
    assert document["figures"][-1] == {
        "chip": "0000:43:00.0 to 0000:1b:00.0", "figure": "peer_gb_per_s", "unit": "GB/s", "found": 390, "lowest": 380,
        "highest": 391, "expected": 450, "fraction": 0.867,
    }  # fmt: skip
    assert len(document["figures"]) == 6


def test_the_document_has_the_figures_of_each_bench_and_why_one_was_not_taken():
    skipped = {"item": "b", "not_tried": "busy", "changed": False, "ansible_loop_var": "item"}
    document = document_of({**healthy(), "benches": [*healthy()["benches"], skipped]})
    assert document["benches"] == [{"item": "chat", "figures": BENCH}, {"item": "b", "not_tried": "busy"}]


def test_a_chip_without_expected_figures_is_reported():
    document = document_of({**healthy(), "expected": {}})
    assert document["accepted"] is True
    assert document["figures"][0].keys() == {"chip", "figure", "unit", "found", "lowest", "highest"}
    assert "  chip cpu: bf16 matrix products 788 TFLOP/s" in summary_lines(document, [])


def test_the_lines_for_the_terminal():
    document = document_of(changed(("burn_in", "measured", "products", 1, "median"), 512))
    lines = summary_lines(document, ["/r/gpu-1.json"])
    assert lines[0] == "gpu-1: NOT accepted"
    assert "  chip 0000:43:00.0: bf16 matrix products 512 TFLOP/s, 0.65 of 790" in lines
    assert any(line.startswith("  finding: chip 0000:43:00.0: bf16 matrix products at 512") for line in lines)
    assert "  chip 0000:1b:00.0 to 0000:43:00.0: copies between chips 390 GB/s, 0.87 of 450" in lines
    assert "  storage: 6.1 GB/s" in lines
    assert "  bench of chat: 2,400.0 output tokens/s, TTFT 210.0 ms, ITL p99 9.0 ms with 16 requests at a time" in lines
    assert lines[-1] == "  /r/gpu-1.json"


def test_what_was_not_tried_is_in_document_and_lines():
    document = document_of({})
    assert document["accepted"] is True
    assert "  not tried: chat (no instance of vLLM is installed)" in summary_lines(document, [])


def test_a_hosts_name_cannot_leave_the_directory():
    assert file_stem("../a b", "2026-11-23T22:45:00Z") == ".._a_b-20261123T224500Z"
