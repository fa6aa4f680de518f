# SPDX-License-Identifier: GPL-3.0-or-later
"""A carried directory on a disk: what is missing, what is damaged, and what nobody has signed."""

from __future__ import annotations

import hashlib
import os
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.mirror import bundle_host
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bundle import BundleError, Content
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bundle_host import (
    check_room,
    find_foreign_entries,
    find_missing_files,
    list_carried_files,
    partial_bytes,
    read_bundle,
    read_notes,
    sizes_of,
    verify_bundle,
    write_documents,
)

WEIGHT, WHEEL = "weights/org/tiny/rev/sub/a.bin", "wheels/x-1-py3-none-any.whl"


def content(data):
    return Content(len(data), hashlib.sha256(data).hexdigest())


@pytest.fixture
def disk(tmp_path):
    """Return a function that puts a file on the disk."""

    def put(path, data=b"abc"):
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            file.write(data)
            file.flush()
            # Some file systems give it its blocks only then.
            os.fsync(file.fileno())
        return place

    put.root = str(tmp_path)
    return put


FILES = {WEIGHT: content(b"abc"), WHEEL: content(b"abc")}
HOLDS = {"weights": {"org/tiny/rev": {WEIGHT: FILES[WEIGHT]}}, "wheels": {"lock.txt": {WHEEL: FILES[WHEEL]}}}


def test_a_file_of_another_size_or_kind_is_missing(disk):
    assert find_missing_files(disk.root, FILES) == [WEIGHT, WHEEL]
    disk(WEIGHT)
    disk(WHEEL, b"ab")
    assert find_missing_files(disk.root, FILES) == [WHEEL]
    os.unlink(f"{disk.root}/{WHEEL}")
    os.mkdir(f"{disk.root}/{WHEEL}")
    assert sizes_of(disk.root, FILES) == {WEIGHT: 3, WHEEL: None}
    # Below a file nothing can be.
    assert sizes_of(disk.root, [f"{WEIGHT}/more"]) == {f"{WEIGHT}/more": None}


def test_what_an_interrupted_fill_has_downloaded_counts_as_there(disk):
    size = {WEIGHT: Content(10**9, "0" * 64)}
    assert partial_bytes(disk.root, [WEIGHT], size) == 0
    for name in ("a.bin", "a.bin.partial"):
        place = disk(f"weights/org/tiny/.rev.partial/sub/{name}", b"x" * 8192)
        assert partial_bytes(disk.root, [WEIGHT], size) >= 8192
        place.unlink()
    disk("weights/org/tiny/.rev.partial/sub/a.bin", b"x" * 8192)
    assert partial_bytes(disk.root, [WEIGHT], FILES) == 3, "never more than the file"


def test_a_disk_that_is_too_small_is_an_error_before_the_first_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle_host.os, "statvfs", lambda _path: SimpleNamespace(f_bavail=2, f_frsize=512))
    assert check_room(str(tmp_path / "not/yet"), 1024) == (1024, 1024)
    with pytest.raises(BundleError, match=f"1025 bytes .* are missing, 1024 bytes .* are free at {tmp_path}; free"):
        check_room(str(tmp_path / "not/yet"), 1025)


def test_a_directory_without_a_list_is_new_and_a_damaged_list_is_an_error(disk):
    assert read_bundle(disk.root) is None
    disk("bundle.json", b'{"version": 1, "holds": {}}')
    assert read_bundle(disk.root) == {}
    for damaged in (b"\xff", b'{"version"', b'{"version": 2}'):
        disk("bundle.json", damaged)
        with pytest.raises(BundleError, match=r"bundle\.json: "):
            read_bundle(disk.root)


def test_what_people_put_there_is_read_in_full(disk):
    disk("controller/inventory/hosts.yml")
    disk("caches/a.tar", b"")
    disk(WEIGHT)
    found = list_carried_files(disk.root)
    assert found == {"controller/inventory/hosts.yml": content(b"abc"), "caches/a.tar": content(b"")}
    os.symlink("/etc", f"{disk.root}/controller/etc")
    with pytest.raises(BundleError, match="controller/etc: expected a file"):
        list_carried_files(disk.root)


def test_each_fault_of_a_file_is_a_line_with_its_item(disk):
    disk(WEIGHT, b"abd")
    assert verify_bundle(disk.root, HOLDS, full=False) == [f"{WHEEL} (wheels lock.txt): is missing"]
    disk(WHEEL, b"ab")
    found = verify_bundle(disk.root, HOLDS, full=True)
    assert found[0].startswith(f"{WEIGHT} (weights org/tiny/rev): has sha256 ")
    assert found[1:] == [f"{WHEEL} (wheels lock.txt): has 2 bytes, expected 3"]
    disk(WEIGHT)
    disk(WHEEL)
    assert verify_bundle(disk.root, HOLDS, full=True) == []


def test_a_disk_that_cannot_be_read_is_a_fault_and_no_crash(disk, monkeypatch):
    def broken(_path):
        raise OSError(5, "Input/output error")

    disk(WEIGHT)
    disk(WHEEL)
    monkeypatch.setattr(bundle_host, "sha256_of", broken)
    found = verify_bundle(disk.root, HOLDS, full=True)
    assert len(found) == 2 and all(line.endswith("cannot be read: Input/output error") for line in found)


def test_everything_that_no_signature_covers_is_named(disk):
    signed = {WEIGHT: "0" * 64, "bundle.json": "0" * 64}
    for path in (WEIGHT, "bundle.json", "SHA256SUMS", "SHA256SUMS.asc"):
        disk(path)
    assert find_foreign_entries(disk.root, signed) == []
    disk("weights/org/tiny/rev/evil\x1b.py")
    os.symlink("/etc/passwd", f"{disk.root}/weights/org/tiny/rev/link")
    os.symlink("/etc", f"{disk.root}/images")
    os.mkfifo(f"{disk.root}/fifo")
    found = find_foreign_entries(disk.root, signed)
    assert [line.partition(": ")[2] for line in found] == [
        "is not a file; remove it",
        "is a link, and only files can be signed; remove it",
        "is not signed",
        "is a link, and only files can be signed; remove it",
    ]
    assert all(line.isprintable() for line in found)


def test_no_depth_of_directories_ends_the_walk(disk):
    disk("/".join(["a", *"d" * 200, "x"]))
    (found,) = find_foreign_entries(disk.root, {})
    assert found.endswith("lies deeper than any content")


def test_notes_of_a_fill_are_signed_too(disk):
    disk("weights/org/tiny/rev/sub/.verified.json", b"of a part")
    disk("wheels/.lock.txt.fetched.json", b"of wheels")
    disk("wheels/.other")
    assert set(read_notes(disk.root, FILES)) == {
        "weights/org/tiny/rev/sub/.verified.json", "wheels/.lock.txt.fetched.json",
    }  # fmt: skip


def test_a_signature_of_other_checksums_is_removed(disk, tmp_path, monkeypatch):
    """Otherwise the next check would call a good directory forged."""
    monkeypatch.setattr(os, "sync", lambda: None)
    signature = disk("SHA256SUMS.asc", b"signature")
    disk("SHA256SUMS", b"one\n")
    assert write_documents(disk.root, {"bundle.json": "{}", "SHA256SUMS": "one\n"}) is False
    assert signature.exists() and (tmp_path / "bundle.json").read_text() == "{}"
    assert write_documents(disk.root, {"SHA256SUMS": "two\n"}) is True
    assert not signature.exists() and (tmp_path / "SHA256SUMS").read_text() == "two\n"
    assert write_documents(disk.root, {"SHA256SUMS": "three\n"}) is False


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_a_bundle_json_that_is_a_fifo_or_leads_to_a_device_holds_nobody(tmp_path, make):
    make(tmp_path / "bundle.json")
    with pytest.raises(OSError, match="not a regular file"):
        read_bundle(str(tmp_path))
