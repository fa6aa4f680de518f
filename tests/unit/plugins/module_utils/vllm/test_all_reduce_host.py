# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of an all-reduce as the module runs it, with small programs and with a torch of the test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm import all_reduce_host
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.all_reduce_host import Command, run_all_reduce

PROGRAM = (Path(__file__).resolve().parents[5] / "roles/vllm/files/all_reduce.py").read_text()
OPTIONS = {"stack": "cpu", "hosts": ["a", "b"], "rank": 0, "head": "127.0.0.1", "port": 29501, "seconds": 2}
# A store without other processes: nobody else ever joins.
TORCH = """
import time
class TCPStore:
    def __init__(self, *args, **kwargs):
        self.known = {{}}
    def set(self, key, value):
        self.known[key] = value
    def add(self, key, number):
        return 1
    def wait(self, keys, timeout):
        {wait}
        if keys[0] not in self.known:
            raise RuntimeError("wait timeout")
"""


def run(program, *, options=None, seconds=2, **environment):
    command = Command([sys.executable, "-"], environment)
    return run_all_reduce(command, program, json.dumps(options or OPTIONS), seconds)


def torch(tmp_path, wait="pass"):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    (package / "distributed.py").write_text(TORCH.format(wait=wait))
    return str(tmp_path)


def test_a_python_without_torch():
    found = run(PROGRAM)
    assert found["problem"] == "no torch: No module named 'torch'"
    assert found["phase"] == "load"


def test_a_host_that_does_not_join(tmp_path):
    found = run(PROGRAM, PYTHONPATH=torch(tmp_path))
    assert (found["problem"], found["missing"], found["phase"]) == ("hosts did not join", ["b"], "join")


def test_a_hang_ends_by_itself(tmp_path):
    found = run(PROGRAM, PYTHONPATH=torch(tmp_path, wait="time.sleep(60)"))
    assert found["problem"] == "it hung for 2 s"


def test_a_program_that_does_not_end_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(all_reduce_host, "GRACE", 0.2)
    stopped = tmp_path / "stopped"
    command = Command([sys.executable, "-"], {}, stop=["touch", str(stopped)])
    found = run_all_reduce(command, "import time\ntime.sleep(60)\n", "{}", 0.3)
    assert found["problem"] == "it did not end within 0.5 s"
    assert stopped.exists()


def test_nothing_of_this_process_is_in_its_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    program = "import json, os\nprint(json.dumps({'event': 'failed', 'what': ' '.join(sorted(os.environ))}))\n"
    names = set(run(program, VLLM_HOST_IP="10.0.0.1")["problem"].split())
    assert names - {"LC_CTYPE"} == {"HOME", "LC_ALL", "PATH", "TMPDIR", "VLLM_HOST_IP"}


def test_a_user_that_does_not_exist(monkeypatch):
    monkeypatch.setattr(all_reduce_host.os, "geteuid", lambda: 0)
    with pytest.raises(KeyError):
        run_all_reduce(Command([sys.executable, "-"], {}, "nobody-at-all"), "", "{}", 1)
