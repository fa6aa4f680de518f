# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference` on a host that serves: what a person does in the first hour."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from serving_host import INVENTORIES, KEY, TOP


def inference(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "bin/inference", *words, *INVENTORIES]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert KEY not in done.stdout + done.stderr
    return done


def test_a_chat_is_answered(serving):
    done = inference("chat", "cpu-12", "chat", "Is the fleet ready?")
    assert (done.returncode, done.stdout) == (0, "cpu-12 chat: The fleet is ready.\n"), done.stderr


def test_an_instance_that_is_not_there_is_one_sentence(serving):
    done = inference("chat", "cpu-12", "gone", "Is the fleet ready?")
    assert done.returncode
    assert done.stderr.startswith("cpu-12 gone: instance gone is not installed on this host")
    assert len(done.stderr.splitlines()) == 1


def test_the_journal_is_shown(serving):
    done = inference("logs", "cpu-12", "chat", "-n", "2000")
    assert done.returncode == 0, done.stderr
    assert "Application startup complete" in done.stdout


def test_every_instance_is_verified(serving):
    done = inference("verify", "cpu-12", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (0, True), done.stdout
    assert {"models", "chat"} <= {check["name"] for check in document["checks"]}


def test_check_and_status_report_the_host(serving):
    checked = json.loads(inference("check", "cpu-12", "--json").stdout)
    assert (checked["ok"], checked["hosts"]["cpu-12"]["changed"]) == (True, 0)
    shown = json.loads(inference("status", "cpu-12", "--json").stdout)
    # There is no gateway to ask.
    assert shown["ok"] and "1 host" in shown["text"] and "1 of 1 answer" in shown["text"], shown


def test_status_has_what_the_host_has_installed_and_how_it_started(serving):
    done = inference("status", "cpu-12", "--versions", "--starts", "--faults", "--json")
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["ok"]) == (0, True), done.stdout
    assert re.search(r"^cpu-12, chat: started in [\d.]+ s: ", shown["text"], re.MULTILINE), shown["text"]
    # Its health service, if it has one, has found nothing.
    assert shown["faults"] == []


def invocation(host) -> str:
    return host.run("systemctl show --property=InvocationID vllm@chat").stdout


def test_a_removal_is_shown_and_not_done(serving):
    before = invocation(serving)
    shown = json.loads(inference("remove", "cpu-12", "--instance", "chat", "--check", "--json").stdout)
    assert shown["ok"] and shown["hosts"]["cpu-12"]["changed"], shown
    assert "vllm@chat.service" in json.dumps(shown), shown
    assert invocation(serving) == before


@pytest.mark.long
def test_a_rollout_has_nothing_to_do(serving):
    before = invocation(serving)
    shown = json.loads(inference("rollout", "cpu-12", "--check", "--json").stdout)
    assert shown["ok"] and not any(each["changed"] for each in shown["hosts"].values()), shown
    assert invocation(serving) == before


def test_the_rendered_files_are_those_of_the_host(serving, tmp_path):
    done = inference("render", "cpu-12", "--directory", str(tmp_path), "--json")
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True), done.stdout
    (rendered,) = tmp_path.rglob("chat.yaml")
    assert rendered.read_text() == serving.file("/etc/vllm/chat.yaml").content_string
