# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of records: bounded, and whole whatever the disk does."""

from __future__ import annotations

import fcntl
import json
import os

from ansible_collections.baremetal.inference.plugins.module_utils.usage import records_host
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import read_parts
from ansible_collections.baremetal.inference.plugins.module_utils.usage.records_host import Records


def test_files_are_bounded_and_a_gap_shows_in_the_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(records_host, "FILE_BYTES", 200)
    monkeypatch.setattr(records_host, "FILES", 3)
    found = records_host.Records(str(tmp_path / "usage"))
    for number in range(50):
        found.add({"at": number, "client": "c" * 40})
    assert len(found.names()) == 3
    lines = [json.loads(line) for line in found.read({}).splitlines()]
    numbers = [line["number"] for line in lines if "number" in line]
    assert numbers == list(range(numbers[0], 51)) and numbers[0] > 30


def test_a_clock_that_is_set_back_removes_no_new_record(tmp_path, monkeypatch):
    monkeypatch.setattr(records_host, "FILE_BYTES", 200)
    monkeypatch.setattr(records_host, "FILES", 3)
    clock = iter(range(2000, 0, -1))
    monkeypatch.setattr(records_host.time, "time_ns", lambda: next(clock))
    for _start in range(5):
        found = records_host.Records(str(tmp_path / "usage"))
        for number in range(1, 8):
            found.add({"at": number, "client": "c" * 40})
        lines = [json.loads(line) for line in found.read({}).splitlines()]
        numbers = [line["number"] for line in lines if "number" in line]
        assert numbers[-3:] == [5, 6, 7] and len(found.names()) == 3
        os.close(found.file)


def test_a_full_disk_fails_no_request_and_the_number_counts_on(tmp_path, monkeypatch, capsys):
    found = records_host.Records(str(tmp_path / "usage"))
    found.add({"a": 1})
    write = os.write

    def full(_file, _text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records_host.os, "write", full)
    found.add({"a": 2})
    found.add({"a": 3})
    monkeypatch.setattr(records_host.os, "write", lambda file, text: write(file, text[:9]))
    found.add({"a": 4})
    monkeypatch.setattr(records_host.os, "write", write)
    found.add({"a": 5})
    lines = found.read({}).splitlines()
    assert lines[1] == b'{"number":1,"a":1}' and lines[-1] == b'{"number":5,"a":5}'
    assert capsys.readouterr().out.count("No space left on device") == 1


def test_a_file_that_somebody_removed_is_made_again(tmp_path):
    found = records_host.Records(str(tmp_path / "usage"))
    found.add({"a": 1})
    (tmp_path / "usage" / found.names()[0]).unlink()
    found.add({"a": 2})
    assert b'"number":2' in found.read({})


def test_processes_remove_no_file_that_another_one_writes(tmp_path, monkeypatch):
    """An instance with data parallelism has a process for each rank, and all write at once."""
    monkeypatch.setattr(records_host, "FILES", 3)
    processes, read, found = [Records(str(tmp_path)) for _number in range(20)], {}, []
    for _turn in range(5):
        for each in processes:
            each.add({"state": "complete"})
        for part in read_parts(processes[0].read(read).decode()):
            read[part.file] = part.end
            found += [(part.process, record["number"]) for record in part.records]
    assert len(found) == len(set(found)) == 100 and len(read) == 20


def test_a_full_file_stays_however_many_processes_write(tmp_path, monkeypatch):
    monkeypatch.setattr(records_host, "FILES", 3)
    monkeypatch.setattr(records_host, "FILE_BYTES", 1)
    processes = [Records(str(tmp_path)) for _number in range(20)]
    for each in [*processes, *processes[:2]]:
        each.add({"state": "complete"})
    assert processes[0].read({}).count(b'"number"') == 22


def test_what_processes_left_that_have_ended_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(records_host, "FILES", 3)
    for _start in range(20):
        ended = Records(str(tmp_path))
        ended.add({"state": "complete"})
        os.close(ended.file)
    assert len(ended.names()) == 3


def test_a_file_from_before_the_clock_was_set_is_the_oldest(tmp_path, monkeypatch):
    times = iter([60_000_000_000, 60_000_000_000] + [1_795_954_632_000_000_000 + n for n in range(20)])
    monkeypatch.setattr(records_host.time, "time_ns", lambda: next(times))
    monkeypatch.setattr(records_host, "FILES", 3)
    first = None
    for _start in range(4):
        each = Records(str(tmp_path))
        each.add({"state": "complete"})
        os.close(each.file)
        first = first or each.names()[0]
    assert first not in each.names()


def test_a_lock_that_another_process_holds_makes_nobody_wait(tmp_path, monkeypatch):
    def held(file, how):
        assert how & fcntl.LOCK_NB
        raise BlockingIOError

    monkeypatch.setattr(records_host.fcntl, "flock", held)
    found = Records(str(tmp_path))
    found.add({"state": "complete"})
    assert found.read({}).count(b'"number"') == 1


def test_a_record_that_lacks_its_last_byte_after_a_torn_one_takes_no_other_along(tmp_path, monkeypatch):
    records, write = Records(str(tmp_path)), os.write
    lacking = [1, 3]

    def full(file, text):
        return write(file, text[: -lacking.pop()] if lacking else text)

    monkeypatch.setattr(os, "write", full)
    for _number in range(4):
        records.add({"model": "m"})
    lines = records.read({}).splitlines()[1:]
    assert [json.loads(line)["number"] for line in lines if line.endswith(b"}")] == [2, 3, 4]
