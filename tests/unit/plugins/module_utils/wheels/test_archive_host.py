# SPDX-License-Identifier: GPL-3.0-or-later
"""A wheel of a disk that anybody may have filled does not take the memory of its reader, whatever it says of itself."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zipfile

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels import archive_host

NAME = "a-1.dist-info/METADATA"
MIB = 1 << 20


def write(path, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(NAME, content)
    return str(path)


def read(path):
    """Return a file of a wheel, and the most memory that its reader had."""
    tracemalloc.start()
    try:
        with archive_host.opened_wheel(path) as archive:
            return archive_host.read_member(archive, NAME, MIB)
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 24 * MIB


def test_a_file_is_read(tmp_path):
    assert read(write(tmp_path / "x.whl", b"a" * MIB)) == b"a" * MIB


@pytest.mark.parametrize("claimed", [None, 100, MIB])
def test_a_file_that_unpacks_to_more_is_refused_and_one_that_lies_is_cut(tmp_path, claimed):
    path = write(tmp_path / "x.whl", bytes(64 * MIB))
    if claimed is not None:
        data = bytearray((tmp_path / "x.whl").read_bytes())
        # In the head of the file and in the list.
        for place in (22, data.rindex(b"PK\x01\x02") + 24):
            data[place : place + 4] = struct.pack("<L", claimed)
        (tmp_path / "x.whl").write_bytes(data)
    with pytest.raises(zipfile.BadZipFile, match=r"has more than 1048576 bytes|Bad CRC-32"):
        read(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_zipfile_unpacks_as_a_whole_is_not_unpacked(tmp_path, method):
    with pytest.raises(zipfile.BadZipFile, match=r"expected 0 or 8 \(deflate\)"):
        read(write(tmp_path / "x.whl", b"a", method))


def test_a_list_without_end_is_not_read(tmp_path):
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 32 * MIB, 0, 0)
    with (tmp_path / "x.whl").open("wb") as file:
        file.truncate(32 * MIB)
        file.seek(0, os.SEEK_END)
        file.write(end)
    with pytest.raises(zipfile.BadZipFile, match="its list of files has more than 16 MiB"):
        read(str(tmp_path / "x.whl"))


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path)])
def test_a_fifo_or_a_link_is_no_wheel(tmp_path, make):
    make(tmp_path / "x.whl")
    with pytest.raises(OSError, match=r"x\.whl"):
        read(str(tmp_path / "x.whl"))
