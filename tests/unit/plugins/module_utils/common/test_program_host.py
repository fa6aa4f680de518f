# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import sys
import time
import types

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.program_host import SETTLED, Program


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A program with one module of the collection."""
    for name in ("door.py", "module.py"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (5, 5))
    module = types.ModuleType("ansible_collections.planted")
    module.__file__ = str(tmp_path / "module.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "door.py")])
    return tmp_path


@pytest.mark.parametrize("name", ["door.py", "module.py"])
def test_a_change_of_any_file_counts_when_the_files_have_settled(files, name):
    program = Program()
    assert not program.replaced()
    os.utime(files / name)
    assert not program.replaced(), "others may follow"
    os.utime(files / name, (time.time() - SETTLED - 1,) * 2)
    assert program.replaced()


def test_a_file_that_is_missing_is_a_change_too(files):
    program = Program()
    (files / "module.py").unlink()
    time.sleep(0.01)
    assert program._read() != program._times
