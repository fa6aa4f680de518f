# SPDX-License-Identifier: GPL-3.0-or-later
"""The burn-in program, with a torch that is a stand-in, and with the real one where BURN_IN_PYTHON names its Python."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.acceptance import burn_in_program_host, readings

PROGRAM = inspect.getsource(burn_in_program_host)
SHORT = {"seconds": 2, "size": 128, "copy_bytes": 4 << 20}
REAL = os.environ.get("BURN_IN_PYTHON", "")


def run(options, python=sys.executable, **environment):
    """Run the program as the module does: from its standard input."""
    return subprocess.run(
        [python, "-", json.dumps(options)],
        input=PROGRAM,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def parsed(done):
    return readings.parse_burn_in(done.stdout, done.stderr, done.returncode, False, 60)


@pytest.fixture
def torch(tmp_path):
    """Return a function that puts a module named torch on the path of a program."""

    def write(text):
        (tmp_path / "torch.py").write_text(text)
        return {"PYTHONPATH": str(tmp_path)}

    return write


def test_statuses_are_those_that_the_module_knows():
    for name in ("OK", "NO_TORCH", "NO_CHIP", "HUNG", "OUT_OF_MEMORY"):
        assert getattr(burn_in_program_host, name) == getattr(readings, name)


def test_without_torch(torch):
    done = run(SHORT, **torch("raise ImportError(\"No module named 'torch'\")"))
    assert done.returncode == readings.NO_TORCH
    assert parsed(done).problem == f"the burn-in failed: {sys.executable} cannot import torch: No module named 'torch'"


def test_a_torch_without_the_driver_it_needs(torch):
    done = run(SHORT, **torch("raise OSError('libcuda.so.1: cannot open shared object file')"))
    assert "libcuda.so.1: cannot open shared object file" in parsed(done).problem


NO_CHIPS = """
__version__ = "2.11.0+cu130"
class cuda:
    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
"""


def test_torch_that_sees_no_chip(torch):
    done = run({**SHORT, "stack": "cuda"}, **torch(NO_CHIPS))
    assert done.returncode == readings.NO_CHIP
    assert parsed(done).problem == "the burn-in failed: torch 2.11.0+cu130 sees no chip"


HANGS = """
import time
__version__ = "2"
class cuda: pass
def no_grad(): time.sleep(1000)
"""


def test_a_call_that_hangs_is_ended_by_the_program_itself(torch):
    done = run({**SHORT, "deadline": 1.0}, **torch(HANGS))
    assert done.returncode == readings.HUNG
    assert parsed(done).problem == "the burn-in did not end within 60 s and was killed during matrix products"


STARTS = """
import subprocess, sys, time
process = subprocess.Popen([sys.executable, "-", '{"deadline": 900}'], stdin=subprocess.PIPE, start_new_session=True)
process.stdin.write(open(sys.argv[1], "rb").read())
process.stdin.close()
print(process.pid, flush=True)
time.sleep(1000)
"""


def test_a_program_whose_module_was_killed_ends_too(torch):
    module = subprocess.Popen(
        [sys.executable, "-c", STARTS, burn_in_program_host.__file__],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **torch(HANGS)},
    )
    status = Path(f"/proc/{module.stdout.readline().strip()}/stat")
    # It works once it has begun its first phase.
    assert '"begins"' in [module.stdout.readline(), module.stdout.readline()][1]
    assert status.exists()
    module.kill()
    module.communicate()
    for _attempt in range(3000):
        if not status.exists() or ") Z" in status.read_text():
            return
        time.sleep(0.1)
    pytest.fail("the program still runs")


FAILS = """
__version__ = "2"
class cuda: pass
def no_grad(): raise RuntimeError("CUDA error: uncorrectable ECC error encountered\\nCUDA kernel errors might be")
"""


def test_an_error_of_a_chip_is_one_line(torch):
    done = run(SHORT, **torch(FAILS))
    assert done.returncode == 1
    problem = "the burn-in failed during matrix products: CUDA error: uncorrectable ECC error encountered"
    assert parsed(done).problem == problem


@pytest.mark.skipif(not REAL, reason="BURN_IN_PYTHON names no Python with torch")
def test_the_real_torch_on_a_processor():
    done = run(SHORT, REAL, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    measured = parsed(done).measured
    (products,) = measured["products"]
    assert products["size"] == 128 and products["wrong"] == 0
    assert 0 < products["lowest"] <= products["median"] <= products["highest"]
    (copied,) = measured["copy"]
    assert (copied["bytes"], copied["wrong"]) == (4 << 20, 0)
    assert "peer" not in measured


TWO_CHIPS = """
import json, runpy, sys
import torch
program = runpy.run_path(sys.argv[1])
class Chips:
    synchronize = empty_cache = staticmethod(lambda *chips: None)
    get_device_name = staticmethod(lambda chip: f"chip {chip}")
    get_device_properties = staticmethod(lambda chip: type("About", (), dict(
        pci_domain_id=0, pci_bus_id=0x1b + chip, pci_device_id=0)))
    mem_get_info = staticmethod(lambda chip: (10 << 20, 20 << 20))
    can_device_access_peer = staticmethod(lambda one, other: True)
class Two(program["Machine"]):
    def __init__(self, stack):
        self.torch, self.stack, self.api, self.kind, self.chips = torch, stack, Chips, "cuda", [0, 1]
    def device(self, chip):
        return "cpu"
program["burn_in"].__globals__.update(Machine=Two, PEER_BYTES=1 << 20)
program["burn_in"]({**program["DEFAULTS"], "seconds": 1.0, "size": 64})
"""


@pytest.mark.skipif(not REAL, reason="BURN_IN_PYTHON names no Python with torch")
def test_two_chips_that_are_processors():
    done = subprocess.run(
        [REAL, "-c", TWO_CHIPS, str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    measured = parsed(done).measured
    assert [row["address"] for row in measured["products"]] == ["0000:1b:00.0", "0000:1c:00.0"]
    assert [row["bytes"] for row in measured["copy"]] == [4 << 20, 4 << 20]
    assert [(row["from"], row["to"], row["direct"], row["wrong"]) for row in measured["peer"]] == [
        (0, 1, True, 0), (1, 0, True, 0),
    ]  # fmt: skip
