# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import processes_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.processes_host import (
    become,
    boot_id,
    started_at,
    texts_of_processes,
    words_of,
)


def test_the_id_of_this_boot():
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_boot_without_an_id(tmp_path):
    assert boot_id(str(tmp_path)) == ""


def test_the_start_of_a_process_whose_name_holds_parentheses(tmp_path):
    (tmp_path / "7").mkdir()
    fields = " ".join(str(number) for number in range(3, 53))
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) {fields}\n")
    assert started_at(7, str(tmp_path)) == 22
    assert started_at(8, str(tmp_path)) is None
    assert started_at(os.getpid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("groups", [(), (grp.getgrnam("tty").gr_gid,)])
def test_a_new_process_becomes_another_user_with_the_groups_that_are_named(groups):
    account = pwd.getpwnam("nobody")
    done = subprocess.run(
        ["sh", "-c", "id -u; id -G"], preexec_fn=become(account, groups), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(number) for number in (account.pw_uid, account.pw_gid, *groups)]
    done = subprocess.run(["id", "-G"], preexec_fn=become(account, None), capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(gid) for gid in os.getgrouplist(account.pw_name, account.pw_gid)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("groups", [(), None])
def test_a_process_of_another_user_gains_no_rights_by_setuid_programs(groups):
    command = ["grep", "NoNewPrivs", "/proc/self/status"]
    become_nobody = become(pwd.getpwnam("nobody"), groups)
    done = subprocess.run(command, preexec_fn=become_nobody, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["NoNewPrivs:", "1"]


# What any user may run: its command line is a mapping of 8 TiB that no page was ever read of (prctl, PR_SET_MM_MAP).
LONG_WORDS = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
size = 8 << 40
at = libc.mmap(None, size, 1, 0x4022, -1, 0)
stat = [int(field) for field in open("/proc/self/stat").read().rpartition(")")[2].split()[1:]]
own = [stat[number - 4] for number in (26, 27, 45, 46, 47)]
words = struct.pack("=12QIi", *own, libc.sbrk(0), stat[24], at, at + size, at + size, at + size, 0, 0, -1)
kept = ctypes.create_string_buffer(words)
print(libc.prctl(35, 14, ctypes.addressof(kept), len(words), 0), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def endless():
    """A process with a command line of 8 TiB."""
    with subprocess.Popen(
        [sys.executable, "-c", LONG_WORDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        if running.stdout.readline() != "0\n":
            running.kill()
            pytest.skip("the kernel has no PR_SET_MM_MAP, or not so much address space")
        yield running.pid
        running.kill()


def test_a_process_with_a_command_line_without_end_may_use_anything(endless):
    begun = time.monotonic()
    found = dict(texts_of_processes())
    assert found[endless] is None
    assert b"python" in found[os.getpid()][0]
    assert time.monotonic() - begun < 30
    assert words_of(endless) == ""


@pytest.mark.parametrize("limit", ["MOST_WORDS", "MOST_MAPS", "MOST_PATHS"])
def test_too_many_words_files_or_paths_are_not_kept(monkeypatch, limit):
    assert dict(texts_of_processes())[os.getpid()]
    monkeypatch.setattr(processes_host, limit, 1)
    assert dict(texts_of_processes())[os.getpid()] is None


def test_a_process_that_cannot_be_read_in_time_may_use_anything(tmp_path, monkeypatch):
    for pid in (7, 8):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
    monkeypatch.setattr(processes_host, "_SECONDS_OF_ONE", 0.2)
    monkeypatch.setattr(processes_host, "_texts_of", lambda path: time.sleep(5) if path.endswith("7") else [b"x"])
    assert dict(texts_of_processes(str(tmp_path))) == {7: None, 8: [b"x"]}
    monkeypatch.setattr(processes_host, "_SECONDS_OF_ALL", 0.1)
    assert dict(texts_of_processes(str(tmp_path))) == {7: None, 8: None}


def test_the_words_of_a_process_are_for_a_message():
    assert "python" in words_of(os.getpid())
    assert words_of("0") == ""
