# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health import last_faults_host
from ansible_collections.baremetal.inference.plugins.module_utils.health.last_faults_host import read_last_faults

JOURNAL = """
1795000200.123456 gpu-1 vllm-health[7]: chat is sick: xid 64 of 0000:5d:00.0: A bad row (isolate_host, back by hand)
1795000100.123456 gpu-1 vllm-health[7]: code-2 is sick: state health of 1: The chip is ill (restart_instance, x)
1795000000.123456 gpu-1 vllm-health[7]: chat is sick: xid 39: older (restart_instance, back by restart)
1795000000.123456 gpu-1 vllm-health[7]: chat stays out of service: the proof failed: it is sick: no token
-- Boot 0123 --
"""


def test_the_newest_fault_of_each_instance(program):
    program("journalctl", f"case \"$*\" in *--unit=vllm-health.service*) cat <<'END'{JOURNAL}END\n;; esac")
    assert read_last_faults() == {
        "chat": {"at": 1795000200, "fault": "xid 64 of 0000:5d:00.0: A bad row (isolate_host, back by hand)"},
        "code-2": {
            "at": 1795000100,
            "fault": "state health of 1: The chip is ill (restart_instance, x)",
        },
    }


def test_an_endless_journal_is_cut_and_a_host_without_the_service_has_none(program, monkeypatch):
    program("journalctl", "exit 1")
    assert read_last_faults() == {}
    monkeypatch.setattr(last_faults_host, "MAX_BYTES", 4096)
    program("journalctl", "exec yes '1795000000.5 gpu-1 vllm-health[7]: chat is sick: xid 39: x'")
    assert read_last_faults() == {"chat": {"at": 1795000000, "fault": "xid 39: x"}}


def test_a_host_without_a_journal_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        read_last_faults()
