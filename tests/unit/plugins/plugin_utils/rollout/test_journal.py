# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a rollout, whole and cut off."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.processes_host import boot_id, started_at
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.journal import (
    append,
    is_running,
    may_run,
    new_id,
    read,
    shorten,
    state_of,
)


def test_a_long_detail_is_one_line_for_people():
    assert shorten("the gate failed: 3 of 4") == "the gate failed: 3 of 4"
    journal = "m at http://x is not ready:\n- ready: it died\nUnit vllm@chat.service: failed.\n" + "  GET /\n" * 20
    assert shorten(journal) == (
        "m at http://x is not ready: - ready: it died Unit vllm@chat.service: failed. ... (the rest is in the report)"
    )
    assert len(shorten("x" * 5000)) < 350


def test_what_is_written_is_read_in_order(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    append(path, {"event": "begun", "id": "x"}, now=1.5)
    append(path, {"event": "step", "host": "a", "step": "drain", "detail": "ä\nb"})
    events = read(path)
    assert events[0] == {"at": 1.5, "event": "begun", "id": "x"}
    assert events[1]["detail"] == "ä\nb"
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path):
    path = tmp_path / "journal.jsonl"
    append(str(path), {"event": "begun", "id": "x"})
    with path.open("a") as file:
        file.write('{"at": 1, "event": "st')
    append(str(path), {"event": "ended", "result": "interrupted"})
    assert [event["event"] for event in read(str(path))] == ["begun", "ended"]


def test_a_link_in_place_of_a_journal_is_not_followed(tmp_path):
    # In a directory of rollouts that several people share, the journal that a rollout closes may be another's.
    own, journal = tmp_path / "authorized_keys", tmp_path / "journal.jsonl"
    own.write_text("mine\n")
    journal.symlink_to(own)
    with pytest.raises(OSError, match="symbolic links"):
        append(str(journal), {"event": "ended"})
    assert own.read_text() == "mine\n"


def test_a_fifo_in_place_of_a_journal_blocks_nobody(tmp_path):
    os.mkfifo(tmp_path / "journal.jsonl")
    for use in (read, lambda path: append(path, {"event": "ended"})):
        with pytest.raises(OSError, match="not a regular file"):
            use(str(tmp_path / "journal.jsonl"))


def test_many_writers_lose_no_line(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    threads = [threading.Thread(target=append, args=(path, {"event": "step", "host": str(n)})) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {event["host"] for event in read(path)} == {str(n) for n in range(40)}


def test_the_last_step_of_each_host_says_where_it_is():
    events = [
        {"event": "begun", "id": "x"},
        *({"event": "host", "host": host, "cluster": "fra"} for host in "abcde"),
        {"event": "step", "host": "a", "step": "drain"},
        {"event": "step", "host": "a", "step": "done"},
        {"event": "step", "host": "b", "step": "apply"},
        {"event": "step", "host": "c", "step": "rolled_back", "detail": "no answer"},
        {"event": "step", "host": "d", "step": "skipped"},
    ]
    state = state_of(events)
    assert (state.unfinished(), state.untouched()) == (["b"], ["e"])
    assert state.failed() == {"c": "fra", "d": "fra"}
    assert state.details["c"] == "no answer"
    assert state.result == ""


def test_a_process_is_told_from_another_one_of_its_number():
    mine = {"pid": os.getpid(), "pid_started": started_at(os.getpid()), "boot": boot_id()}
    assert is_running(mine)
    assert not is_running({**mine, "pid_started": mine["pid_started"] + 1})
    assert not is_running({**mine, "boot": "another"})
    assert not is_running({})
    assert is_running({**mine, "pid_started": None})
    assert not is_running({**mine, "pid": 2**22 + 1, "pid_started": None})
    # What another controller does cannot be seen from here.
    assert may_run({**mine, "controller": "another-one", "boot": "another"})
    assert not may_run({**mine, "controller": platform.node(), "boot": "another"})


def test_a_process_that_is_gone_does_not_run():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        begun = {"pid": child.pid, "pid_started": started_at(child.pid), "boot": boot_id()}
        assert is_running(begun)
        child.communicate(b"\n")
    assert not is_running(begun)


def test_names_are_new_and_sort_by_time():
    assert new_id(0) < new_id(3600)
    assert new_id() != new_id()
