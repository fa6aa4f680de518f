# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.fakes.programs import installed


def test_a_start_gives_up_before_systemd_does(tmp_path):
    """Without the service nobody can say that the chips are free."""
    reset = tmp_path / "reset"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >{reset}\n')
    (tmp_path / "systemctl").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    began = time.monotonic()
    command = [
        sys.executable,
        str(installed("vllm-residents", tmp_path / "lib")),
        "acquire",
        "nothing-here",
        "chat",
        "1.5",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    # The bound is for a hang; a busy machine may take ten times as long as a quiet one.
    assert done.returncode == 1 and 1 < time.monotonic() - began < 60
    assert "did not become free in 2 s" in done.stderr and "journalctl -u vllm-residents@nothing-here" in done.stderr
    # The limit of starts does not count it.
    assert reset.read_text() == "reset-failed vllm@chat.service\n"


@pytest.mark.parametrize("words", [[], ["serve"], ["acquire", "a", "b"], ["other", "a"]])
def test_other_words_get_the_usage(tmp_path, words):
    command = [sys.executable, str(installed("vllm-residents", tmp_path)), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "vllm-residents.py serve GROUP PATIENCE" in done.stderr
