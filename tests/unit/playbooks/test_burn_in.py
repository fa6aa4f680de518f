# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The burn-in program, with a torch that is a stand-in, and with the real one where BURN_IN_PYTHON names its Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.acceptance import readings

PROGRAM = Path(__file__).resolve().parents[3] / "playbooks/files/burn_in.py"
SHORT = {"seconds": 2, "size": 128, "copy_bytes": 4 << 20}
REAL = os.environ.get("BURN_IN_PYTHON", "")


def run(options, python=sys.executable, **environment):
    """Run the program as the module does: from its standard input."""
    return subprocess.run(
        [python, "-", json.dumps(options)],
        input=PROGRAM.read_text(),
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
    names = ("OK", "NO_TORCH", "NO_CHIP", "HUNG", "OUT_OF_MEMORY")
    line = next(line for line in PROGRAM.read_text().splitlines() if line.startswith("OK, "))
    assert line == f"{', '.join(names)} = {', '.join(str(getattr(readings, name)) for name in names)}"


def test_without_torch(torch):
    done = run(SHORT, **torch("raise ImportError(\"No module named 'torch'\")"))
    assert done.returncode == readings.NO_TORCH
    assert parsed(done).problem == f"the burn-in failed: no torch for {sys.executable}: No module named 'torch'"


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
    done = run(SHORT, REAL)
    assert done.returncode == 0, done.stderr
    measured = parsed(done).measured
    (products,) = measured["products"]
    assert products["size"] == 128 and products["wrong"] == 0
    assert 0 < products["lowest"] <= products["median"] <= products["highest"]
    (copied,) = measured["copy"]
    assert (copied["bytes"], copied["wrong"]) == (4 << 20, 0)
    assert "peer" not in measured
