# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import files_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights import lock_host as _weights_lock
from ansible_collections.baremetal.inference.plugins.module_utils.weights.lock_host import lock_model_directory
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError

HOLDER = """
import sys
from ansible_collections.baremetal.inference.plugins.module_utils.weights.lock_host import lock_model_directory
with lock_model_directory(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path, monkeypatch):
    """Another process that holds the lock."""
    monkeypatch.setattr(_weights_lock, "PAUSE_SECONDS", 0.02)
    top = Path(__file__).parents[5]
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{top}/.collections"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.communicate()


def test_one_who_waits_knows_for_whom_and_goes_on_when_that_one_is_killed(tmp_path, holder):
    waited = []

    def waiting(whom):
        waited.append(whom)
        if len(waited) == 3:
            holder.kill()

    with lock_model_directory(str(tmp_path), waiting):
        assert len(waited) >= 3
    assert waited[0] == f"process {holder.pid} of {os.uname().nodename} (uid {os.geteuid()})"


def test_patience_ends(tmp_path, holder):
    with pytest.raises(
        WeightsError, match=f"process {holder.pid} of .* is still downloading into it after 0.1 s of waiting"
    ):
        lock_model_directory(str(tmp_path), wait=0.1).__enter__()


def test_threads_of_one_process_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(_weights_lock, "PAUSE_SECONDS", 0.01)
    inside, most = [], []

    def work():
        with lock_model_directory(str(tmp_path)):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=work) for _number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5


def test_planted_symlink_is_not_followed(tmp_path):
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WeightsError, match=r"\.lock: cannot be opened for writing"):
        lock_model_directory(str(tmp_path)).__enter__()
    assert not (tmp_path / "elsewhere").exists()


def test_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(*_words):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(files_host.fcntl, "flock", refuse)
    with pytest.raises(WeightsError, match=r"supports no locks .No locks available., so two hosts could fetch at once"):
        lock_model_directory(str(tmp_path)).__enter__()


def test_no_other_user_can_open_the_lock_to_hold_it():
    # Everybody may enter it, which is not so of pytest's directories.
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        lock = Path(directory, ".lock")
        for earlier in (False, True):
            if earlier:
                lock.chmod(0o644)
            with lock_model_directory(directory):
                pass
            words = [sys.executable, "-I", "-c", f"open({str(lock)!r})"]
            done = subprocess.run(words, user=65534, group=65534, capture_output=True, text=True, check=False)
            assert "PermissionError" in done.stderr
