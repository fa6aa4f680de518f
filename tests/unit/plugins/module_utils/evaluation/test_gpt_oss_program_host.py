# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of gpt_oss.evals, with stand-ins for its packages, and with the real ones where GPT_OSS_PYTHON names
their Python."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation import gpt_oss_program_host

from tests.fakes.evaluations import install_packages
from tests.fakes.vllm import chat_body, fake_vllm

PROGRAM = inspect.getsource(gpt_oss_program_host)
REAL = os.environ.get("GPT_OSS_PYTHON", "")
KEY = "sk-planted-0123456789"


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.skipif(not REAL, reason="GPT_OSS_PYTHON"))])
def ask(request, tmp_path):
    """Run the program on questions against a server; return its answers, and what it asked."""
    if request.param == "stand-in":
        install_packages(tmp_path / "packages")

    def run(task, questions, answer):
        (tmp_path / "data").write_text("".join(f"{json.dumps(row)}\n" for row in questions))
        with fake_vllm() as server:
            server.behaviour["/v1/chat/completions"] = answer
            settings = {
                "task": task, "data": str(tmp_path / "data"), "url": server.url,
                "model": "tiny", "request": {"max_tokens": 64, "temperature": 0, "min_p": 0.5}, "concurrency": 4,
                "timeout": 20, "output": str(tmp_path / "answers"),
            }  # fmt: skip
            (tmp_path / "run.json").write_text(json.dumps(settings))
            (tmp_path / "gpt_oss_evals.py").write_text(PROGRAM)
            python = REAL if request.param == "real" else sys.executable
            environment = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": KEY, "PYTHONPATH": str(tmp_path / "packages")}
            done = subprocess.run(
                [python, "gpt_oss_evals.py", "run.json"], env=environment, cwd=tmp_path, text=True,
                capture_output=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            asked = [(body, key) for path, body, key in server.asked if path == "/v1/chat/completions"]
        return [json.loads(line) for line in (tmp_path / "answers").read_text().splitlines()], asked

    return run


def right(handler):
    """Answer with the letter in front of the right choice, and nothing to the question that says so."""
    text = handler.payload["messages"][-1]["content"]
    letter = next(letter for letter in "ABCD" if f"({letter}) right" in text)
    handler.send_json(chat_body("" if "silence" in text else f"Answer: {letter} <&>"))


def test_gpqa(ask):
    questions = [
        {"id": f"q{n}", "question": f"Which {n}?" if n != 2 else "silence", "choices": ["right", "x", "y", "z"],
         "expected": "A"}
        for n in range(9)
    ]  # fmt: skip
    answers, asked = ask("gpqa", questions, right)
    assert [answer["id"] for answer in answers] == [f"q{n}" for n in range(9)]
    assert [answer["score"] for answer in answers] == [float(n != 2) for n in range(9)]
    assert all(answer["answer"] == answer["expected"] for answer in answers if answer["score"])
    assert (answers[2]["answer"], answers[2]["response"]) == ("", "") and answers[0]["response"].endswith(" <&>")
    assert len(asked) == 9 and {key for _body, key in asked} == {f"Bearer {KEY}"}
    assert {(body["model"], body["max_tokens"], body["min_p"]) for body, _key in asked} == {("tiny", 64, 0.5)}


def test_aime(ask):
    questions = [{"id": str(n), "question": f"{n}?", "choices": [], "expected": str(n)} for n in range(1, 6)]
    answers, asked = ask("aime25", questions, lambda handler: handler.send_json(chat_body("3")))
    assert [(answer["id"], answer["score"]) for answer in answers] == [(str(n), float(n == 3)) for n in range(1, 6)]
    assert {answer["answer"] for answer in answers} == {"3"} and len(asked) == 5
