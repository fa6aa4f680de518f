# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import mmap
import os
import resource

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.partial_file import (
    Download,
    DownloadRequest,
    PartialFile,
    TargetError,
)

CONTENT = os.urandom(5000)


@pytest.fixture
def wanted(tmp_path):
    return DownloadRequest(
        "http://mirror/a.bin", str(tmp_path / "a.bin"), len(CONTENT), hashlib.sha256(CONTENT).hexdigest()
    )


def test_write_that_the_file_system_takes_a_part_of_keeps_that_part(wanted, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Download(wanted) as one:
        # What crosses the limit is cut there, as by a disk that fills up; Python ignores the signal.
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
        try:
            with pytest.raises(TargetError, match=r"a.bin.partial: cannot be written: File too large"):
                one.append(memoryview(CONTENT))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert one.length == 3000
        one.append(memoryview(CONTENT)[3000:])
        one.end()
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_what_lay_there_is_forgotten_once_it_is_wrong(wanted, tmp_path):
    (tmp_path / "a.bin.partial").write_bytes(b"x" * 4000)
    with Download(wanted) as one:
        one.append(memoryview(CONTENT)[4000:])
        one.end()
        assert one.discard_stale()
        assert one.length == 0
        assert (tmp_path / "a.bin.partial").read_bytes() == b""
        one.append(memoryview(CONTENT))
        one.end()
        assert not one.discard_stale()
    assert os.listdir(tmp_path) == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("meddle", ["longer", "another"])
def test_partial_file_that_another_process_changes_is_not_published(wanted, tmp_path, meddle):
    partial = tmp_path / "a.bin.partial"
    with Download(wanted) as one:
        one.append(memoryview(CONTENT))
        if meddle == "longer":
            with open(partial, "ab") as file:
                file.write(b"x")
        else:
            partial.unlink()
            partial.write_bytes(b"another")
        with pytest.raises(TargetError, match=r"a.bin.partial: another process has changed it while it was downloaded"):
            one.end()
    assert not (tmp_path / "a.bin").exists()


def overwrite(path):
    with open(path, "r+b") as file:
        file.write(b"x" * 100)


def overwrite_and_restore_times(path):
    before = path.stat()
    overwrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def overwrite_in_memory(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[10] ^= 1


def overwrite_by_another_name(path):
    os.link(path, path.with_name("other"))
    overwrite(path.with_name("other"))
    path.with_name("other").unlink()


@pytest.mark.parametrize("when", ["halfway", "at the end"])
@pytest.mark.parametrize(
    "meddle", [overwrite, overwrite_and_restore_times, overwrite_in_memory, overwrite_by_another_name]
)
def test_a_writer_into_the_partial_file_is_not_published(wanted, tmp_path, meddle, when):
    with Download(wanted) as one:
        one.append(memoryview(CONTENT)[:3000])
        if when == "halfway":
            meddle(tmp_path / "a.bin.partial")
        one.append(memoryview(CONTENT)[3000:])
        if when != "halfway":
            meddle(tmp_path / "a.bin.partial")
        with pytest.raises(TargetError, match=r"a.bin.partial: another process has changed it while it was downloaded"):
            one.end()
    assert not (tmp_path / "a.bin").exists()


def test_a_partial_file_that_was_emptied_by_its_name_is_not_published(tmp_path):
    content = os.urandom(1_000_000)
    file = DownloadRequest("http://m/b", str(tmp_path / "b"), len(content), hashlib.sha256(content).hexdigest())
    with Download(file) as one:
        one.append(memoryview(content)[:900_000])
        os.truncate(tmp_path / "b.partial", 0)
        one.append(memoryview(content)[900_000:])
        with pytest.raises(TargetError, match=r"another process has changed it"):
            one.end()


def test_a_writer_that_had_the_file_of_an_earlier_run_open(wanted, tmp_path):
    partial = tmp_path / "a.bin.partial"
    partial.write_bytes(CONTENT[:4000])
    with open(partial, "r+b", buffering=0) as other, Download(wanted) as one:
        one.append(memoryview(CONTENT)[4000:])
        other.write(b"x" * 100)
        with pytest.raises(TargetError, match=r"another process has changed it"):
            one.end()


def test_a_reader_does_no_harm(wanted, tmp_path):
    with Download(wanted) as one:
        one.append(memoryview(CONTENT))
        (tmp_path / "a.bin.partial").read_bytes()
        one.end()
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_the_file_is_read_again_only_where_others_had_it_open(wanted, monkeypatch):
    monkeypatch.setattr(PartialFile, "_hash_again", lambda _file: pytest.fail("read again"))
    with Download(wanted) as one:
        one.append(memoryview(CONTENT))
        one.end()


def test_stat_of_the_published_file_is_that_of_its_descriptor(wanted, tmp_path):
    told = []
    with Download(wanted, lambda file, found: told.append((file, found))) as one:
        one.append(memoryview(CONTENT))
        one.end()
    ((file, found),) = told
    there = (tmp_path / "a.bin").stat()
    assert file == wanted
    assert (found.st_size, found.st_mtime_ns, found.st_ino) == (there.st_size, there.st_mtime_ns, there.st_ino)


def test_a_hard_link_is_not_written_to(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"somebody's file")
    os.link(other, tmp_path / "a.bin.partial")
    with pytest.raises(TargetError, match=r"a\.bin\.partial"):
        PartialFile(str(tmp_path / "a.bin.partial"))
    assert other.read_bytes() == b"somebody's file"
