# SPDX-License-Identifier: GPL-3.0-or-later
"""How the program of an all-reduce is run, with small programs."""

from __future__ import annotations

import json
import sys
import time
import tracemalloc

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm import all_reduce_host
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.all_reduce_host import Command, run_all_reduce

OPTIONS = {"stack": "cpu", "hosts": ["a", "b"], "rank": 0, "head": "127.0.0.1", "port": 29501, "seconds": 2}


def run(program, *, options=None, seconds=2, **environment):
    command = Command([sys.executable, "-"], environment)
    return run_all_reduce(command, program, json.dumps(options or OPTIONS), seconds)


def test_a_program_that_does_not_end_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(all_reduce_host, "GRACE", 0.2)
    stopped = tmp_path / "stopped"
    command = Command([sys.executable, "-"], {}, stop=["touch", str(stopped)])
    found = run_all_reduce(command, "import time\ntime.sleep(60)\n", "{}", 0.3)
    assert found["problem"] == "it did not end within 0.5 s"
    assert stopped.exists()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_flood_of_output_fills_no_memory_and_hides_no_result(stream):
    """A log at its highest level, or a torch in the environment of an image, may print for ever."""
    flood = f"import sys\nfor number in range(100): sys.{stream}.write('x' * (1 << 20))\n"
    result = 'print(\'\\n\' + \'{"event": "result", "gb_per_s": 40.0, "chips": 2}\')\n'
    tracemalloc.start()
    try:
        found = run(flood + result, seconds=100)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found["problem"], found["gb_per_s"]) == ("", 40.0)
    assert peak < 80 << 20


def test_a_stop_that_hangs_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(all_reduce_host, "GRACE", 0.2)
    command = Command([sys.executable, "-"], {}, stop=["sleep", "30"])
    began = time.monotonic()
    assert run_all_reduce(command, "import time\ntime.sleep(60)\n", "{}", 0.3)["problem"]
    assert time.monotonic() - began < 20


def test_nothing_of_this_process_is_in_its_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    program = "import json, os\nprint(json.dumps({'event': 'failed', 'what': ' '.join(sorted(os.environ))}))\n"
    names = set(run(program, VLLM_HOST_IP="10.0.0.1")["problem"].split())
    assert names - {"LC_CTYPE"} == {"HOME", "LC_ALL", "PATH", "TMPDIR", "VLLM_HOST_IP"}


def test_a_user_that_does_not_exist(monkeypatch):
    monkeypatch.setattr(all_reduce_host.os, "geteuid", lambda: 0)
    with pytest.raises(KeyError):
        run_all_reduce(Command([sys.executable, "-"], {}, "nobody-at-all"), "", "{}", 1)
