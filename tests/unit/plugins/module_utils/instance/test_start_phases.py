# SPDX-License-Identifier: GPL-3.0-or-later
"""Phases of recorded starts.

start-0.25.1.txt is a journal of two H100 (2026-11-25). start-0.33.0.txt is what vLLM wrote on an H200 (2026-11-28)
without systemd; the times in front are vLLM's own, in whole seconds.
"""

from __future__ import annotations

from pathlib import Path

from ansible_collections.baremetal.inference.plugins.module_utils.instance.start_phases import read_start

JOURNALS = Path(__file__).resolve().parents[4] / "fixtures" / "journal"


def recorded(release):
    return (JOURNALS / f"start-{release}.txt").read_text(encoding="utf-8").splitlines()


def test_a_start_of_0_25_1_over_two_chips():
    assert read_start(recorded("0.25.1")) == {
        "ready": True,
        "seconds": 74.0,
        "phases": [
            ["imports", 6.2], ["configuration", 7.0], ["engine process", 6.7], ["weights", 1.8], ["compile", 37.2],
            ["profile", 8.0], ["graphs", 1.9], ["API server", 2.5], ["warm-up", 2.7], ["ready", 0.1],
        ],
    }  # fmt: skip


def test_graphs_for_the_profile_of_0_33_0_count_to_the_profile():
    assert read_start(recorded("0.33.0")) == {
        "ready": False,
        "seconds": 174.0,
        "phases": [
            ["imports", 0.0], ["configuration", 11.0], ["engine process", 8.0], ["weights", 9.0], ["compile", 19.0],
            ["profile", 82.0], ["graphs", 40.0], ["API server", 5.0], ["first answer", 0.0],
        ],
    }  # fmt: skip


def test_the_phases_add_up_to_the_whole():
    start = read_start(recorded("0.25.1"))
    assert abs(sum(seconds for _phase, seconds in start["phases"]) - start["seconds"]) < 0.2


def test_only_the_last_start_counts():
    first = [line.replace("[  ", "[") for line in recorded("0.25.1")]
    assert read_start([*first[:9], *recorded("0.25.1")]) == read_start(recorded("0.25.1"))


def test_a_phase_without_its_line_counts_to_the_next():
    lines = [line for line in recorded("0.25.1") if "compile" not in line and "warmup run" not in line]
    assert ["profile", 45.2] in read_start(lines)["phases"]


def test_an_engine_that_serves_changes_no_phase():
    more = ["[  900.000000] vllm-both[1]: Graph capturing finished in 1 secs", "[  901.0] x: KV cache size: 1"]
    assert read_start([*recorded("0.25.1"), *more]) == read_start(recorded("0.25.1"))


def test_the_first_answer_of_a_start_without_a_warm_up_comes_after_ready():
    answer = '[  251.504568] vllm-both[979]: INFO: 127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    start = read_start([*(line for line in recorded("0.25.1") if "Warm-up" not in line), answer])
    assert start["seconds"] == 74.0 and start["phases"][-2:] == [["ready", 2.8], ["first answer", 1.0]]


def test_nothing_is_no_start():
    assert read_start(["-- No entries --", ""]) == {"ready": False, "seconds": 0.0, "phases": []}
