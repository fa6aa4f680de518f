# SPDX-License-Identifier: GPL-3.0-or-later
"""What the health service reads of instances and tells them: vLLM's user owns the directory of the marks."""

from __future__ import annotations

import os
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health import instances_host
from ansible_collections.baremetal.inference.plugins.module_utils.health.instances_host import Instances
from ansible_collections.baremetal.inference.plugins.module_utils.instance.api_host import Answer
from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd import Unit


@pytest.fixture
def instances(tmp_path):
    for name in ("etc", "run/chat"):
        (tmp_path / name).mkdir(parents=True)
    return Instances(str(tmp_path / "etc"), str(tmp_path / "run"), str(tmp_path / "stopped"))


def test_an_instance_that_gateways_have_stopped_is_down_on_purpose(instances, tmp_path):
    assert not instances.scaled_down("chat", Unit())
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped/chat").touch()
    assert instances.scaled_down("chat", Unit())
    # Its next start failed, or it serves and the door has not noticed yet.
    assert not instances.scaled_down("chat", Unit("failed"))
    assert not instances.scaled_down("chat", Unit("active"))


def huge(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


ODD = {
    "link": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to(path.parent.parent / "nologin"),
    "FIFO": os.mkfifo,
    "directory": os.mkdir,
    "huge": huge,
}


@pytest.mark.parametrize("mark", ["ready", "unhealthy"])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_nothing_in_the_place_of_a_mark_stops_the_service(instances, tmp_path, odd, mark):
    odd(tmp_path / "run/chat" / mark)
    began = time.monotonic()
    instances.ready("chat")
    assert instances.warmup_seconds("chat") is None
    for reason in ("isolate_host the chip is gone", ""):
        problem = instances.tell("chat", reason)
        assert not problem or problem.startswith(f"{tmp_path}/run/chat/unhealthy: cannot be written: ")
    assert time.monotonic() - began < 20
    assert not (tmp_path / "run/nologin").exists()


def test_gateways_hear_why_an_instance_is_sick_until_it_is_well(instances, tmp_path):
    mark = tmp_path / "run/chat/unhealthy"
    assert instances.tell("chat", "reset_chip memory\n") == ""
    assert mark.read_text() == "reset_chip memory?"
    before = mark.stat().st_ino
    instances.tell("chat", "reset_chip memory\n")
    assert mark.stat().st_ino == before, "not written again"
    instances.tell("chat", "")
    assert not mark.exists()
    assert instances.tell("gone", "reset_chip") == ""


@pytest.mark.parametrize("text", ["headless: true\nport: 8000\n", "{", "port: x\n", ""])
def test_an_instance_without_an_api_proves_nothing(instances, tmp_path, text):
    (tmp_path / "etc/chat.yaml").write_text(text or "headless: on\n")
    assert instances.read_signs("chat") == (0, "")
    assert instances.token_problem("chat") == ""


MODELS = (200, b'{"data": [{"id": "m"}]}')


@pytest.mark.parametrize(
    ("models", "completion", "problem"),
    [
        (MODELS, 200, ""),
        # With a key of its own it refuses this service; it answers, and that must do.
        ((401, b"{}"), None, ""),
        ((403, b"{}"), None, "no token: KeyError"),
        ((404, b"Not Found"), None, "no token: JSONDecodeError"),
        (MODELS, 500, "the request for a token was answered with HTTP 500"),
        (MODELS, 401, "the request for a token was answered with HTTP 401"),
    ],
)
def test_a_proof_needs_a_token_of_every_instance_that_lets_this_service_ask(
    instances, tmp_path, monkeypatch, models, completion, problem
):
    (tmp_path / "etc/chat.yaml").write_text("port: 8000\n")
    answers = {"/v1/models": models, "/v1/completions": (completion, b"")}
    monkeypatch.setattr(
        instances_host, "ask", lambda _at, _method, path, *_more: Answer(answers[path][0], {}, answers[path][1])
    )
    assert instances.token_problem("chat") == problem


def test_the_warm_up_is_in_the_mark(instances, tmp_path):
    (tmp_path / "run/chat/ready").write_text("12.345\n")
    assert instances.ready("chat") and instances.warmup_seconds("chat") == 12.345
