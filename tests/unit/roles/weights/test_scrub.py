# SPDX-License-Identifier: GPL-3.0-or-later
"""The program weights-scrub as a host runs it, from what the role installs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.fakes.programs import installed
from tests.fakes.weights_store import A, B, publish


@pytest.fixture
def program(tmp_path):
    return installed("weights-scrub", tmp_path / "lib")


@pytest.fixture
def root(tmp_path):
    for revision in (A, B):
        publish(tmp_path / "models", revision)
    return tmp_path / "models"


@pytest.mark.slow
def test_stopped_it_goes_on_with_the_rest(program, root, tmp_path):
    big = {f"{number}.bin": bytes([number]) * 3_000_000 for number in range(8)}
    publish(root, "c" * 40, big)
    report = tmp_path / "report.json"
    command = [sys.executable, str(program), "--root", str(root), "--report", str(report)]
    with subprocess.Popen([*command, "--bandwidth", "40"], stdout=subprocess.PIPE, text=True) as process:
        until(lambda: report.exists() and len(json.loads(report.read_text())["checked"]) > 6)
        process.send_signal(signal.SIGTERM)
        out, _err = process.communicate(timeout=300)
    first = json.loads(report.read_text())
    assert process.returncode == 0
    assert out.startswith("stopped after ")
    assert first["finished"] is None
    assert 6 < len(first["checked"]) < 14
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "read 14 files" in done.stdout
    assert len(json.loads(report.read_text())["checked"]) == 14


def test_killed_it_leaves_a_whole_report(program, root, tmp_path):
    report = tmp_path / "report.json"
    publish(root, "c" * 40, {f"{number}.bin": bytes([number]) * 3_000_000 for number in range(8)})
    command = [sys.executable, str(program), "--root", str(root), "--report", str(report), "--bandwidth", "40"]
    with subprocess.Popen(command) as process:
        until(report.exists)
        process.kill()
    assert json.loads(report.read_text())["version"] == 1


def until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
