# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of tests/rollout: every request that is not answered in full is a failure, and none is lost."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.fakes.redfish_server import authority
from tests.fakes.vllm import ANSWER, MODEL, chat_body, fake_vllm, stream_chunks

LOAD = Path(__file__).resolve().parents[3] / "tests/rollout/load.py"
KEY = "sk-planted-0123456789"
FIELDS = ["start", "seconds", "kind", "status", "ok", "text", "error", "first_token_s", "server"]


@pytest.fixture
def fake():
    with fake_vllm() as server:
        yield server


def words(url, *more):
    return [sys.executable, str(LOAD), "--url", url, "--model", MODEL, *map(str, more)]


def run(url, *more):
    """Return the exit status, the lines and the summary of a run."""
    done = subprocess.run(words(url, *more), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], json.loads(done.stderr)


def test_plain_and_streamed_by_turns(fake):
    status, rows, summary = run(fake.url, "--workers", 1, "--requests", 4, "--expect", "fleet is ready")
    assert status == 0 and [row["kind"] for row in rows] == ["plain", "stream"] * 2
    assert all(list(row) == FIELDS and row["ok"] and row["text"] == ANSWER and row["status"] == 200 for row in rows)
    assert [row["first_token_s"] is None for row in rows] == [True, False] * 2
    assert all(0 < row["first_token_s"] <= row["seconds"] for row in rows[1::2])
    told = ("requests", "ok", "failed", "plain", "stream", "errors", "texts")
    assert {key: summary[key] for key in told} == {
        "requests": 4, "ok": 4, "failed": 0, "plain": 2, "stream": 2, "errors": {}, "texts": {ANSWER: 4},
    }  # fmt: skip


def test_never_more_at_a_time_than_workers(fake):
    lock, running, most = threading.Lock(), [], []
    # Broken where fewer than three come at the same time.
    meeting = threading.Barrier(3)

    def chat(handler):
        with lock:
            running.append(1)
            most.append(len(running))
        meeting.wait(20)
        with lock:
            running.pop()
        handler.send_json(chat_body())

    fake.behaviour["/v1/chat/completions"] = chat
    status, rows, _summary = run(fake.url, "--workers", 3, "--requests", 12, "--kind", "plain")
    assert status == 0 and len(rows) == 12 and max(most) == 3


def cut_after(text):
    def answer(handler):
        handler.start_stream()
        handler.send_piece(text)
        # Without the empty piece that ends it, as where the server dies.
        handler.close_connection = True

    return answer


def no_answer(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


FIRST = "data: " + json.dumps(stream_chunks()[1]) + "\n\n"
BAD = [
    ("stream", cut_after(FIRST), "cut: after", 200),
    ("stream", lambda handler: handler.send_stream(stream_chunks(), done=False), "without [DONE]", 200),
    ("stream", lambda handler: handler.send_text(""), "cut: the stream ended after 0 bytes without [DONE]", 200),
    ("stream", cut_after('data: {"error": {"message": "engine dead"}}\n\n'), "stream: engine dead", 200),
    ("stream", cut_after("data: oops\n\n"), "answer: no chunk of a chat: b'oops'", 200),
    ("stream", lambda handler: handler.send_stream(stream_chunks(texts=())), "answer: empty", 200),
    ("stream", lambda handler: handler.send_json({"error": "No server"}, 503), "status 503: No server", 503),
    ("plain", lambda handler: handler.send_json({"error": {"message": "busy"}}, 429), "status 429: busy", 429),
    ("plain", lambda handler: handler.send_text('{"choices"', length=500), "cut: after 10 bytes, 490 are missing", 200),
    ("plain", lambda handler: handler.send_text("{}"), "answer: no chat: b'{}'", 200),
    ("plain", lambda handler: handler.send_json(chat_body("No idea.")), "wrong: 'No idea.'", 200),
    ("plain", no_answer, "cut: no answer", 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "behaviour", "said", "code"), BAD)
def test_whatever_is_not_a_whole_answer_fails(fake, kind, behaviour, said, code):
    fake.behaviour["stream" if kind == "stream" else "/v1/chat/completions"] = behaviour
    status, rows, summary = run(fake.url, "--requests", 1, "--kind", kind, "--expect", "ready", "--expect", "steady")
    assert status == 1 and said in rows[0]["error"] and rows[0]["status"] == code, rows
    assert not rows[0]["ok"] and summary["failed"] == 1 and list(summary["errors"].values()) == [1]


def test_a_failure_does_not_end_the_load(fake):
    turns = iter([503, 200, 503, 200])
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json(chat_body(), next(turns))
    status, rows, summary = run(fake.url, "--workers", 1, "--requests", 4, "--kind", "plain")
    assert status == 1 and [row["ok"] for row in rows] == [False, True, False, True]
    assert summary["errors"] == {"status 503": 2}


def test_what_is_late_fails(fake):
    release = threading.Event()

    def drip(handler):
        # Each piece is in time, the whole answer is not.
        handler.start_stream()
        while not release.wait(0.05):
            handler.send_piece(FIRST)

    fake.behaviour["stream"] = drip
    fake.behaviour["/v1/chat/completions"] = lambda handler: release.wait(300)
    try:
        status, rows, summary = run(fake.url, "--requests", 2, "--timeout", 3)
    finally:
        release.set()
    assert status == 1 and summary["errors"] == {"late": 2}
    assert sorted(row["error"][:16] for row in rows) == ["late: no answer ", "late: not over a"]
    # Where it broke off is to be seen.
    assert next(row for row in rows if row["kind"] == "stream")["text"].startswith("The")


def test_nobody_listens():
    status, rows, summary = run("http://127.0.0.1:9", "--requests", 3, "--workers", 1)
    assert status == 1 and len(rows) == 3
    assert rows[0]["error"].startswith("connect: ") and rows[0]["status"] == 0
    # A worker that is refused does not ask as fast as it can.
    assert summary["seconds"] >= 0.4


@pytest.mark.slow
def test_https_with_a_ca_of_its_own_and_a_key(fake, tmp_path):
    ca, tls = authority(tmp_path, ["127.0.0.1"])
    fake.server.socket = tls.wrap_socket(fake.server.socket, server_side=True)
    fake.api_key = KEY
    (tmp_path / "key").write_text(f"{KEY}\nold-key\n")
    url = fake.url.replace("http:", "https:")
    options = ("--requests", 2, "--key-file", tmp_path / "key")
    status, rows, _summary = run(url, "--ca", ca, *options)
    assert status == 0 and {key for _path, _payload, key in fake.asked} == {f"Bearer {KEY}"}
    assert KEY not in json.dumps(rows)
    status, rows, _summary = run(url, *options)
    assert status == 1 and "CERTIFICATE_VERIFY_FAILED" in rows[0]["error"] and rows[0]["error"].startswith("connect: ")
    (tmp_path / "key").write_text("another\n")
    assert "status 401: Unauthorized" in run(url, "--ca", ca, *options)[1][0]["error"]


def test_sigterm_lets_running_requests_end(fake, tmp_path):
    came, release = threading.Event(), threading.Event()

    def slow(handler):
        came.set()
        release.wait(300)
        handler.send_stream(stream_chunks())

    fake.behaviour["stream"] = slow
    out = tmp_path / "requests.jsonl"
    command = words(fake.url, "--workers", 1, "--kind", "stream", "--out", out)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert came.wait(300)
        process.send_signal(signal.SIGTERM)
        release.set()
        summary = json.loads(process.communicate(timeout=300)[0])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert process.returncode == 0 and summary["failed"] == 0
    # The signal may come before or after the first answer is read; nothing is lost either way.
    assert summary["requests"] == len(rows) == len(fake.asked) and all(row["ok"] for row in rows)


def test_it_ends_by_itself_and_adds_to_the_file(fake, tmp_path):
    out = tmp_path / "requests.jsonl"
    out.write_text('{"from": "before"}\n')
    done = subprocess.run(
        words(fake.url, "--seconds", 0.5, "--pause", 0.05, "--out", out), capture_output=True, timeout=60, check=True
    )
    summary = json.loads(done.stdout)
    assert summary["requests"] == len(out.read_text().splitlines()) - 1 > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--url", "127.0.0.1:80"], "expected something like https://gateway:443"),
        (["--workers", "0"], "--workers takes 1 or more"),
        (["--key-file", "/nowhere/key"], "No such file"),
        (["--url", "https://h", "--ca", "/nowhere.pem"], "No such file"),
        (["--key-file", "/dev/null"], "begins with an empty line"),
    ],
)
def test_options_that_cannot_be_used(options, said):
    done = subprocess.run(words("http://h", *options), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and said in done.stderr
