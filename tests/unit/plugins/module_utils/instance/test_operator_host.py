# SPDX-License-Identifier: GPL-3.0-or-later
"""The token with which a program on the host calls endpoints for operators."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import locked
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_files_host import ForeignDirectory
from ansible_collections.baremetal.inference.plugins.module_utils.instance import operator_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.operator_host import (
    OperatorError,
    operator_token,
    shared_token,
    write_new,
)


def test_the_token_is_there_for_the_engine_as_long_as_it_is_used(tmp_path):
    file, group = tmp_path / "operator", 1 if os.geteuid() == 0 else os.getgid()
    with operator_token(str(tmp_path), group) as token:
        seen = file.stat()
        assert file.read_text() == f"{token}\n" and len(token) == 64
        assert (stat.S_IMODE(seen.st_mode), seen.st_gid, seen.st_uid) == (0o640, group, os.geteuid())
    assert list(tmp_path.iterdir()) == []
    with operator_token(str(tmp_path), group) as other:
        assert other != token


def test_a_failure_removes_it_too(tmp_path):
    with pytest.raises(ZeroDivisionError), operator_token(str(tmp_path), os.getgid()):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_program_has_left_is_replaced_and_a_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / "operator").symlink_to(target)
    with operator_token(str(tmp_path), os.getgid()):
        assert not (tmp_path / "operator").is_symlink()
    assert target.read_text() == "untouched"


def lock_of(directory):
    return str(directory.parent / f".{directory.name}.lock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_the_user_of_the_instance_cannot_hold_the_lock(tmp_path):
    """It owns the directory of the instance, and locks it for ever: the program of root gets its token at once."""
    (tmp_path / "chat").mkdir()
    os.chown(tmp_path / "chat", 65534, 65534)
    for directory in (tmp_path, *tmp_path.parents):
        directory.chmod(directory.stat().st_mode | 0o055)
    code = (
        "import fcntl,os,sys,time; fcntl.flock(os.open(sys.argv[1], 0), 2); print('held', flush=True)\n"
        "for path in sys.argv[2:]:\n"
        "    try: fcntl.flock(os.open(path, 0), 2); print('held', path)\n"
        "    except OSError as exc: print(exc.strerror, flush=True)\n"
        "time.sleep(60)"
    )
    with operator_token(str(tmp_path / "chat"), os.getgid()):
        pass
    words = [sys.executable, "-I", "-c", code, str(tmp_path / "chat"), str(tmp_path / ".chat.lock")]
    with subprocess.Popen(words, user=65534, group=65534, stdout=subprocess.PIPE, text=True) as stranger:
        try:
            assert [stranger.stdout.readline().strip() for _line in range(2)] == ["held", "Permission denied"]
            with operator_token(str(tmp_path / "chat"), os.getgid(), wait=0):
                pass
            assert shared_token(str(tmp_path / "chat"))
        finally:
            stranger.kill()


def test_two_programs_do_not_take_the_token_of_each_other(tmp_path):
    message = "another program has been calling this instance"
    with locked(lock_of(tmp_path)), pytest.raises(OperatorError, match=message), operator_token(
        str(tmp_path), 0, wait=0.1
    ):
        pass
    assert not (tmp_path / "operator").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OperatorError, match="/missing/new cannot be written: No such file"):
        write_new(ForeignDirectory(str(tmp_path / "missing")), "new", "", 0o644)
    (tmp_path / "new").mkdir()
    with pytest.raises(OperatorError, match="Is a directory"):
        write_new(ForeignDirectory(str(tmp_path)), "new", "", 0o644)


def test_a_shared_token_stays_and_another_programs_token_is_used(tmp_path):
    token = shared_token(str(tmp_path))
    assert shared_token(str(tmp_path)) == token
    assert stat.S_IMODE((tmp_path / "operator").stat().st_mode) == 0o640
    with operator_token(str(tmp_path), os.getgid()) as other:
        assert shared_token(str(tmp_path)) == other != token


@pytest.mark.parametrize(
    "odd", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo, lambda path: path.write_text("x")]
)
def test_what_is_no_token_is_replaced(tmp_path, odd):
    odd(tmp_path / "operator")
    assert len(shared_token(str(tmp_path))) == 64


def test_while_another_program_has_the_lock_no_shared_token_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(operator_host, "_PAUSE", 0.05)
    with locked(lock_of(tmp_path)):
        with pytest.raises(OSError, match="has written no token"):
            shared_token(str(tmp_path))
        assert not (tmp_path / "operator").exists()
        threading.Timer(0.07, lambda: (tmp_path / "operator").write_text("c" * 64)).start()
        assert shared_token(str(tmp_path)) == "c" * 64


def test_a_directory_in_the_place_of_the_token_leaves_no_file_open(tmp_path):
    (tmp_path / "operator").mkdir()
    with pytest.raises(OSError, match="directory"):
        shared_token(str(tmp_path))
    files = [os.path.realpath(f"/proc/self/fd/{file}") for file in os.listdir("/proc/self/fd")]
    assert [file for file in files if tmp_path.name in file] == []


def test_nothing_is_made_for_an_instance_that_is_down(tmp_path):
    """A file in the place of its directory would keep its unit from starting."""
    gone = str(tmp_path / "chat")
    with pytest.raises(FileNotFoundError):
        shared_token(gone)
    with pytest.raises(OperatorError, match="chat cannot be locked: No such file"), operator_token(gone, 0):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("age", "is_kept"), [(0, True), (1700, True), (1900, False), (4000, False), (-5000, True)])
def test_a_shared_token_is_replaced_before_the_engine_forgets_it(tmp_path, age, is_kept):
    token = shared_token(str(tmp_path))
    os.utime(tmp_path / "operator", (time.time() - age,) * 2)
    assert (shared_token(str(tmp_path)) == token) == is_kept


def test_the_token_of_a_program_that_calls_for_long_is_used(tmp_path):
    with operator_token(str(tmp_path), os.getgid()) as token:
        os.utime(tmp_path / "operator", (time.time() - 2000,) * 2)
        assert shared_token(str(tmp_path)) == token
