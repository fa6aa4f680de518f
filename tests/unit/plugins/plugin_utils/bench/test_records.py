# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept, what counts as measured, and what is refused."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench import records as module
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.records import (
    RecordError,
    Records,
    read_summary,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import Step

from tests.fakes.benches import CHAT, taken

STEP = Step(CHAT, 8, 32)


@pytest.fixture
def records(tmp_path):
    found = Records(str(tmp_path), "gpu-a-01", "chat", "a" * 64)
    with found.opened():
        yield found


def keep(records, step=STEP, repeat=1):
    records.keep(step, repeat, records.record(step, repeat, asdict(step.measurement(7)), taken()))


def test_a_measurement_is_found_again(records):
    keep(records)
    assert (records.directory / "raw/chat-c8-r1.json").is_file()
    assert records.read(STEP, 1)["result"] == taken()["result"] and records.read(STEP, 2) is None


@pytest.mark.parametrize("step", [Step(CHAT, 8, 64), Step(replace(CHAT, output_tokens=256), 8, 32), Step(CHAT, 16, 32)])
def test_another_measurement_does_not_count(records, step):
    keep(records)
    assert records.read(step, 1) is None


def test_a_measurement_with_another_plan_does_not_count(records, tmp_path):
    keep(records)
    other = Records(str(tmp_path), "gpu-a-01", "chat", "a" * 12 + "b" * 52)
    assert other.directory == records.directory and other.read(STEP, 1) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1}', "\xff"])
def test_a_damaged_file_does_not_count(records, text):
    keep(records)
    (records.raw / "chat-c8-r1.json").write_text(text)
    assert records.read(STEP, 1) is None


def test_everything_can_be_forgotten(records):
    keep(records)
    records.forget()
    assert records.read(STEP, 1) is None


def test_names_do_not_lead_out(tmp_path):
    found = Records(str(tmp_path), "../../host", "a/b", "c" * 64)
    assert found.directory == tmp_path / ".._.._host/a_b/cccccccccccc"


def test_two_benchmarks_do_not_share_a_directory(records, tmp_path):
    with pytest.raises(RecordError, match="is in use by another benchmark"), Records(
        str(tmp_path), "gpu-a-01", "chat", "a" * 64
    ).opened():
        pass


def test_no_room_is_one_clear_message(records, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "publish", full)
    with pytest.raises(RecordError, match=r"raw/chat-c8-r1.json cannot be written: No space left on device. What was"):
        keep(records)


def test_a_directory_that_is_a_file(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(RecordError, match=r"bench_dir: .* cannot be used: Not a directory"), Records(
        str(tmp_path / "results"), "h", "i", "p"
    ).opened():
        pass


def test_the_summary_of_another_run(records, tmp_path):
    records.write("summary.json", json.dumps({"results": []}))
    assert read_summary("bench_compare", str(records.directory)) == {"results": []}
    with pytest.raises(
        RecordError, match=r"bench_compare: .* is not there, .*; results are in .*gpu-a-01/chat/aaaaaaaaaaaa"
    ):
        read_summary("bench_compare", str(tmp_path))
    records.write("summary.json", "[]")
    with pytest.raises(RecordError, match="has no list of results"):
        read_summary("bench_compare", str(records.directory))
    records.write("summary.json", "{")
    with pytest.raises(RecordError, match="cannot be read"):
        read_summary("bench_compare", str(records.directory))
