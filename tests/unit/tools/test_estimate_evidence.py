# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import read_document

from tools.estimate_evidence import Estimate, EstimateError, command, document, note, parse_estimate, write

MODEL = "openai/gpt-oss-20b"
TOOL = "AIConfigurator 0.12.0"
# What AIConfigurator 0.12.0 printed, without its warnings.
OUTPUT = """
============================================================
  Performance Estimate (agg)
============================================================
  Model:            openai/gpt-oss-20b
  System:           h200_sxm
  Backend:          vllm (0.24.0)
------------------------------------------------------------
  ISL:              1024
  OSL:              512
  Batch Size:       64
------------------------------------------------------------
  TTFT:             70.138 ms
  TPOT:             9.504 ms
  Request Latency:  4926.519 ms
  Power (per GPU):  unavailable (0.0% coverage)
------------------------------------------------------------
  tokens/s:         6,638.36
  tokens/s/gpu:     6,638.36
  tokens/s/user:    105.22
============================================================
"""
AT_64 = Estimate(64, 6638.36, 9.504, "0.24.0")


def test_the_figures_are_read_from_the_output():
    assert parse_estimate(OUTPUT, 64) == AT_64


@pytest.mark.parametrize("line", ["  tokens/s:", "  TPOT:", "  Backend:"])
def test_output_without_a_figure_is_refused_with_its_last_line(line):
    text = "\n".join(each for each in OUTPUT.splitlines() if not each.startswith(line))
    with pytest.raises(EstimateError, match="no figures for 64 requests at a time: Error: At least one of"):
        parse_estimate(f"{text}\nError: At least one of moe_tp_size\n", 64)


def test_the_command_asks_for_measured_kernels_alone():
    words = command("aic", MODEL, "h100_sxm", 2, 64)
    for option, value in {"--database-mode": "SILICON", "--batch-size": "64", "--tp-size": "2"}.items():
        assert words[words.index(option) + 1] == value


@pytest.mark.parametrize(
    ("known", "hardware", "sentence"),
    [
        ({"1 x h200": "+8 % at 1"}, "1 x h200", "reported: +8 % at 1 requests at a time on 1 x h200. The time to"),
        ({"1 x h200": "+8 % at 1"}, "1 x b200", "on 1 x h200. The error on this chip is not known. The time to"),
        ({}, "2 x h200", f"The error is not known: nothing was measured of {MODEL} here. The time to"),
    ],
)
def test_the_note_states_the_error_or_that_it_is_not_known(known, hardware, sentence):
    text = note(TOOL, known, MODEL, hardware)
    assert sentence in text
    assert "on no chip and with no vLLM" in text


def test_the_file_is_evidence_and_takes_the_place_of_an_older_one(tmp_path):
    for date in ("2026-11-25", "2026-11-26"):
        write(document(MODEL, "b200", 1, [AT_64], TOOL, date, "a note"), tmp_path)
    (path,) = tmp_path.rglob("*.yml")
    assert str(path.relative_to(tmp_path)) == f"{MODEL}/b200x1/0.24.0-2026-11-26-estimated.yml"
    found = read_document(yaml.safe_load(path.read_text()), f"{MODEL}/b200x1/{path.stem}", "x.yml")
    assert (found.status, found.source, found.release, found.preset) == ("estimated", TOOL, "0.24.0", None)
    assert "ttft_ms" not in found.results[0]
