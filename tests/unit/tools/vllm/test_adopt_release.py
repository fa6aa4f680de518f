# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new release changes, and what this collection would miss in it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from tests.fakes.upstream import CONTENTS, VERSION, write_archive
from tools.vllm import adopt_release
from tools.vllm.adopt_release import ROOT, Release, missing_uses, read_release, report, used_metrics, used_routes

NEWEST = max((ROOT / "catalog" / "surface").glob("*.yml")).stem
OLD = Release(
    "1.0",
    {
        "flags": {
            "a": {"kind": "integer"},
            "b": {"kind": "text"},
            "tool-call-parser": {"kind": "text", "known": ["hermes"], "plugin": "p"},
        },
        "env": {"integer": ["VLLM_B"], "choice": {"VLLM_A": {"values": ["a"]}}, "text": ["VLLM_C"]},
    },
    {"metrics": ["vllm:x"], "routes": ["GET /v1/models"]},
    {"org/a": "1", "org/b": "2"},
)
NEW = Release(
    "1.1",
    {
        "flags": {
            "a": {"kind": "number"},
            "c": {"kind": "text"},
            "tool-call-parser": {"kind": "text", "known": ["hermes", "kimi"], "plugin": "p"},
        },
        "env": {
            "choice": {"VLLM_A": {"values": ["a", "b"]}},
            "text": ["VLLM_B", "VLLM_C", *(f"VLLM_{number:02}" for number in range(14))],
        },
    },
    {"metrics": ["vllm:y"], "routes": ["GET /v1/models"]},
    {"org/a": "1", "org/b": "3"},
)


def test_the_report_names_what_appears_vanishes_and_changes():
    assert list(report(OLD, NEW, ["metric vllm:x"])) == [
        "vLLM 1.1, compared with 1.0",
        *("flags: 3 -> 3", "  1 appear: c", "  1 vanish: b", "  2 change: a, tool-call-parser"),
        "variables: 3 -> 17",
        "  14 appear: VLLM_00, VLLM_01, VLLM_02, VLLM_03, VLLM_04, VLLM_05, VLLM_06, VLLM_07, VLLM_08, VLLM_09, "
        "VLLM_10, VLLM_11 and 2 more",
        "  2 change: VLLM_A, VLLM_B",
        *("tool-call-parsers: 1 -> 2", "  1 appear: kimi", "reasoning-parsers: 0 -> 0"),
        *("metrics: 1 -> 1", "  1 appear: vllm:y", "  1 vanish: vllm:x", "routes: 1 -> 1"),
        *("recipes: 2 -> 2", "  1 change: org/b"),
        "MISSING: metric vllm:x",
    ]


def test_the_newest_release_has_all_that_this_collection_reads():
    release = read_release(NEWEST, ROOT / "catalog")
    assert list(missing_uses(release)) == []
    assert {"vllm:num_requests_running", "vllm:generation_tokens_total"} <= set(used_metrics())
    assert {"POST /v1/chat/completions", "POST /v1/embeddings", "GET /health"} <= set(used_routes())
    without = {
        "metrics": [name for name in release.surface["metrics"] if name != "vllm:generation_tokens"],
        "routes": [route for route in release.surface["routes"] if route != "POST /rerank"],
    }
    missing = list(missing_uses(replace(release, surface=without)))
    assert [text.partition(", which")[0] for text in missing] == [
        "metric vllm:generation_tokens_total",
        "endpoint POST /rerank",
    ]


def test_the_files_of_a_release_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(adopt_release, "options_table", lambda version, _source: f"version: {version}\n")
    contents = {**CONTENTS, "vllm/entrypoints/api.py": b'router.get("/v1/models")\n', "vllm/m.py": b'"vllm:xy"\n'}
    adopt_release.write_files(
        VERSION, write_archive(tmp_path / f"vllm-{VERSION}.tar.gz", contents), tmp_path / "catalog"
    )
    found = read_release(VERSION, tmp_path / "catalog")
    assert found.options == {"version": VERSION} and found.surface["metrics"] == ["vllm:xy"]
    assert "GET /v1/models" in found.surface["routes"] and set(found.recipes) == {"org/big", "org/tiny"}


@pytest.mark.parametrize("content", ["nothing", None])
def test_what_cannot_be_read_is_one_sentence(tmp_path, content):
    archive = tmp_path / f"vllm-{VERSION}.tar.gz"
    write_archive(archive) if content is None else archive.write_text(content)
    command = [sys.executable, str(ROOT / "tools/vllm/adopt_release.py"), VERSION, "--archive", str(archive)]
    done = subprocess.run([*command, "--catalog", str(tmp_path / "c")], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("adopt_release: "), done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "c").exists()


def test_the_surface_is_that_of_the_pinned_release():
    surface = yaml.safe_load((ROOT / "catalog" / "surface" / f"{NEWEST}.yml").read_text())
    assert surface["vllm"] == NEWEST and len(surface["metrics"]) > 100 and "POST /v1/embeddings" in surface["routes"]
