# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that is killed anywhere in a publication leaves the old file or the new one."""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import resource
import stat
import subprocess
import sys
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import files_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import (
    LockedError,
    bytes_of,
    describe_holder,
    existing_above,
    listed,
    locked,
    make_directories,
    publish,
    publish_link,
    sha256_of,
    sync_tree,
    text_of,
)

from tests.fakes.default_acl import has_default_acl, modes_below, set_default_acl
from tests.fakes.kills import killed_at

OLD, NEW = b"old" * 1000, b"new" * 5000


@pytest.mark.slow
@pytest.mark.parametrize("before", [OLD, None], ids=["replaced", "first"])
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path, before):
    path, seen = tmp_path / "unit.conf", []
    for call in range(1, 200):
        for entry in tmp_path.iterdir():
            entry.unlink()
        if before is not None:
            path.write_bytes(before)
        was_killed = killed_at(call, lambda: publish(str(path), NEW, 0o640))
        found = path.read_bytes() if path.exists() else None
        assert found in (before, NEW)
        if found == NEW:
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
        seen.append(found)
        if not was_killed:
            break
    assert not was_killed
    assert seen[0] == before
    assert seen[-1] == NEW
    # It was killed before and after the rename, many times.
    assert seen.count(before) > 5
    assert seen.count(NEW) > 2


def test_the_content_is_synced_before_the_rename_and_the_directory_after_it(tmp_path, monkeypatch):
    steps = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def noted(*arguments, name=name, real=real):
            is_directory = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
            steps.append("fsync directory" if is_directory else name)
            return real(*arguments)

        monkeypatch.setattr(files_host.os, name, noted)
    publish(str(tmp_path / "a"), b"x")
    assert steps == ["fsync", "replace", "fsync directory"]


def test_the_mode_is_exact_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        publish(str(tmp_path / "open"), "text", 0o644)
        os.umask(0)
        publish(str(tmp_path / "secret"), "text", 0o600)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("open", "secret")]
    assert modes == [0o644, 0o600]


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path):
    (tmp_path / "target").write_text("untouched")
    (tmp_path / "a").symlink_to("target")
    publish(str(tmp_path / "a"), "mine")
    assert (tmp_path / "target").read_text() == "untouched"
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("fault", ["fsync", "replace", "fchmod"])
def test_a_failed_publication_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, fault):
    path = tmp_path / "a"
    path.write_text("old")

    def fail(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files_host.os, fault, fail)
    with pytest.raises(OSError, match="No space left"):
        publish(str(path), "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    assert path.read_text() == "old"


def test_an_unknown_group_is_a_lookup_error(tmp_path):
    with pytest.raises(LookupError):
        publish(str(tmp_path / "a"), "x", 0o640, group="no-such-group")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_long_ago_is_removed_and_a_neighbours_file_is_not(tmp_path):
    for name, age in ((".a.00.partial", 7200), (".a.01.partial", 10), (".b.00.partial", 7200)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))
    publish(str(tmp_path / "a"), "x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".a.01.partial", ".b.00.partial", "a"]


def test_a_link_is_published_over_another(tmp_path):
    (tmp_path / "current").symlink_to("one")
    publish_link("two", str(tmp_path / "current"))
    assert os.readlink(tmp_path / "current") == "two"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("path, above", [
    ("", ""), ("models", ""), ("a/b/c", ""), ("./x/../y", ""), ("there/x/y", "there"), ("there", "there"),
    ("gone/x", ""),
])  # fmt: skip
def test_what_exists_above_a_path(path, above, tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "gone").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    assert existing_above(path) == os.path.join(tmp_path, above).rstrip("/")
    assert existing_above(f"{tmp_path}/{path}") == os.path.join(tmp_path, above).rstrip("/")
    assert existing_above("/") == "/"


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_a_new_directory_is_no_wider_than_its_mode_whatever_is_above(tmp_path, umask):
    (tmp_path / "there").mkdir(mode=0o750)
    set_default_acl(tmp_path)
    set_default_acl(tmp_path / "there")
    before = os.umask(umask)
    try:
        make_directories(str(tmp_path / "there/a/b/"), 0o700)
        make_directories(str(tmp_path / "there/a"), 0o700)
        make_directories(str(tmp_path / "new"))
    finally:
        os.umask(before)
    assert modes_below(tmp_path) == {"new": 0o755, "there": 0o750, "there/a": 0o755, "there/a/b": 0o700}
    assert [has_default_acl(tmp_path / name) for name in ("there", "there/a", "there/a/b", "new")] == [
        True,
        *[False] * 3,
    ]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directories(str(tmp_path / "file"))


def test_sha256_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(str(tmp_path / "a")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class TestLocked:
    def test_the_holder_is_named_when_the_wait_is_over(self, tmp_path):
        path, asked = str(tmp_path / "lock"), []
        with locked(path):
            second = locked(path, wait=0.2, waiting=asked.append)
            message = rf"lock is locked by process {os.getpid()} of \S+ \(uid {os.geteuid()}\); wait"
            with pytest.raises(LockedError, match=message), second:
                pass
        assert asked[0].startswith(f"process {os.getpid()} of ")

    def test_a_holder_that_the_kernel_does_not_list_is_known_by_its_note(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files_host, "LOCKS", "/nowhere")
        with locked(str(tmp_path / "lock")):
            descriptor = os.open(tmp_path / "lock", os.O_RDWR)
            assert re.fullmatch(rf"process {os.getpid()} of [\w.-]+", describe_holder(descriptor))
            for odd in (b"", b"[]", b"[" * 5000, b'{"pid": "x", "host": 1}'):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, odd, 0)
                assert describe_holder(descriptor) == "another process"
            os.pwrite(descriptor, b'{"pid": 7, "host": "\\u001b[2J"}  ', 0)
            assert describe_holder(descriptor).isprintable()
            os.close(descriptor)

    def test_all_locks_of_the_collection_are_these_or_that_of_a_partial_file(self):
        tree = pathlib.Path(files_host.__file__).resolve().parents[2]
        takes = {
            path.name
            for path in (*tree.rglob("*.py"), *tree.parent.glob("roles/*/files/*"))
            if re.search(r"\bflock\(|\blockf\(|\btry_lock\(|F_SETLK|F_OFD_SETLK", path.read_text())
        }
        # Processes of vLLM mark their files of records so, and none of them waits.
        assert takes == {"files_host.py", "partial_file.py", "records_host.py"}

    def test_no_wait_is_for_ever(self):
        assert files_host.LOCK_SECONDS <= 300

    def test_a_killed_process_holds_nothing(self, tmp_path):
        take = f"import fcntl,os,time; fcntl.flock(os.open({str(tmp_path / 'lock')!r}, 66, 0o600), 2)"
        code = f"{take}; print(1, flush=True); time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
            assert other.stdout.readline()
            with pytest.raises(LockedError, match=rf"process {other.pid} of .*; wait until that ends"):
                locked(str(tmp_path / "lock"), wait=0).__enter__()
            other.kill()
        with locked(str(tmp_path / "lock"), wait=0):
            pass

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
    @pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
    def test_another_user_cannot_hold_it(self, tmp_path, mode):
        """The user nobody, for real: it may read the directory, and the file of an earlier release."""
        for directory in (tmp_path, *tmp_path.parents):
            directory.chmod(directory.stat().st_mode | 0o055)
        path = tmp_path / "lock"
        path.touch()
        path.chmod(mode)
        with locked(str(path), wait=0):
            pass
        code = f"import fcntl,os; fcntl.flock(os.open({str(path)!r}, 0), 2 | 4); print('held')"
        words = [sys.executable, "-I", "-c", code]
        done = subprocess.run(words, user=65534, group=65534, check=False, capture_output=True)
        assert b"PermissionError" in done.stderr and not done.stdout

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
    def test_a_file_of_another_user_is_refused_not_waited_for(self, tmp_path):
        (tmp_path / "lock").touch()
        os.chown(tmp_path / "lock", 65534, 65534)
        with pytest.raises(OSError, match=r"not a lock of this user \(owner uid 65534\)"), locked(
            str(tmp_path / "lock")
        ):
            pass

    @pytest.mark.parametrize("odd", [os.mkfifo, os.mkdir, lambda path: os.link(path.parent / "other", path)])
    def test_only_a_file_with_one_name_is_a_lock(self, tmp_path, odd):
        (tmp_path / "other").touch()
        odd(tmp_path / "lock")
        with pytest.raises(OSError, match=r"not a lock of this user|Is a directory"), locked(str(tmp_path / "lock")):
            pass

    def test_who_waits_gets_it_when_it_is_free(self, tmp_path):
        path, order = str(tmp_path / "lock"), []

        def second():
            with locked(path, wait=60):
                order.append("second")

        with locked(path):
            thread = threading.Thread(target=second)
            thread.start()
            time.sleep(0.2)
            order.append("first")
        thread.join()
        assert order == ["first", "second"]

    def test_a_link_is_not_followed(self, tmp_path):
        (tmp_path / "lock").symlink_to("elsewhere")
        with pytest.raises(OSError, match="symbolic links"), locked(str(tmp_path / "lock")):
            pass
        assert not (tmp_path / "elsewhere").exists()

    def test_a_file_system_without_locks_is_an_error_not_a_lock(self, tmp_path, monkeypatch):
        def flock(_descriptor, _operation):
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(fcntl, "flock", flock)
        with pytest.raises(OSError, match="not supported"), locked(str(tmp_path / "lock")):
            pass


def test_file_that_nobody_needs_after_a_crash_waits_for_no_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(files_host.os, "fsync", lambda _descriptor: pytest.fail("synced"))
    publish(str(tmp_path / "a"), "1", durable=False)
    assert (tmp_path / "a").read_text() == "1"


def test_a_file_that_cannot_be_read_has_an_empty_text(tmp_path):
    (tmp_path / "a").write_bytes(b"one\xff\n")
    assert text_of(str(tmp_path / "a")) == "one\ufffd\n"
    assert text_of(str(tmp_path / "b")) == text_of(str(tmp_path)) == ""


def test_what_cannot_be_read_is_empty(tmp_path):
    (tmp_path / "b").write_bytes(b"\xff\0")
    (tmp_path / "a").mkdir()
    assert bytes_of(str(tmp_path / "b")) == b"\xff\0"
    assert bytes_of(str(tmp_path / "a")) == bytes_of(str(tmp_path / "no")) == b""
    assert listed(str(tmp_path)) == ["a", "b"]
    assert listed(str(tmp_path / "b")) == listed(str(tmp_path / "no")) == []


def test_a_tree_is_synced_with_every_directory_below_it(tmp_path, monkeypatch):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").touch()
    synced = []
    monkeypatch.setattr(files_host, "sync_directory", synced.append)
    sync_tree(str(tmp_path))
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a/b")]


@pytest.mark.parametrize("read", [text_of, bytes_of, sha256_of])
def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    if read is sha256_of:
        for path in (tmp_path / "pipe", "/dev/zero"):
            with pytest.raises(OSError, match="not a regular file"):
                read(str(path))
    else:
        assert len(read(str(tmp_path / "pipe"))) == len(read("/dev/zero")) == 0
    assert time.monotonic() - began < 20


def test_of_a_file_without_an_end_the_beginning_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files_host, "MOST_TEXT", 1000)
    with open(tmp_path / "huge", "wb") as file:
        file.write(b"a" * 900)
        file.truncate(1 << 40)
    assert len(files_host.text_of(str(tmp_path / "huge"))) == 1000
    assert files_host.bytes_of(str(tmp_path / "huge"), 901) == b"a" * 900 + b"\0"


def test_a_lock_is_taken_where_a_full_disk_has_no_room_for_its_note(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with locked(str(tmp_path / "lock")):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "lock").read_text() == ""
