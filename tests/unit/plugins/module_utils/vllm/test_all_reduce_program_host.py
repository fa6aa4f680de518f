# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of an all-reduce, with a torch of the test."""

from __future__ import annotations

import inspect
import json
import sys

from ansible_collections.baremetal.inference.plugins.module_utils.vllm import all_reduce_program_host
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.all_reduce_host import Command, run_all_reduce

PROGRAM = inspect.getsource(all_reduce_program_host)
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


def run(**environment):
    return run_all_reduce(Command([sys.executable, "-"], environment), PROGRAM, json.dumps(OPTIONS), 2)


def torch(tmp_path, wait="pass"):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    (package / "distributed.py").write_text(TORCH.format(wait=wait))
    return str(tmp_path)


def test_a_python_without_torch():
    found = run()
    assert found["problem"] == "no torch: No module named 'torch'"
    assert found["phase"] == "load"


def test_a_host_that_does_not_join(tmp_path):
    found = run(PYTHONPATH=torch(tmp_path))
    assert (found["problem"], found["missing"], found["phase"]) == ("hosts did not join", ["b"], "join")


def test_a_hang_ends_by_itself(tmp_path):
    found = run(PYTHONPATH=torch(tmp_path, wait="time.sleep(60)"))
    assert found["problem"] == "it hung for 2 s"
