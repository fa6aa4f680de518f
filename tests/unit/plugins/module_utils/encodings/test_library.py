# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import ENCODINGS
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.library import (
    NEEDED,
    QUESTION,
    QUESTION_IN_IMAGE,
    FoundFile,
    Use,
    container_command,
    describe_no_answer,
    describe_refusal,
    list_uses,
    parse_answer,
)

SIZE, SHA256 = ENCODINGS[NEEDED]
VENV = Use("/srv/encodings", "0.32.0", "/opt/vllm/x/bin/python", "", "", ("chat", "chat-2"))
IMAGE = Use("/srv/encodings", "0.23.0", "", "quay.io/ascend/vllm-ascend:v0.23.0", "root", ("chat",))
RIGHT = FoundFile("/srv/encodings/o200k_base.tiktoken", SIZE, SHA256)


def plan(env="/srv/encodings", venv="/opt/vllm/x", image=None, user="vllm", release="0.32.0"):
    return {
        "env": {"TIKTOKEN_ENCODINGS_BASE": env} if env else {},
        "release": release,
        "venv": None if image else {"path": venv},
        "container": {"image": image, "user": user} if image else None,
    }


def test_instances_with_one_library_are_one_use():
    plans = {
        "chat": plan(),
        "chat-2": plan(),
        "other": plan(venv="/opt/vllm/y"),
        "elsewhere": plan(env="/srv/other"),
        "image": plan(image="quay.io/a/b:v1", user="root"),
        "without": plan(env=None),
    }
    found = list_uses(plans)
    assert [(use["directory"], use["python"], use["image"], use["user"], use["instances"]) for use in found] == [
        ("/srv/encodings", "/opt/vllm/x/bin/python", "", "", ["chat", "chat-2"]),
        ("/srv/encodings", "/opt/vllm/y/bin/python", "", "", ["other"]),
        ("/srv/other", "/opt/vllm/x/bin/python", "", "", ["elsewhere"]),
        ("/srv/encodings", "", "quay.io/a/b:v1", "root", ["image"]),
    ]
    assert json.loads(json.dumps(found)) == found


def test_plans_that_read_no_encodings_are_no_use():
    assert list_uses({"chat": plan(env=None), "removed": plan(env="")}) == []


def test_container_has_no_network_and_no_privilege():
    words = container_command(IMAGE, "/usr/bin/podman", "0:0")
    assert words[:3] == ["/usr/bin/podman", "run", "--rm"]
    for option, value in (
        ("--network", "none"),
        ("--pull", "never"),
        ("--cap-drop", "ALL"),
        ("--user", "0:0"),
        ("--env", "TIKTOKEN_ENCODINGS_BASE=/srv/encodings"),
        ("--mount", "type=bind,source=/srv/encodings,target=/srv/encodings,readonly"),
        ("--entrypoint", "sh"),
    ):
        assert words[words.index(option) + 1] == value
    assert words[-5:] == ["quay.io/ascend/vllm-ascend:v0.23.0", "-c", QUESTION_IN_IMAGE, "ask", QUESTION]


@pytest.mark.parametrize("first", ["#!/usr/bin/env python3", "#! {python}", "#!/bin/sh", ""])
def test_question_is_asked_of_the_python_that_vllm_runs_in(tmp_path, first):
    (tmp_path / "vllm").write_text(f"{first.format(python=sys.executable)}\nnothing\n")
    (tmp_path / "vllm").chmod(0o755)
    words = ["sh", "-c", QUESTION_IN_IMAGE, "ask", "import sys; print(sys.executable)"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={"PATH": path})
    assert (done.stdout.strip() == sys.executable) == ("{" in first or shutil.which("python3") == sys.executable)


def test_question_says_when_there_is_no_library():
    done = subprocess.run([sys.executable, "-I", "-c", QUESTION], check=True, capture_output=True, text=True)
    assert "openai_harmony" in parse_answer(done.stdout)["missing"]


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("", {}),
        ("Traceback\nboom\n", {}),
        ("[1]\n", {}),
        ('a banner of the image\n{"library": "oss-harmony 0.0.11"}\n', {"library": "oss-harmony 0.0.11"}),
    ],
)
def test_answer_is_the_last_line(output, answer):
    assert parse_answer(output) == answer


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (FoundFile(RIGHT.path, -1, ""), f"the file is missing, expected {SIZE} bytes; run the role encodings"),
        (FoundFile(RIGHT.path, 7, "ab"), f"found 7 bytes, expected {SIZE}; run the role encodings on this host"),
        (FoundFile(RIGHT.path, SIZE, "ab"), f"found sha256 ab, expected {SHA256}; run the role encodings on this host"),
        (RIGHT, "it said: Permission denied (os error 13); the content is correct, so check that vllm may"),
    ],
)
def test_refusal_names_file_release_reason_and_what_to_do(found, reason):
    answer = {"library": "oss-harmony 0.0.11", "refused": "Permission denied (os error 13)"}
    text = describe_refusal(VENV, answer, found, "vllm")
    start = "/srv/encodings/o200k_base.tiktoken: oss-harmony 0.0.11 of release 0.32.0 (/opt/vllm/x/bin/python) does not"
    assert text.startswith(start)
    assert reason in text
    assert text.endswith("; nothing was restarted, and chat, chat-2 would not start")
    assert "\n" not in text


def test_library_that_is_not_there_is_named():
    text = describe_no_answer(IMAGE, {"missing": "No module named 'openai_harmony'"}, "noise")
    assert text.startswith("quay.io/ascend/vllm-ascend:v0.23.0: its Harmony library could not be asked")
    assert "No module named 'openai_harmony'; gpt-oss needs that library, so check the release 0.23.0" in text
    assert "exit status 126" in describe_no_answer(IMAGE, {}, "exit status 126")
