# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import hashlib
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights import direct_read_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.direct_read_host import CHUNK, direct_sha256


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 7])
def test_the_hash_is_that_of_all_bytes(tmp_path, size):
    (tmp_path / "file").write_bytes(os.urandom(size))
    counts = []
    found, status = direct_sha256(str(tmp_path / "file"), size, counts.append)
    assert found == hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()
    assert (sum(counts), status.st_size) == (size, size)


def test_a_file_system_without_direct_reads_gives_the_same(run, root, monkeypatch):
    real, refused = os.open, []

    def through_the_cache(path, flags, *rest, **more):
        if flags & os.O_DIRECT:
            refused.append(path)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(direct_read_host.os, "open", through_the_cache)
    status, report = run()
    assert (status, report["damaged"], len(refused)) == (0, {}, 6)


def test_a_file_of_another_size_is_not_read(tmp_path):
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**43)
    counts = []
    found, _status = direct_sha256(str(tmp_path / "sparse"), 5, counts.append)
    assert (found, counts) == ("a file of 8796093022208 bytes instead of 5", [])


def test_a_device_is_not_read():
    with pytest.raises(OSError, match="not a regular file"):
        direct_sha256("/dev/zero", 0, lambda _count: None)
