# SPDX-License-Identifier: GPL-3.0-or-later
"""What upstream offers and the catalogue lacks, from the stored copy."""

from __future__ import annotations

import pytest
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
    assert rows(vllm_ascend=["0.30.0"])["releases of vllm-ascend"] == ""
    # Its front page names a final that the index does not have.
    assert "the source of 0.30.0" in rows(vllm_ascend=["0.23.0"])["releases of vllm-ascend"]


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


STACKS = {
    "cuda": {"minimum_driver": "580.65.06", "cuda": "13.0.3"},
    "rocm": {"rocm": "10.0.0", "amdgpu": "31.50"},
    "cann": {"cann": "9.2.1", "hdk": "26.0.RC1"},
}


def vendor(what, *versions, stacks=None):
    entries = [{**entry, "upstream": list(versions)} for entry in OFFERED["vendors"] if entry["what"] == what]
    ((_what, upstream_has, have, lack, _source),) = upstream.vendor_rows(entries, stacks or STACKS)
    return upstream_has, have, lack


def test_a_driver_that_no_branch_has_or_that_is_too_old_is_lacking():
    what = "driver branches of NVIDIA"
    assert vendor(what, "595.91.07", "580.178.04") == ("595.91.07, 580.178.04", "580.65.06 or newer", "")
    assert vendor(what, "570.1")[2] == "no branch has it"
    old = {"cuda": {"minimum_driver": "570.26", "cuda": "13.0"}}
    assert vendor(what, "595.91.07", stacks=old)[2] == "CUDA 13.0 needs 580.65.06"


def test_a_newer_toolkit_is_no_lack_because_the_image_brings_its_own():
    assert vendor("CUDA toolkit", "13.5") == ("13.5", "13.0.3, in vLLM's image", "")
    assert vendor("CANN", "9.2.0")[1:] == ("9.2.1", "")


def test_a_driver_of_amd_that_the_role_does_not_know_is_lacking():
    assert vendor("AMD GPU driver", "31.50", "31.40.1")[2] == ""
    assert vendor("ROCm", "10.3.0", "10.0.0") == ("10.3.0, 10.0.0", "10.0.0", "10.3.0")


def test_a_driver_of_huawei_is_the_host_s():
    assert vendor("driver for Ascend (HDK)", "26.3.RC1") == ("26.3.RC1", "26.0.RC1", "26.3.RC1")
    assert vendor("driver for Ascend (HDK)", "26.0.RC1")[2] == ""


def test_what_no_source_allows_to_add_is_lacking_with_the_reason():
    assert vendor("ROCm", "10.2.0")[2].startswith("10.2.0: no public source names its driver")
    assert vendor("driver for Ascend (HDK)", "26.2.RC1")[2].startswith("26.2.RC1: no public source names the firmware")


@pytest.mark.parametrize(
    ("what", "text", "versions"),
    [
        (
            "driver branches of NVIDIA",
            "redistrib_575.57.08.json redistrib_580.65.06.json redistrib_580.178.04.json redistrib_620.70.06.json",
            ["620.70.06", "580.178.04"],
        ),
        ("CUDA toolkit", "<title>CUDA Toolkit 13.5 - Release Notes</title> CUDA Toolkit 13.4 GA", ["13.5", "13.4"]),
        (
            "ROCm",
            "See the <a>ROCm compatibility matrix (ROCm 10.2.0)</a>. See the ROCm compatibility matrix (ROCm 7.14.1)",
            ["10.2.0", "7.14.1"],
        ),
        (
            "AMD GPU driver",
            '<a href="31.40.1/">31.40.1/</a> <a href="31.50/">31.50/</a> <a href="latest/">',
            ["31.50", "31.40.1"],
        ),
        (
            "CANN",
            "| v0.30.0rc1  | v0.30.0  | >= 3.10, < 3.13 | 9.2.0       | 2.10.0 / 2.10.0.post4           | 3.2.2 |\n"
            "| v0.9.2rc1   | v0.9.2   | >= 3.9, < 3.12  | 8.1.RC1     | 2.5.1 / 2.5.1.post1.dev20250619 | N/A   |\n",
            ["9.2.0"],
        ),
        (
            "driver for Ascend (HDK)",
            "| 9.2.0 | 26.2.RC1 |\n\n| 9.1.X | N | Y |\n9.1.0 26.0.RC1\n",
            ["26.2.RC1", "26.0.RC1"],
        ),
    ],
)
def test_the_versions_on_a_vendor_s_page(what, text, versions):
    (entry,) = [entry for entry in OFFERED["vendors"] if entry["what"] == what]
    assert upstream.versions_in(text, entry["pattern"], entry.get("oldest", "")) == versions


def test_a_page_that_cannot_be_read_keeps_what_is_stored(capsys):
    (entry,) = [entry for entry in OFFERED["vendors"] if entry["what"] == "ROCm"]
    entry = {**entry, "source": "http://127.0.0.1:9/"}
    assert upstream._read_vendor(entry, "2030-01-01") == entry
    assert f"kept what was read on {entry['read']}" in capsys.readouterr().err


def test_each_stack_is_that_of_the_newest_release_that_has_it():
    stacks = upstream.newest_stacks()
    assert {entry["stack"] for entry in OFFERED["vendors"]} <= set(stacks)
    assert all(stacks[entry["stack"]].get(entry["key"]) for entry in OFFERED["vendors"])
