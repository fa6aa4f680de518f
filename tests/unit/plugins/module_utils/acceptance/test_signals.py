# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that is ended in the middle: its program ends, and nothing remains on the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.wheelhouse import ROOT

UTILS = "ansible_collections.baremetal.inference.plugins.module_utils.acceptance"
BURN_IN = f"""
import sys
from {UTILS}.burn_in_host import Limits, run_burn_in
from {UTILS}.signals import exit_on_signals
exit_on_signals()
program = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(1000)"
run_burn_in([sys.executable, "-", sys.argv[1]], program, Limits(900, 900), lambda: None, lambda: None)
"""
STORAGE = f"""
import os, sys, time
from {UTILS} import storage_host
from {UTILS}.signals import exit_on_signals
def read(path, seconds, made):
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(1000)
exit_on_signals()
storage_host._read = read
storage_host.measure_reads(os.environ["TMPDIR"], 900, 1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("program", [BURN_IN, STORAGE], ids=["burn_in", "storage"])
def test_a_module_that_is_ended_leaves_nothing(tmp_path, program, number):
    works, temporary = tmp_path / "pid", tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".collections"), "TMPDIR": str(temporary)}
    module = subprocess.Popen([sys.executable, "-c", program, str(works)], env=environment)
    _wait(lambda: works.exists() and works.read_text())
    assert len(list(temporary.iterdir())) == 1
    module.send_signal(number)
    assert module.wait(timeout=300) == 128 + number
    assert list(temporary.iterdir()) == []
    _wait(lambda: _ended(works.read_text()))


def _ended(pid):
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or ") Z" in status.read_text()


def _wait(condition):
    for _attempt in range(3000):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("not within 300 s")
