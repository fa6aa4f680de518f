# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.citation import (
    cite,
    nearest_evidence,
    outdated,
    outdated_lines,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import (
    PLACE,
    plan_digest,
    read_document,
)

from tests.fakes.evidence import document

ARGV, ENV = ["vllm", "serve", "m"], {"A": "1"}


def evidence(name="", **change):
    made = document(**change)
    return read_document(made, PLACE.format(**made) + (f"-{name}" if name else ""), "x.yml")


def plan(**change):
    return {
        "model": "openai/gpt-oss-20b",
        "accelerator": "h200",
        "chips": [0],
        "preset": "balanced",
        "vllm_version": "0.25.1",
        "argv": ARGV,
        "env": ENV,
        **change,
    }


def test_evidence_of_a_whole_chip_is_none_of_its_parts():
    parts = plan(partition="3x2g.35gb")
    assert cite(parts, [evidence()]) == (
        "preset balanced: no evidence for openai/gpt-oss-20b on 1 x h200_3x2g_35gb; its settings are unproven there"
    )
    assert nearest_evidence(parts, [evidence(accelerator="h200_3x2g_35gb")]) is not None
    assert nearest_evidence(plan(), [evidence(accelerator="h200_3x2g_35gb")]) is None


def test_evidence_of_the_same_preset_and_release():
    assert cite(plan(), [evidence()]) == (
        "8,950 tokens/s at 64, start 47.1 s (vLLM 0.25.1, 2026-11-23, random weights)"
    )


def test_older_evidence_of_another_preset_says_so():
    line = cite(plan(vllm_version="0.33.0", preset="latency"), [evidence()])
    assert line.endswith(
        "random weights); of preset balanced, preset latency has no evidence on this hardware, older than vLLM 0.33.0"
    )
    assert cite(plan(preset=None), [evidence()]).endswith("random weights); of preset balanced")


def test_a_start_alone_is_not_a_figure_under_load():
    assert cite(plan(), [evidence(results=[])]).startswith("start 47.1 s, nothing measured under load (vLLM 0.25.1")
    assert "nothing measured" not in cite(plan(), [evidence()])


def test_newer_evidence_says_so():
    assert cite(plan(vllm_version="0.23.0"), [evidence()]).endswith("; not of vLLM 0.23.0")


def test_evidence_without_a_preset():
    found = document()
    del found["preset"]
    entry = read_document(found, PLACE.format(**found), "x.yml")
    assert cite(plan(), [entry]).endswith("; of no preset, preset balanced has no evidence on this hardware")


def test_reported_evidence_names_who_said_it():
    assert cite(plan(), [evidence(status="estimated", source="AIConfigurator 0.6.0")]).startswith(
        "estimated by AIConfigurator 0.6.0: 8,950"
    )


def test_a_preset_without_evidence_says_so_and_a_plan_without_a_preset_does_not():
    assert cite(plan(chips=[0, 1]), [evidence()]) == (
        "preset balanced: no evidence for openai/gpt-oss-20b on 2 x h200; its settings are unproven there"
    )
    assert cite(plan(chips=[0, 1], preset=None), [evidence()]) == ""


def test_other_models_and_chips_do_not_count():
    others = [evidence(model="openai/gpt-oss-120b"), evidence(accelerator="h100"), evidence(count=8)]
    assert nearest_evidence(plan(), others) is None


def test_the_nearest():
    same_plan = evidence("a", plan=plan_digest({"argv": ARGV, "env": ENV}), preset="latency")
    same_preset = evidence("b")
    same_release = evidence("c", preset="latency")
    started = evidence("d", results=[])
    reported = evidence("e", status="reported", release="0.33.0")
    assert nearest_evidence(plan(), [same_preset, same_plan]) is same_plan
    assert nearest_evidence(plan(), [same_release, same_preset]) is same_preset
    assert nearest_evidence(plan(), [started, same_preset]) is same_preset
    assert nearest_evidence(plan(), [reported, same_preset]) is same_preset
    assert nearest_evidence(plan(preset="throughput"), [same_release, reported]) is same_release


def test_a_host_without_chips_counts_as_one():
    assert nearest_evidence(plan(accelerator="cpu", chips=[]), [evidence(accelerator="cpu")]) is not None


def test_figures_of_other_kinds():
    spread = {"median": 14.6, "lowest": 14, "highest": 15}
    base = {"workload": "chat", "input_tokens": 1, "output_tokens": 1, "concurrency": 8, "repeats": 1}
    lines = [cite(plan(), [evidence(results=[{**base, key: spread}])]) for key in ("itl_p99_ms", "joules_per_token")]
    assert [line.partition(",")[0] for line in lines] == ["ITL p99 15 ms at 8", "14.6 J/token at 8"]


def test_outdated():
    entries = [evidence(), evidence(release="0.33.0"), evidence(model="openai/gpt-oss-120b")]
    assert [row["name"] for row in outdated(entries, "0.33.0", "openai/gpt-oss-20b")] == [entries[0].name]
    assert len(outdated(entries, "0.33.0")) == 2
    assert outdated(entries, "0.33.0", accelerator="b200") == []
    assert outdated([evidence(status="estimated")], "0.33.0") == []
    both = outdated([*entries, evidence("b", release="0.9.2")], "0.33.0", "openai/gpt-oss-20b")
    assert outdated_lines(both, "0.33.0") == [
        "Evidence older than vLLM 0.33.0: openai/gpt-oss-20b/h200x1, 2 files of vLLM 0.9.2, 0.25.1; "
        "bench.yml makes new evidence"
    ]
