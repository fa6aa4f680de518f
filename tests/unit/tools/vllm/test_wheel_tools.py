# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.wheelhouse import ROOT, make_wheel

TARGET = "# target: cp311-x86_64\n"
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.fixture
def source(tmp_path):
    """A directory that pip is told to find wheels in, and nothing else."""
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


def run(tool, source, *arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    environment.update(
        PIP_CONFIG_FILE=os.devnull, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(source), UV_NO_CONFIG="1", UV_NO_INDEX="1"
    )
    command = [sys.executable, str(ROOT / "tools" / "vllm" / tool), *map(str, arguments)]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True)


def write_lock(tmp_path, *pins):
    lock = tmp_path / "x-cp311-x86_64.txt"
    lock.write_text(TARGET + "".join(f"{name} --hash=sha256:{digest}\n" for name, digest in pins))
    return lock


def names(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_fetch_wheels_fetches_checks_and_is_then_up_to_date(tmp_path, source):
    lock = write_lock(
        tmp_path,
        ("Foo.Bar==1.0", make_wheel(source, "foo_bar", "1.0")),
        ("other==2", make_wheel(source, "other", "2", tag="cp311-cp311-manylinux_2_28_x86_64")),
    )
    make_wheel(source, "unwanted", "1.0")
    first = run("fetch_wheels.py", source, lock, tmp_path / "mirror")
    assert first.returncode == 0, first.stderr
    assert "0 of 2 wheels" in first.stdout
    assert "[  2/2] other-2-cp311-cp311-manylinux_2_28_x86_64.whl" in first.stdout
    wheels = tmp_path / "mirror/wheels"
    assert names(wheels) == ["foo_bar-1.0-py3-none-any.whl", "other-2-cp311-cp311-manylinux_2_28_x86_64.whl"]
    shutil.rmtree(source)
    again = run("fetch_wheels.py", source, lock, tmp_path / "mirror")
    assert again.stdout == f"{wheels}: up to date, 2 wheels of {lock.name}\n"


def test_fetch_wheels_goes_on_where_it_stopped_and_removes_nothing(tmp_path, source):
    wheels = tmp_path / "mirror/wheels"
    digest = make_wheel(wheels, "foo", "1.0")
    make_wheel(wheels, "carried", "1.0")
    (wheels / ".fetch-killed").mkdir()
    lock = write_lock(tmp_path, ("foo==1.0", digest), ("bar==1.0", make_wheel(source, "bar", "1.0")))
    result = run("fetch_wheels.py", source, lock, tmp_path / "mirror")
    assert "1 of 2 wheels" in result.stdout
    assert names(wheels) == ["bar-1.0-py3-none-any.whl", "carried-1.0-py3-none-any.whl", "foo-1.0-py3-none-any.whl"]
    assert not (wheels / ".fetch-killed").exists()


def test_fetch_wheels_notices_a_file_that_has_gone(tmp_path, source):
    lock = write_lock(tmp_path, ("foo==1.0", make_wheel(source, "foo", "1.0")))
    run("fetch_wheels.py", source, lock, tmp_path / "mirror")
    (tmp_path / "mirror/wheels/foo-1.0-py3-none-any.whl").unlink()
    assert "complete, 1 wheels" in run("fetch_wheels.py", source, lock, tmp_path / "mirror").stdout


def test_fetch_wheels_refuses_other_bytes(tmp_path, source):
    make_wheel(source, "foo", "1.0")
    result = run("fetch_wheels.py", source, write_lock(tmp_path, ("foo==1.0", "0" * 64)), tmp_path / "mirror")
    assert result.returncode == 1
    assert "pip could not fetch it; run again to continue" in result.stderr
    assert names(tmp_path / "mirror/wheels") == []


def test_fetch_wheels_needs_a_target(tmp_path, source):
    lock = tmp_path / "lock.txt"
    lock.write_text(f"foo==1.0 --hash=sha256:{'0' * 64}\n")
    result = run("fetch_wheels.py", source, lock, tmp_path / "mirror")
    assert result.returncode == 1
    assert "expected a line like '# target: cp311-x86_64'" in result.stderr


@pytest.mark.skipif(UV is None, reason="needs uv on PATH")
def test_lock_requirements_pins_the_one_wheel_of_the_target(tmp_path, source):
    make_wheel(source, "foo", "1.0")
    best = make_wheel(source, "foo", "1.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    make_wheel(source, "foo", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    make_wheel(source, "foo", "1.0", tag="cp311-cp311-manylinux_2_28_aarch64")
    wanted = tmp_path / "x-cp311-x86_64.in"
    wanted.write_text("foo\nbar\n# exclude: bar\n")
    result = run("lock_requirements.py", source, wanted, "--uv", UV)
    assert result.returncode == 0, result.stderr
    lock = wanted.with_suffix(".txt")
    assert lock.read_text().splitlines() == [
        "# target: cp311-x86_64",
        "# Made from x-cp311-x86_64.in by tools/vllm/lock_requirements.py; change that file, not this one.",
        "foo==1.0 \\",
        f"    --hash=sha256:{best}",
    ]
    assert "up to date" in run("lock_requirements.py", source, wanted, "--check", "--uv", UV).stdout
    wanted.write_text("foo==2.0\n")
    result = run("lock_requirements.py", source, wanted, "--uv", UV)
    assert result.returncode == 2
    assert "uv cannot resolve it" in result.stderr


def test_lock_requirements_wants_the_target_in_the_name(tmp_path, source):
    wanted = tmp_path / "x.in"
    wanted.write_text("foo\n")
    result = run("lock_requirements.py", source, wanted)
    assert result.returncode == 2
    assert "its name must end in the target" in result.stderr


@pytest.mark.skipif(UV is None, reason="needs uv on PATH")
@pytest.mark.long
def test_lock_requirements_makes_a_lock_for_each_target_of_a_line(tmp_path, source):
    digests = {
        python: make_wheel(source, "foo", "1.0", tag=f"{python}-{python}-manylinux_2_28_x86_64")
        for python in ("cp311", "cp312")
    }
    wanted = tmp_path / "1.0-cuda.in"
    wanted.write_text("# targets: cp311-x86_64 cp312-x86_64\nfoo\n")
    result = run("lock_requirements.py", source, wanted, "--uv", UV)
    assert result.returncode == 0, result.stderr
    for python, digest in digests.items():
        lines = (tmp_path / f"1.0-cuda-{python}-x86_64.txt").read_text().splitlines()
        assert lines[0] == f"# target: {python}-x86_64"
        assert lines[2:] == ["foo==1.0 \\", f"    --hash=sha256:{digest}"]
    (tmp_path / "1.0-cuda-cp312-x86_64.txt").write_text("old\n")
    checked = run("lock_requirements.py", source, wanted, "--check", "--uv", UV)
    assert checked.returncode == 1
    assert "cp311-x86_64.txt: up to date" in checked.stdout
    assert "cp312-x86_64.txt: differs" in checked.stdout


@pytest.mark.skipif(UV is None, reason="needs uv on PATH")
def test_lock_requirements_can_leave_out_the_directory_of_find_links(tmp_path, source):
    make_wheel(source, "foo", "1.0+cpu")
    wanted = tmp_path / "x-cp311-x86_64.in"
    wanted.write_text("foo\n# index only\n")
    result = run("lock_requirements.py", source, wanted, "--uv", UV)
    assert result.returncode == 2
    assert "uv cannot resolve it" in result.stderr
