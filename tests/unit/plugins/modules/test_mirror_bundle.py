# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json

import pytest

from tests.fakes.wheelhouse import run_module


@pytest.fixture
def disk(tmp_path):
    """A directory with two files, and the module of it."""
    files = {"weights/a/b/1/x": b"weights", "encodings/y": b"words"}
    holds = {}
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(data)
        entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        holds.setdefault(path.partition("/")[0], {})[path.rpartition("/")[2]] = {path: entry}
    return tmp_path, holds


def run(root, **arguments):
    return run_module("mirror_bundle", root=str(root), **arguments)


def test_says_what_is_missing_and_how_much_room_there_is(disk):
    root, holds = disk
    (root / "encodings/y").unlink()
    result = run(root, state="planned", holds=holds, more=100)
    assert (result["missing"], result["missing_bytes"]) == (["encodings/y"], 105)
    assert result["free_bytes"] > 0 and not result["changed"]


def test_what_a_broken_off_run_has_brought_is_not_still_to_come(disk):
    root, holds = disk
    (root / "weights/a/b/.1.partial").mkdir()
    (root / "weights/a/b/1/x").rename(root / "weights/a/b/.1.partial/x.partial")
    assert run(root, state="planned", holds=holds)["missing_bytes"] == 0
    (root / "weights/a/b/.1.partial/x.partial").write_bytes(b"")
    assert run(root, state="planned", holds=holds)["missing_bytes"] == 7


def test_too_little_room_is_an_error_before_anything_comes(disk):
    root, holds = disk
    result = run(root / "new", state="planned", holds=holds, more=10**18)
    assert result["failed"] and "1000000.0 TB" in result["msg"] and "bundle_dir" in result["msg"]


def test_written_once_then_left_alone(disk):
    root, holds = disk
    assert run(root, holds=holds, _ansible_check_mode=True)["changed"]
    assert not (root / "bundle.json").exists()
    assert run(root, holds=holds)["changed"]
    before = (root / "bundle.json").stat()
    assert not run(root, holds=holds)["changed"]
    after = (root / "bundle.json").stat()
    # It was read, and nothing else.
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (before.st_mode & 0o777) == 0o644
    assert json.loads((root / "bundle.json").read_text())["bytes"] == 12
    assert not list(root.glob(".bundle*"))


def test_not_written_while_a_file_is_missing(disk):
    root, holds = disk
    (root / "encodings/y").unlink()
    result = run(root, holds=holds)
    assert result["failed"] and "encodings/y" in result["msg"]
    assert not (root / "bundle.json").exists()


def test_a_bundle_of_an_earlier_fill_stays_in(disk):
    root, holds = disk
    run(root, holds={"weights": holds["weights"]})
    result = run(root, holds={"encodings": holds["encodings"]})
    assert result["files"] == 2
    (root / "weights/a/b/1/x").write_bytes(b"cut")
    result = run(root, holds={"encodings": holds["encodings"]})
    assert result["dropped"] == ["weights x"] and "is incomplete now" in str(result["warnings"])


def test_a_bundle_that_cannot_be_read_is_written_anew(disk):
    root, holds = disk
    (root / "bundle.json").write_text("{")
    result = run(root, holds=holds)
    assert result["changed"] and "written again" in str(result["warnings"])


def test_a_whole_disk_is_verified(disk):
    root, holds = disk
    run(root, holds=holds)
    result = run(root, state="verified")
    assert not result["changed"] and result["files"] == 2


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(b"wo"), "has 2 bytes, expected 5"),
        (lambda path: path.write_bytes(b"wordz"), "has sha256"),
        (lambda path: (path.unlink(), path.mkdir()), "is missing"),
    ],
)
def test_damage_on_the_way_is_named(disk, damage, words):
    root, holds = disk
    run(root, holds=holds)
    damage(root / "encodings/y")
    result = run(root, state="verified")
    assert result["failed"] and "1 of 2 files" in result["msg"]
    assert result["problems"][0].startswith("encodings/y (encodings y): ") and words in result["problems"][0]


def test_sizes_alone_are_quick_and_see_less(disk):
    root, holds = disk
    run(root, holds=holds)
    (root / "encodings/y").write_bytes(b"wordz")
    assert "failed" not in run(root, state="verified", read="sizes")
    (root / "encodings/y").write_bytes(b"wo")
    assert run(root, state="verified", read="sizes")["failed"]


def test_a_disk_without_a_bundle(tmp_path):
    result = run(tmp_path, state="verified")
    assert result["failed"] and "check that the disk is mounted" in result["msg"]
    assert "failed" not in run(tmp_path, state="verified", required=False)


def test_a_bundle_never_leads_out_of_its_directory(disk):
    root, holds = disk
    run(root, holds=holds)
    text = (root / "bundle.json").read_text()
    (root / "bundle.json").write_text(text.replace('"encodings/y"', '"../encodings/y"'))
    result = run(root, state="verified")
    assert result["failed"] and "found the path '../encodings/y'" in result["msg"]
