# SPDX-License-Identifier: GPL-3.0-or-later
"""Medians with their spread, and the digests."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.summary import (
    figures_line,
    raw_digest,
    results_of,
    slowed_notes,
)

from tests.fakes.benches import record


def test_the_repeats_of_a_point_are_one_entry():
    records = [
        record(concurrency=64, repeat=number, speed=speed, ttft=ttft, itl=itl, joules=joules)
        for number, speed, ttft, itl, joules in (
            (1, 8950, 560, 14, 153.6),
            (2, 8891, 577, 16, 307.2),
            (3, 9029, 542, 15, 460.8),
        )
    ]
    assert results_of([*records, record(concurrency=1)])[0] == {
        "workload": "chat",
        "input_tokens": 1024,
        "output_tokens": 512,
        "concurrency": 64,
        "repeats": 3,
        "output_tokens_per_second": {"median": 8950.0, "lowest": 8891.0, "highest": 9029.0},
        "ttft_ms": {"median": 560.0, "lowest": 542.0, "highest": 577.0},
        "tpot_ms": {"median": 3.03, "lowest": 3.03, "highest": 3.03},
        "itl_p99_ms": {"median": 15.0, "lowest": 14.0, "highest": 16.0},
        # The recorded result has 1536 output tokens.
        "joules_per_token": {"median": 0.2, "lowest": 0.1, "highest": 0.3},
    }


def test_each_point_has_an_entry_in_order():
    found = results_of([record(concurrency=8), record(concurrency=1), record(concurrency=8, repeat=2)])
    assert [(entry["concurrency"], entry["repeats"]) for entry in found] == [(8, 2), (1, 1)]


def test_joules_of_a_part_of_the_repeats_are_left_out():
    assert "joules_per_token" not in results_of([record(joules=100), record(repeat=2)])[0]


def test_a_line_has_the_figures():
    assert figures_line(record(speed=8950.44, ttft=560.1, itl=14.61)) == "8,950.4 tok/s, TTFT 560.1 ms, ITL p99 14.6 ms"
    assert figures_line(record(joules=153.6)).endswith(", 0.100 J/token")


def test_the_raw_results_are_named_by_what_the_benchmark_wrote():
    one, two = record(), record(repeat=2, speed=1)
    assert raw_digest([one, two]) == raw_digest([{**one, "repeat": 5}, two]) != raw_digest([two, one])


def test_a_chip_that_was_slowed_down_is_a_note():
    hot = {**record(concurrency=64, repeat=2), "slowed": ["0000:1b:00.0 (hw_therm_slowdown)"]}
    (note,) = slowed_notes([record(), hot])
    assert note.startswith("chat, 64 at a time, run 2: slowed down: 0000:1b:00.0 (hw_therm_slowdown); the figures are")
