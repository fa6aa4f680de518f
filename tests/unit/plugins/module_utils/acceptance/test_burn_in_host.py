# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that ends, hangs, is killed or cannot start."""

from __future__ import annotations

import json
import os
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.acceptance.burn_in_host import Limits, run_burn_in

REPORTS = """
import json, os, sys
def emit(**entry): print(json.dumps(entry), flush=True)
emit(event="result", phase="software", value={"home": os.environ["HOME"], "cwd": os.getcwd(), "said": sys.argv[1],
     "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "order": os.environ["CUDA_DEVICE_ORDER"]})
"""


class Calls:
    def __init__(self):
        self.samples, self.stops = 0, 0

    def sample(self):
        self.samples += 1

    def stop(self):
        self.stops += 1


def run(program, deadline=60.0, pause=5.0):
    calls = Calls()
    found = run_burn_in([sys.executable, "-", "{}"], program, Limits(deadline, pause), calls.sample, calls.stop)
    return found, calls


def test_a_program_in_a_directory_of_its_own_that_is_gone_afterwards(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    found, calls = run(REPORTS)
    about = found.measured["software"]
    assert (found.problem, about["said"], about["visible"], about["order"]) == ("", "{}", None, "PCI_BUS_ID")
    assert about["home"] == about["cwd"]
    assert not os.path.exists(about["home"])
    assert calls.stops == 0


def test_counters_are_read_meanwhile():
    begin = time.monotonic()
    found, calls = run(f"{REPORTS}\nimport time; time.sleep(1.2)", pause=0.2)
    assert found.problem == ""
    assert 2 <= calls.samples <= (time.monotonic() - begin) / 0.2


def test_a_program_that_hangs_is_killed_with_its_children_and_what_it_measured_is_kept():
    child = "import os, subprocess, sys, time\np = subprocess.Popen(['sleep', '1000'])\n"
    told = "emit(event='result', phase='products', value=p.pid)\nemit(event='begins', phase='copy')\ntime.sleep(1000)\n"
    begin = time.monotonic()
    found, calls = run(f"{REPORTS}{child}{told}", deadline=5.0, pause=0.5)
    assert time.monotonic() - begin < 60
    assert found.problem == "the burn-in did not end within 5 s and was killed during copies in memory"
    assert calls.stops == 1
    status = Path(f"/proc/{found.measured['products']}/stat")
    for _attempt in range(600):
        if not status.exists() or ") Z" in status.read_text():
            return
        time.sleep(0.1)
    pytest.fail("the child still runs")


def test_a_program_that_is_killed():
    found, _calls = run("import os; os.kill(os.getpid(), 9)")
    assert found.problem.startswith("the burn-in was killed (signal 9)")


def test_more_output_than_a_pipe_holds():
    value = json.dumps("x" * 300_000)
    found, _calls = run(f"{REPORTS}\nemit(event='result', phase='products', value={value})")
    assert len(found.measured["products"]) == 300_000


def test_a_flood_of_output_fills_no_memory_and_hides_no_result():
    flood = "for number in range(100): sys.stdout.write('x' * (1 << 20))\nprint()\n"
    tracemalloc.start()
    try:
        found, _calls = run(f"import sys\n{flood}{REPORTS}")
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.problem == "" and found.measured["software"]["said"] == "{}"
    assert peak < 80 << 20


def test_a_command_that_is_not_there(tmp_path):
    with pytest.raises(OSError):
        run_burn_in([str(tmp_path / "python"), "-"], "", Limits(5, 1), lambda: None, lambda: None)
