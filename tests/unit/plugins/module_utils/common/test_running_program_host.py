# SPDX-License-Identifier: GPL-3.0-or-later
"""Real programs: all output of a short one, both ends of a flood, and what one has printed that does not end."""

from __future__ import annotations

import sys
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import running_program_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.running_program_host import (
    KEPT,
    RunningProgram,
)


@pytest.fixture
def start():
    started = []

    def run(program):
        started.append(RunningProgram([sys.executable, "-"], program))
        return started[-1]

    yield run
    for program in started:
        program.kill()
        program.process.wait()


def test_all_of_a_short_output_is_kept(start):
    program = start("import sys; sys.stdout.buffer.write('ü'.encode()); sys.stderr.buffer.write(b'b\\xffd')")
    assert program.ends_within(60)
    assert program.texts(60) == ("ü", "b�d")


def test_of_a_flood_both_ends_are_kept_and_no_more(start):
    program = start(f"import sys; [sys.stdout.write('begin' + {20 * KEPT} * 'x' + 'end')]")
    assert program.ends_within(60)
    out, _err = program.texts(60)
    assert out.startswith("begin") and out.endswith("end")
    assert len(out) <= 4 * KEPT


def test_nobody_waits_for_a_program_that_does_not_end(start):
    program = start("import time; print('here', flush=True); time.sleep(1000)")
    assert not program.ends_within(0.1)
    began = time.monotonic()
    while program.texts(0.1)[0] != "here\n":
        assert time.monotonic() - began < 60
    assert not program.ends_within(0.1)
    program.kill()
    assert program.ends_within(60) and program.process.returncode == -9


def test_a_line_that_was_cut_becomes_no_other_one(start, monkeypatch):
    monkeypatch.setattr(running_program_host, "KEPT", 10)
    program = start("print('aaaa' * 20 + '\\n' + 'bbbb')")
    assert program.ends_within(60)
    first, rest, last = program.texts(60)[0].splitlines()
    assert (first, set(rest), last) == ("a" * 10, {"a"}, "bbbb")


def test_a_text_that_nobody_reads_does_not_block(start):
    began = time.monotonic()
    assert start("import time\ntime.sleep(0.2)\nraise SystemExit\n" + "#" * 1_000_000).ends_within(60)
    assert time.monotonic() - began < 60


def test_nothing_runs_before_somebody_waits_for_it(start):
    """A module that is ended in between would leave it behind; an empty text ends it."""
    program = start("print('ran')")
    program.process.stdin.close()
    assert program.process.wait(60) == 0 and program.texts(60) == ("", "")


def test_a_command_that_is_not_there(tmp_path):
    with pytest.raises(OSError):
        RunningProgram([str(tmp_path / "python")], "")
