# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import start_phases_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.start_phases_host import read_starts

SHOW = r"printf 'Id=vllm@chat.service\nInvocationID=abc\n\nId=vllm@embed-2.service\nInvocationID=\n'"
JOURNAL = """
case "$*" in *_SYSTEMD_INVOCATION_ID=abc" + INVOCATION_ID=abc _PID=1 _UID=0") ;; *) exit 1 ;; esac
echo '[    1.000000] systemd[1]: Starting vllm@chat.service - vLLM instance chat...'
echo '[    4.500000] vllm-chat[7]: Starting vLLM server on http://127.0.0.1:8000'
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Stand-ins that do what the test says."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(systemctl, journalctl):
        for name, script in (("systemctl", systemctl), ("journalctl", journalctl)):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

    return write


def test_every_instance_that_has_run(programs):
    programs(SHOW, JOURNAL)
    assert read_starts() == {"chat": {"ready": False, "seconds": 3.5, "phases": [["API server", 3.5]]}}


def test_an_endless_journal_is_cut(programs, monkeypatch):
    monkeypatch.setattr(start_phases_host, "MAX_BYTES", 4096)
    programs(SHOW, f"{JOURNAL}\nexec yes '[    9.000000] vllm-chat[7]: Warm-up ended'")
    assert read_starts()["chat"]["phases"] == [["API server", 3.5], ["warm-up", 4.5]]


@pytest.mark.parametrize("script", ["exit 1", "exec sleep 60"])
def test_systemd_that_does_not_answer_is_an_error(programs, monkeypatch, script):
    monkeypatch.setattr(start_phases_host, "_TIMEOUT", 0.2)
    programs(script, JOURNAL)
    with pytest.raises(OSError, match="systemd does not answer"):
        read_starts()
