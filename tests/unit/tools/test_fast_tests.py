# SPDX-License-Identifier: GPL-3.0-or-later
"""make fast runs each fast test once, and nothing that slow.txt names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tools.fast_tests import SLOW, TOP, UNIT, is_slow

TESTS = {
    "test_good.py": "import pytest\n@pytest.mark.parametrize('n', range(50))\ndef test_one(n, tmp_path): pass\n",
    "test_bad.py": "def test_two():\n    print('what it printed')\n    assert 1 == 2, 'the reason'\n",
    "test_left_out.py": "import pytest\ndef test_three(): pytest.skip('no such thing here')\n",
    "test_broken.py": "import pytest\n@pytest.fixture\ndef part(): raise OSError\ndef test_four(part): pass\n",
}


def run(directory, tests):
    for name, text in tests.items():
        (directory / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-ptools.fast_tests", f"--rootdir={directory}", str(directory)]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=300, check=False)


def test_each_test_is_run_once_and_reported_as_pytest_does(tmp_path):
    found = run(tmp_path, TESTS)
    assert "1 failed, 50 passed, 1 skipped, 1 error in" in found.stdout
    assert "what it printed" in found.stdout and "the reason" in found.stdout
    assert found.returncode == 1


def test_a_test_that_ends_its_process_is_a_failure(tmp_path):
    found = run(tmp_path, {"test_end.py": "import os\ndef test_five(): os._exit(0)\n"})
    assert "the process ended in the middle of test_end.py::test_five" in found.stdout
    assert found.returncode == 2


@pytest.mark.parametrize("name", SLOW)
def test_what_is_named_slow_is_there_and_left_out(name):
    """Remove a line of slow.txt whose files are gone."""
    folder, _slash, start = name.rpartition("/")
    named = [path for path in (UNIT / folder).iterdir() if path.name.startswith(start)]
    assert named and all(is_slow(path) for path in named)


def test_fuzzing_is_slow_and_most_is_not():
    files = list(UNIT.rglob("test_*.py"))
    assert is_slow(UNIT / "plugins/plugin_utils/redfish/test_survey_fuzz.py")
    assert len([path for path in files if not is_slow(path)]) > 300


def test_a_unit_test_that_hangs_fails(request):
    assert request.config.pluginmanager.hasplugin("timeout")
    assert request.node.get_closest_marker("timeout").args == (900,)
