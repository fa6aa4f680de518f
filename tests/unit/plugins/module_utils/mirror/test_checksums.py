# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bundle import BundleError, Content
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.checksums import (
    compare_lists,
    parse_checksums,
    render_checksums,
)

ONE, TWO = "1" * 64, "2" * 64
FILES = {"wheels/a b.whl": Content(1, ONE)}
DOCUMENTS = {"bundle.json": TWO}
SIGNED = {"wheels/a b.whl": ONE, "bundle.json": TWO}


def test_what_is_written_is_what_is_read():
    found = parse_checksums(render_checksums(FILES, {"bundle.json": "{}"}, {}), "SHA256SUMS")
    assert found["wheels/a b.whl"] == ONE and len(found["bundle.json"]) == 64


def test_sha256sum_reads_it(tmp_path):
    (tmp_path / "bundle.json").write_text("{}")
    (tmp_path / "SHA256SUMS").write_text(render_checksums({}, {"bundle.json": "{}"}, {}))
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 0
    (tmp_path / "bundle.json").write_text("{ }")
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 1


@pytest.mark.parametrize("line", [ONE, f"{ONE} one-space", f"{ONE}  \n{ONE}  ", f"{ONE}  a\n{TWO}  a", "\x00"])
def test_a_wrong_line_is_named(line):
    with pytest.raises(BundleError, match=r"SHA256SUMS, line \d: expected a sha256"):
        parse_checksums(f"{ONE}  x\n{line}\n", "SHA256SUMS")


def test_lists_that_agree():
    assert compare_lists(SIGNED, FILES, DOCUMENTS) == []


@pytest.mark.parametrize(
    ("signed", "files", "documents", "problem"),
    [
        ({**SIGNED, "wheels/a b.whl": TWO}, FILES, DOCUMENTS, f"wheels/a b.whl: has sha256 {ONE}, signed was {TWO}"),
        ({"bundle.json": TWO}, FILES, DOCUMENTS, "wheels/a b.whl: is not signed"),
        (SIGNED, {}, DOCUMENTS, "wheels/a b.whl: is signed, and not in bundle.json"),
        (SIGNED, FILES, {"bundle.json": ONE}, f"bundle.json: has sha256 {ONE}, signed was {TWO}"),
        (SIGNED, FILES, {"bundle.json": ""}, "bundle.json: is missing"),
    ],
)
def test_a_difference_is_named_by_file(signed, files, documents, problem):
    assert compare_lists(signed, files, documents) == [problem]
