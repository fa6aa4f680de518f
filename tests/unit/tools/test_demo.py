# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person sees of a phase of the demo; molecule and `make demo` run the phases themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from tools import demo


def run(tmp_path, script):
    with (tmp_path / "demo.log").open("w") as log:
        demo.run("Do it", ("sh", "-c", script), log)
    return (tmp_path / "demo.log").read_text()


def test_a_phase_is_one_line_and_its_output_is_in_the_log(tmp_path, capsys):
    assert "one\ntwo\n" in run(tmp_path, "echo one; echo two >&2")
    assert re.fullmatch(r" +\d+\.\d s  Do it\n", capsys.readouterr().out)


def test_a_long_phase_shows_its_last_line_now_and_then(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "PLAIN_SECONDS", 0.05)
    run(tmp_path, "echo TASK [one] '*****'; sleep 1.5")
    assert re.search(r"(?m)^ +\d+\.\d s  Do it: TASK \[one\]", capsys.readouterr().out)


def test_a_phase_that_fails_shows_the_end_of_its_output_and_names_the_log(tmp_path, capsys):
    with pytest.raises(SystemExit, match=rf"ended with 3. The whole output is in {tmp_path}/demo.log"):
        run(tmp_path, "seq 1000; exit 3")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("Do it: FAILED")
    assert lines[1:] == [str(number) for number in range(981, 1001)]


def test_a_lab_that_cannot_be_removed_ends_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    (tmp_path / "demo.log").touch()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/lab").write_text("#!/bin/sh\nexit 125\n")
    (tmp_path / "bin/lab").chmod(0o755)
    with pytest.raises(SystemExit, match=r"^`bin/lab down --all` ended with 125; .* Run `make demo-down` again$"):
        demo.take_down()
    assert not (tmp_path / "demo.log").exists()


def test_without_root_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(demo.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(demo.sys, "argv", ["demo.py"])
    monkeypatch.setattr(demo, "TOP", tmp_path)
    with pytest.raises(SystemExit, match="needs root"):
        demo.main()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("given", "place"), [("", "checkout/.lab"), ("my lab", "my lab"), ("{}/own", "own")])
def test_the_mirrors_disk_is_filled_where_the_lab_looks_for_it(tmp_path, given, place):
    script = tmp_path / "checkout/tools/lab/content.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(demo.TOP / "tools/lab/content.sh", script)
    (tmp_path / "checkout/.venv/bin").mkdir(parents=True)
    for name in ("python", "ansible-playbook"):
        program = tmp_path / "checkout/.venv/bin" / name
        program.write_text('#!/bin/sh\necho "$@" >> "$SEEN"\n')
        program.chmod(0o755)
    seen = tmp_path / "seen"
    environment = {**os.environ, "LAB_HOME": given.format(tmp_path), "SEEN": str(seen)}
    subprocess.run([script], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / place / "mirror").is_dir()
    assert f"bundle_dir: '{tmp_path / place}/mirror'" in seen.read_text()
    assert f"{tmp_path / place}/made/manifests" in seen.read_text()
