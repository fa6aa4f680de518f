# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from tests.fakes.wheelhouse import make_wheel, run_module


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A directory that pip is told to find wheels in, and nothing else."""
    directory = tmp_path / "source"
    directory.mkdir()
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(directory)}
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    return directory


def lock_of(tmp_path, **pins):
    lock = tmp_path / "x-cp311-x86_64.txt"
    lines = [f"{name}==1.0 --hash=sha256:{digest}\n" for name, digest in pins.items()]
    lock.write_text("".join(["# target: cp311-x86_64\n", *lines]))
    return str(lock)


def test_fetches_once_and_says_what_is_held(tmp_path, source):
    digest = make_wheel(source, "foo", "1.0")
    lock, disk = lock_of(tmp_path, foo=digest), tmp_path / "disk"
    check = run_module("mirror_wheels", root=str(disk), locks=[lock], _ansible_check_mode=True)
    assert (check["changed"], check["fetched"], check["holds"]) == (True, ["foo"], {})
    assert not disk.exists()
    result = run_module("mirror_wheels", root=str(disk), locks=[lock])
    path = "wheels/foo-1.0-py3-none-any.whl"
    size = (disk / path).stat().st_size
    assert result["holds"] == {"x-cp311-x86_64.txt": {path: {"size": size, "sha256": digest}}}
    assert (disk / path).stat().st_mode & 0o777 == 0o644
    again = run_module("mirror_wheels", root=str(disk), locks=[lock])
    assert not again["changed"] and again["holds"] == result["holds"]


def test_bytes_that_rotted_on_the_disk_are_fetched_again_when_all_is_read(tmp_path, source):
    lock, disk = lock_of(tmp_path, foo=make_wheel(source, "foo", "1.0")), tmp_path / "disk"
    run_module("mirror_wheels", root=str(disk), locks=[lock])
    path = disk / "wheels/foo-1.0-py3-none-any.whl"
    status, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + b"x")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not run_module("mirror_wheels", root=str(disk), locks=[lock])["changed"]
    assert run_module("mirror_wheels", root=str(disk), locks=[lock], verify="full")["fetched"] == ["foo"]
    assert path.read_bytes() == data


def test_a_lock_without_a_target_is_refused(tmp_path, source):
    lock = tmp_path / "lock.txt"
    lock.write_text(f"foo==1.0 --hash=sha256:{'0' * 64}\n")
    result = run_module("mirror_wheels", root=str(tmp_path), locks=[str(lock)])
    assert result["failed"] and f"{lock}: it does not name its Python" in result["msg"]
