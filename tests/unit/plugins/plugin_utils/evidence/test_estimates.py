# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import PLACE, read_document
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.estimates import (
    comparable,
    error_text,
    errors,
)

from tests.fakes.evidence import document

RESULT = document()["results"][0]


def evidence(name="", **change):
    """Return evidence with vLLM's own settings, unless ``change`` names a preset."""
    made = {key: value for key, value in document(**{"preset": None, **change}).items() if value is not None}
    return read_document(made, PLACE.format(**made) + (f"-{name}" if name else ""), "x.yml")


def result(speed, **change):
    return {**RESULT, "output_tokens_per_second": dict.fromkeys(("median", "lowest", "highest"), speed), **change}


def test_the_error_is_that_against_the_best_figure_of_the_same_lengths():
    entries = [
        evidence("slow", results=[result(4000)]),
        evidence("best", results=[result(8000), result(10, concurrency=1, input_tokens=8192)]),
        evidence("start", results=[]),
    ]
    assert errors([result(6000), result(350, concurrency=1)], entries) == {64: -0.25}


def test_an_error_is_a_clause():
    assert error_text({64: -0.261, 1: 0.08}) == "+8 % at 1, -26 % at 64"


def test_estimates_presets_and_other_hardware_are_not_what_an_estimate_is_compared_with():
    entries = [evidence(), evidence("b", status="estimated"), evidence("c", preset="latency"), evidence(count=2)]
    assert comparable(entries, "openai/gpt-oss-20b", "h200", 1) == [entries[0]]
