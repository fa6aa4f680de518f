# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as its own process, with stand-ins for the tools and a server that answers as vLLM does."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.run_host import lock_instance

from tests.fakes.evaluations import install_lm_eval, install_tool
from tests.fakes.stranger import UID, listening, requests
from tests.fakes.systemd import FakeInstances, FakeSystemd
from tests.fakes.vllm import chat_body, fake_vllm
from tests.fakes.wheelhouse import run_module

KEY = "sk-planted-0123456789"
UNIT = "vllm@chat.service"
REQUEST = {"max_tokens": 64, "temperature": 0}


@pytest.fixture
def fake():
    with fake_vllm() as server:
        server.api_key = KEY
        yield server


@pytest.fixture
def place():
    """A directory that the user nobody can reach."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A systemctl with the instance's unit, and a journal of one line."""
    found = FakeSystemd(tmp_path / "systemd.json")
    found.install(tmp_path / "bin")
    (tmp_path / "bin" / "journalctl").write_text(f"#!/bin/sh\necho 'RuntimeError: out of memory, {KEY}'\n")
    (tmp_path / "bin" / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    set_unit(found)
    return found


def set_unit(systemd, **changes):
    unit = {
        "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success", "NRestarts": "0",
        "ExecMainCode": "0", "ExecMainStatus": "0", "MainPID": "42", "InvocationID": "1" * 32, "started": 1.0,
    }  # fmt: skip
    systemd.change(units={UNIT: {**unit, **changes}})


@pytest.fixture
def evaluate(fake, place, tmp_path, systemd):
    """Run the module on three questions; ``before`` and ``after`` are lines that the stand-in runs."""
    files = FakeInstances(tmp_path / "root")
    files.template()
    port = fake.server.server_port
    files.write("/etc/vllm/chat.yaml", f"host: 127.0.0.1\nport: {port}\nserved-model-name:\n- tiny\n")
    files.write("/etc/vllm/chat.secrets", f"VLLM_API_KEY={KEY}\n", 0o600)
    rows = [
        {"id": str(n), "prompt": f"Question {n}?", "expected": word} for n, word in enumerate(("ready", "no", "Ready"))
    ]

    def run(before="", after="", **options):
        work = place / "evaluate-own.chat"
        work.mkdir()
        data = work / "samples.jsonl"
        data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        environment = install_lm_eval(place / "environment", before, after)
        defaults = {
            "instance": "chat", "config_dir": str(files.at("/etc/vllm")), "root": str(files.root), "work": str(work),
            "environment": str(environment), "task": "t", "kind": "word", "data": str(data), "request": REQUEST,
        }  # fmt: skip
        return run_module("evaluation_run", **{**defaults, **options})

    return run


def chats(fake):
    return [(payload, key) for path, payload, key in fake.asked if path == "/v1/chat/completions"]


def test_every_question_is_asked_and_judged(evaluate, fake, place):
    result = evaluate()
    assert result["rc"] == 0, result
    assert (result["correct"], result["samples"], result["changed"]) == (2, 3, False)
    assert [payload["messages"][0]["content"] for payload, _key in chats(fake)] == [f"Question {n}?" for n in range(3)]
    assert {key for _payload, key in chats(fake)} == {f"Bearer {KEY}"}
    document = json.loads(gzip.decompress(Path(result["path"]).read_bytes()))
    assert (document["task"], document["model"], document["instance"], document["tool"]) == (
        "t",
        "tiny",
        "chat",
        "lm-eval 0.4.13",
    )
    assert [(item["id"], item["answer"], item["correct"]) for item in document["items"]] == [
        ("0", "ready", True), ("1", "ready", False), ("2", "ready", True),
    ]  # fmt: skip
    assert len(document["state"]) == 16 and document["unreadable"] == 0
    assert KEY not in json.dumps(result) and KEY not in json.dumps(document)
    assert sorted(os.listdir(place)) == ["environment", "evaluate-own.chat"]


GPQA = [{"id": f"q{n}", "expected": "A", "question": f"Which {n}?", "choices": ["right", "x", "y", "z"]}
        for n in range(3)]  # fmt: skip


@pytest.fixture
def ask_gpqa(evaluate, place, fake):
    """Ask three questions with another tool; the stand-ins have the right choice at B, and the second answer is C."""

    def answer(handler):
        text = handler.payload["messages"][-1]["content"]
        handler.send_json(chat_body("Answer: C" if "1?" in text else "Answer: B"))

    fake.behaviour["/v1/chat/completions"] = answer

    def run(tool, **options):
        (place / "gpqa.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in GPQA))
        environment = install_tool(place / "tool", tool)
        given = {"task": "gpqa", "kind": "choice", "data": str(place / "gpqa.jsonl")}
        return evaluate(tool=tool, environment=str(environment), **{**given, **options})

    return run


@pytest.mark.parametrize(("tool", "label"), [("gpt-oss", "gpt-oss 0.0.9"), ("aisbench", "AISBench 3.1.20260630")])
def test_the_other_tools_give_the_same_shape_of_result(ask_gpqa, fake, place, tool, label):
    result = ask_gpqa(tool)
    assert result["rc"] == 0, result
    assert (result["correct"], result["samples"]) == (2, 3)
    document = json.loads(gzip.decompress(Path(result["path"]).read_bytes()))
    assert document["tool"] == label
    assert [(item["id"], item["expected"], item["answer"], item["correct"]) for item in document["items"]] == [
        ("q0", "B", "B", True), ("q1", "B", "C", False), ("q2", "B", "B", True),
    ]  # fmt: skip
    assert {key for _payload, key in chats(fake)} == {f"Bearer {KEY}"} and len(chats(fake)) == 3
    assert {payload["max_tokens"] for payload, _key in chats(fake)} == {64}
    for path in (place / "evaluate-own.chat").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("tool", ["gpt-oss", "aisbench"])
def test_a_refused_request_is_no_result_of_another_tool_either(ask_gpqa, fake, tool):
    text = {"error": f"too long, {KEY}"}
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json(text, 400)
    result = ask_gpqa(tool)
    expected = {"gpt-oss": "gpt-oss failed after ", "aisbench": "AISBench: 3 requests failed; the first: "}[tool]
    assert f"instance chat, task gpqa: {expected}" in result["msg"] and "Bad Request" in result["msg"]
    assert KEY not in json.dumps(result)


def test_the_key_is_in_no_argument_and_no_file(evaluate, place):
    check = (
        "key = os.environ['OPENAI_API_KEY']\n"
        "assert key not in pathlib.Path('/proc/self/cmdline').read_text() and 'run.yaml' in sys.argv[-1]\n"
        "assert not [path for path in pathlib.Path('.').rglob('*') if path.is_file() and key in path.read_text()]\n"
    )
    nobody = "assert os.geteuid() != 0\n" if os.geteuid() == 0 else ""
    assert evaluate(check + nobody, check)["rc"] == 0
    work = place / "evaluate-own.chat"
    # What the tool wrote is removed at once: only root reads the result.
    assert sorted(os.listdir(work)) == ["result.json.gz", "samples.jsonl"]
    for path in work.rglob("*"):
        assert KEY.encode() not in path.read_bytes(), path


def test_no_other_user_who_listens_at_the_port_is_asked(evaluate, tmp_path):
    with listening("127.0.0.1") as (port, server):
        config = tmp_path / "root/etc/vllm/chat.yaml"
        config.write_text(f"host: 127.0.0.1\nport: {port}\nserved-model-name:\n- tiny\n")
        assert f"a process of the user with uid {UID} listens there, expected the instance" in evaluate()["msg"]
        assert requests(server) == []


def test_an_answer_that_cannot_be_read_is_counted(evaluate, fake):
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json(chat_body(None, "length"))
    result = evaluate()
    document = json.loads(gzip.decompress(Path(result["path"]).read_bytes()))
    assert (result["correct"], document["unreadable"]) == (0, 3)


def test_an_instance_that_dies_in_the_middle(evaluate, fake, systemd):
    def die(handler):
        set_unit(
            systemd, ActiveState="failed", SubState="failed", Result="signal", ExecMainCode="2", ExecMainStatus="9"
        )
        handler.close_connection = True

    fake.behaviour["/v1/chat/completions"] = die
    result = evaluate()
    assert result["failed"] and result["msg"].startswith("instance chat, task t: unit vllm@chat.service has failed: ")
    assert "so the task was not completed. The reason, from its journal: RuntimeError: out of memory" in result["msg"]
    assert KEY not in json.dumps(result)


def test_an_instance_that_is_restarted_meanwhile(evaluate, fake, systemd):
    def restart(handler):
        set_unit(systemd, InvocationID="2" * 32)
        handler.send_json(chat_body())

    fake.behaviour["/v1/chat/completions"] = restart
    result = evaluate()
    assert result["failed"] and "unit vllm@chat.service was restarted after" in result["msg"]


def test_what_the_instance_refuses_is_in_the_message_and_the_key_is_not(evaluate, fake):
    text = f"max_tokens is too large, {KEY}"
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json({"error": text}, 400)
    result = evaluate()
    assert re.match(
        r"instance chat, task t: lm-eval failed after \d+ s with status 1: the instance answered 400: ", result["msg"]
    )
    assert "max_tokens is too large, ********" in result["msg"] and KEY not in json.dumps(result)


def test_results_that_could_not_be_written(evaluate):
    # lm-eval logs a warning and ends with status 0.
    assert (
        "lm-eval left 0 files of judged answers, expected 1; is the disk full?" in evaluate(after="sys.exit(0)")["msg"]
    )


def test_a_run_that_takes_too_long(evaluate):
    result = evaluate("time.sleep(60)", timeout=1)
    assert "not every question was answered after 1 s; raise evaluate_timeout, or ask fewer" in result["msg"]


def test_a_second_evaluation_of_the_instance_is_refused(evaluate, fake, tmp_path):
    with lock_instance("chat", str(tmp_path / "root")):
        result = evaluate()
    assert result["msg"].startswith("instance chat, task t: another evaluation of this instance is running")
    assert not chats(fake)


def test_the_directory_of_an_interrupted_evaluation_is_removed(evaluate, place):
    (place / "evaluate-old.chat").mkdir()
    # One of the last hour may be of an evaluation that runs.
    os.utime(place / "evaluate-old.chat", (0, 0))
    assert evaluate()["rc"] == 0
    assert not (place / "evaluate-old.chat").exists()


def test_an_environment_that_is_not_there(evaluate):
    result = evaluate(environment="/opt/missing")
    assert "/opt/missing/bin/lm_eval is not on this host; leave evaluate_environment empty" in result["msg"]


def test_an_instance_that_is_not_there(evaluate):
    assert "instance, task t" not in (result := evaluate(instance="chta"))["msg"]
    assert result["msg"].startswith("instance chta, task t: instance chta is not installed on this host")


def test_a_name_that_is_no_name(evaluate):
    assert "found '../x', expected a name such as chat" in evaluate(instance="../x")["msg"]
