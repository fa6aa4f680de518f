# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.versions import sort_key
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import PLACE, read_document

from tests.fakes.evidence import document
from tools.evidence_table import (
    BEGIN,
    END,
    ROOT,
    estimates_table,
    long_table,
    machines_table,
    pages,
    replaced,
    short_table,
)


def evidence(name="", **change):
    made = document(**change)
    return read_document(made, PLACE.format(**made) + (f"-{name}" if name else ""), "x.yml")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_pages_are_current(page):
    """Made by: PYTHONPATH=.collections .venv/bin/python tools/evidence_table.py"""
    assert page.read_text(encoding="utf-8") == pages()[page]


def test_the_short_table_shows_the_newest_measurement_of_each_release():
    entries = [
        evidence(),
        evidence("older", date="2026-11-01"),
        evidence(release="0.33.0", status="reported"),
        evidence("started", release="0.33.0", results=[]),
        evidence("guess", release="0.34.0", status="estimated"),
        evidence(accelerator="b200", status="estimated"),
    ]
    rows = short_table(entries).splitlines()[2:]
    assert [row.split(" | ")[2] for row in rows] == ["0.25.1 (old), balanced", "0.33.0, balanced"]
    assert rows[0].endswith("| 8,950 [8,891-9,029] (64) | 47.1 s |")


def test_what_is_older_than_two_releases_is_marked():
    releases = sorted((path.stem for path in (ROOT / "catalog/releases").glob("*.yml")), key=sort_key)
    marked = [name for name in releases if "(old)" in long_table([evidence(release=name)])]
    assert marked == releases[:-3]


def test_presets_have_rows_of_their_own_for_the_newest_release_only():
    entries = [evidence(p, preset=p, release=r) for p in ("balanced", "latency") for r in ("0.25.1", "0.33.0")]
    rows = short_table(entries).splitlines()[2:]
    assert [row.split(" | ")[2] for row in rows] == ["0.25.1 (old), latency", "0.33.0, balanced", "0.33.0, latency"]


def test_more_loads_come_before_a_newer_day():
    result = document()["results"][0]
    many = [result, {**result, "concurrency": 512}]
    rows = short_table([evidence(date="2026-11-29"), evidence("many", date="2026-11-01", results=many)]).splitlines()
    assert len(rows) == 3 and "(512)" in rows[2]


def test_the_long_table_has_a_row_for_each_file_that_leads_to_it():
    rows = long_table([evidence("b", results=[]), evidence(accelerator="cpu", weights="0" * 40)]).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| 1 x cpu", "| 1 x NVIDIA H200"]
    assert (
        "[0.25.1-2026-11-23-b](../../catalog/evidence/openai/gpt-oss-20b/h200x1/0.25.1-2026-11-23-b.yml) (old) |"
        in rows[1]
    )
    assert "random" not in rows[0]


def test_estimates_are_in_a_table_of_their_own_with_their_error():
    measured = {key: value for key, value in document().items() if key != "preset"}
    found = read_document(measured, PLACE.format(**measured), "x.yml")
    result = {
        **measured["results"][0],
        "output_tokens_per_second": dict.fromkeys(("median", "lowest", "highest"), 4475),
    }
    guess = evidence("estimated", status="estimated", source="AIConfigurator 0.12.0", results=[result])
    far = evidence("estimated", status="estimated", accelerator="b200")
    rows = estimates_table([found, guess, far]).splitlines()[2:]
    place = "../../catalog/evidence/openai/gpt-oss-20b/h200x1/0.25.1-2026-11-23-estimated.yml"
    assert rows[1] == (
        f"| [1 x NVIDIA H200]({place}) | openai/gpt-oss-20b | 4,475 (64) | -50 % at 64 "
        "| AIConfigurator 0.12.0, vLLM 0.25.1 (old) |"
    )
    assert " |  | baremetal.inference" in rows[0]
    assert len(long_table([found, guess, far]).splitlines()) == 3


def test_a_page_without_the_marks_is_refused():
    assert replaced(f"a\n{BEGIN}old\n{END}\nb", "new\n") == f"a\n{BEGIN}new\n{END}\nb"
    with pytest.raises(ValueError, match="once each"):
        replaced("a", "new")


def test_a_machine_shows_its_slowest_chip(tmp_path, monkeypatch):
    figures = [
        {"figure": "copy_tb_per_s", "unit": "TB/s", "found": found, "fraction": found / 4.3}
        for found in (4.2, 3.9, 4.1)
    ]
    result = {
        "date": "2026-11-24T08:24:42Z",
        "accepted": False,
        "accelerator": {"model": "h200", "count": 3},
        "figures": figures,
        "driver": {"driver": {"version": "580.1"}},
    }
    place = tmp_path / "catalog/evidence/machines/h200x3"
    place.mkdir(parents=True)
    (place / "2026-11-24.json").write_text(json.dumps(result))
    monkeypatch.setattr("tools.evidence_table.ROOT", tmp_path)
    row = machines_table().splitlines()[2]
    assert row == (
        "| 3 x NVIDIA H200 | [2026-11-24](../../catalog/evidence/machines/h200x3/2026-11-24.json) | no |"
        " 3.9 TB/s (0.91) | 580.1 |"
    )
