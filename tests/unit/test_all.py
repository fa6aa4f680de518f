# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/all.sh (make test): every part runs, and a part that fails makes it fail, also one that runs beside others."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# A make that says what it runs, and fails where FAILS names the target.
MAKE = """#!/bin/bash
for target; do [[ $target == --* ]] || echo "ran $target" >>"$LOG"; done
[[ $target == integration ]] && echo 'summary of pytest'
[[ $target != "$FAILS" ]]
"""
PARTS = {"lint", "types", "molecule", "hostile", "integration", "sanity", "parity", "unit"}


def run(directory, fails=""):
    """Return the result of the script in a directory whose make, lab and mirror are stubs, and the parts that ran."""
    nothing = "#!/bin/sh\n"
    texts = {"make": MAKE, "tools/lab/content.sh": f'{nothing}[ "$FAILS" != lab ]\n', "bin/lab": nothing}
    texts["tests/haproxy13.sh"] = nothing
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    shutil.copy(TOP / "tests/all.sh", directory / "tests")
    log = directory / "log"
    environ = {**os.environ, "MAKE": str(directory / "make"), "FAILS": fails, "LOG": str(log)}
    done = subprocess.run([directory / "tests/all.sh"], env=environ, capture_output=True, text=True, check=False)
    return done, {line.split()[1] for line in log.read_text(encoding="utf-8").splitlines()}


def test_every_part_runs_and_the_summary_of_the_integration_tests_is_the_last_line(tmp_path):
    done, ran = run(tmp_path)
    assert (done.returncode, ran) == (0, PARTS), done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "summary of pytest"


@pytest.mark.parametrize("part", sorted(PARTS - {"lint"}))
def test_a_part_that_fails_makes_the_whole_fail(tmp_path, part):
    done, ran = run(tmp_path, part)
    assert done.returncode != 0 and part in ran


def test_nothing_runs_on_hosts_that_the_lab_could_not_make(tmp_path):
    done, ran = run(tmp_path, "lab")
    assert done.returncode != 0 and ran == {"lint", "types"}


def test_the_next_part_is_not_begun_after_one_beside_it_has_failed(tmp_path):
    done, ran = run(tmp_path, "sanity")
    assert done.returncode != 0 and not ran & {"parity", "unit"}
