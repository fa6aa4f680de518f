# SPDX-License-Identifier: GPL-3.0-or-later
"""What upstream offers and the catalogue lacks, from the stored copy."""

from __future__ import annotations

import yaml

from tools.vllm import upstream

OFFERED = yaml.safe_load(upstream.STORED.read_text(encoding="utf-8"))


def rows(chips=("h200", "trillium", "ironwood"), releases=("0.9.0", "0.33.0"), **more):
    offered = {**OFFERED, "hardware": {"h200": 9, "h200_8x": 1}, **more}
    return {row[0]: row[3] for row in upstream.lacks(offered, releases, chips)}


def test_the_page_is_that_of_the_stored_copy():
    assert upstream.PAGE.read_text(encoding="utf-8") == upstream.page(OFFERED)


def test_a_newer_release_is_lacking():
    assert rows()["releases of vLLM"] == ""
    assert rows(vllm=["0.40.0", "0.34.0", "0.33.0"])["releases of vLLM"] == "0.40.0, 0.34.0"
    assert rows(vllm_ascend=["0.31.0"])["releases of vllm-ascend"] == "0.31.0"


def test_a_chip_that_recipes_name_is_lacking_with_their_number_or_the_reason():
    assert rows()["chips in recipes"] == ""
    assert (
        rows(hardware={"h300": 4, "h200": 1, "trillium": 2}, chips=["h200"])["chips in recipes"]
        == "h300 (4), trillium (a TPU)"
    )


def test_only_final_releases_count():
    assert (
        upstream.FINAL.match("0.33.0")
        and upstream.FINAL.match("0.23.0.post1")
        and not upstream.FINAL.match("0.34.0rc1")
    )
