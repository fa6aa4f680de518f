# SPDX-License-Identifier: GPL-3.0-or-later
"""A batch against a server that is busy, fails, and ends in the middle."""

from __future__ import annotations

import json
import os
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import LockedError, locked
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint import batch, batch_host
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.batch import BatchError
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply


class Gateway:
    """Answers as ``judge`` says for the number of each request and how often it came before."""

    def __init__(self, judge):
        self.judge, self.seen, self.lock, self.most, self.now = judge, {}, threading.Lock(), 0, 0

    def request(self, method, path, body, timeout):
        with self.lock:
            before = self.seen[body["n"]] = self.seen.get(body["n"], -1) + 1
            self.now += 1
            self.most = max(self.most, self.now)
        status = self.judge(body["n"], before)
        with self.lock:
            self.now -= 1
        if status == 0:
            return Reply(0, (), 0.0, "no connection")
        return Reply(status, ((0.0, json.dumps({"n": body["n"]}).encode()),), 0.0)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_host, "PAUSE", 0.001)
    source = tmp_path / "in.jsonl"
    lines = [
        json.dumps({"custom_id": f"r{n}", "method": "POST", "url": "/v1/completions", "body": {"n": n}})
        for n in range(200)
    ]
    source.write_text("\n".join(lines) + "\n")
    return source, tmp_path / "out.jsonl"


def play(files, judge, at_once=8):
    said = []
    gateway = Gateway(judge)
    batch_host.run(str(files[0]), str(files[1]), gateway, at_once, 5, said.append)
    return gateway, said


def answers(files):
    found = [json.loads(line) for line in files[1].read_text().splitlines()]
    assert len({entry["custom_id"] for entry in found}) == len(found)
    return {entry["custom_id"]: entry for entry in found}


def test_every_line_has_one_answer_and_what_is_refused_is_sent_again(files):
    gateway, said = play(files, lambda n, before: 429 if n % 3 == 0 and before < 9 else 200)
    found = answers(files)
    assert len(found) == 200 and all(found[f"r{n}"]["response"]["body"] == {"n": n} for n in range(200))
    assert gateway.most <= 8 and gateway.seen[0] == 9 and gateway.seen[1] == 0
    assert said == ["200 requests, 0 of them answered", "200 of 200 answered"]


def test_a_failure_is_an_answer_after_some_attempts_and_a_refused_request_at_once(files):
    gateway, _said = play(files, lambda n, before: {0: 500, 1: 0, 2: 400}.get(n, 200))
    found = answers(files)
    assert [gateway.seen[n] for n in range(4)] == [batch_host.ATTEMPTS - 1, batch_host.ATTEMPTS - 1, 0, 0]
    assert found["r0"]["response"]["status_code"] == 500 and found["r1"]["response"] is None
    assert found["r2"]["error"] == {"n": 2} and found["r3"]["error"] is None


def test_a_second_run_goes_on_after_a_crash_and_asks_nothing_twice(files):
    play(files, lambda n, before: 200)
    whole = files[1].read_bytes()
    kept = whole.splitlines(keepends=True)[:50]
    # The crash has cut off a line.
    files[1].write_bytes(b"".join(kept) + b'{"id": "batch-1", "custom_id": "r1')
    gateway, said = play(files, lambda n, before: 200)
    assert len(gateway.seen) == 150 and len(answers(files)) == 200
    assert files[1].read_bytes().startswith(b"".join(kept)) and said[0] == "200 requests, 50 of them answered"
    assert play(files, lambda n, before: 200)[0].seen == {}


def test_an_answer_that_a_second_run_could_not_read_is_a_failure(files, monkeypatch):
    for room in (batch, batch_host):
        monkeypatch.setattr(room, "MAX_LINE", 600)
    gateway = Gateway(lambda n, before: 200)
    # Six bytes for each character, and twice where the answer is an error.
    gateway.request = lambda *_given: Reply(400, ((0.0, json.dumps("\u00e9" * 60, ensure_ascii=False).encode()),), 0.0)
    for _run in range(2):
        batch_host.run(str(files[0]), str(files[1]), gateway, 8, 5, print)
        found = answers(files)
        assert len(found) == 200 and found["r0"]["error"] == {"message": "the answer has more than 600 bytes"}


def test_an_interrupt_keeps_what_runs(files):
    def judge(n, before):
        if n == 100:
            raise KeyboardInterrupt
        return 200

    with pytest.raises(KeyboardInterrupt):
        play(files, judge, 4)
    before = answers(files)
    assert 90 <= len(before) < 110
    play(files, lambda n, before: 200)
    assert len(answers(files)) == 200


def test_a_fault_in_the_input_sends_nothing(files):
    with files[0].open("a") as file:
        file.write("broken\n")
    gateway = Gateway(lambda n, before: 200)
    with pytest.raises(BatchError, match="line 201: is no JSON"):
        batch_host.run(str(files[0]), str(files[1]), gateway, 8, 5, print)
    assert gateway.seen == {}


def test_a_file_that_is_no_output_stays_as_it_is(files):
    files[1].write_text("my notes\n")
    with pytest.raises(BatchError, match="line 1 of the output"):
        play(files, lambda n, before: 200)
    assert files[1].read_text() == "my notes\n"


def test_two_runs_do_not_write_one_file(files):
    with locked(f"{files[1]}.lock"), pytest.raises(LockedError):
        play(files, lambda n, before: 200)


@pytest.mark.parametrize("text", ["my only copy", "{}", "\0\1", '{"id": "other', '{"custom_id": "r1"}\n'])
def test_a_file_that_is_no_output_is_left_as_it_is(files, text):
    files[1].write_text(text)
    with pytest.raises(BatchError, match="line 1 of the output: is no answer of a batch"):
        play(files, lambda _n, _before: 200)
    assert files[1].read_text() == text


@pytest.mark.parametrize("text", ["{", '{"id": "batch-', '{"id": "batch-12", "custom_id": "r1", "resp'])
def test_an_answer_that_a_crash_has_cut_off_is_written_again(files, text):
    files[1].write_text(text)
    play(files, lambda _n, _before: 200)
    assert len(answers(files)) == 200


def test_the_input_is_never_the_output(files):
    before = files[0].read_text()
    with pytest.raises(BatchError, match="is the output too"):
        play((files[0], files[0]), lambda _n, _before: 200)
    assert files[0].read_text() == before


@pytest.mark.parametrize("which", [0, 1])
def test_a_pipe_is_no_file(files, which):
    files[which].unlink(missing_ok=True)
    os.mkfifo(files[which])
    with pytest.raises(BatchError, match="is not a file"):
        play(files, lambda _n, _before: 200)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link away")
@pytest.mark.parametrize("link", ["out.jsonl", "out.jsonl.lock", "directory"])
def test_a_link_of_another_user_chooses_no_file(files, tmp_path, link):
    """In a directory such as /tmp it would choose which of the user's files gets the answers, or is cut off."""
    own, source = tmp_path / "own", files[0]
    own.mkdir()
    (tmp_path / link).symlink_to(own if link == "directory" else own / "precious")
    os.lchown(tmp_path / link, 65534, 65534)
    target = tmp_path / link / "out.jsonl" if link == "directory" else tmp_path / "out.jsonl"
    with pytest.raises(OSError, match=r"is a link of another user|symbolic link"):
        play((source, target), lambda n, before: 200)
    assert os.listdir(own) == []


def test_a_link_of_ones_own_is_followed_and_the_lock_lies_beside_the_file(files, tmp_path):
    (tmp_path / "disk").mkdir()
    files[1].symlink_to("disk/answers")
    play(files, lambda n, before: 200)
    assert files[1].is_symlink() and len(answers(files)) == 200
    assert sorted(os.listdir(tmp_path / "disk")) == ["answers", "answers.lock"]
