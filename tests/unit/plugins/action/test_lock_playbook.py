# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/lock_release.yml against stand-ins for an ordinary index and for a vendor's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import parse_lock

from tests.fakes.wheelhouse import ROOT, make_wheel, run_module, served

BIN = Path(sys.executable).parent
UV = shutil.which("uv", path=f"{BIN}:{os.environ['PATH']}")
TAG = "cp312-cp312-manylinux_2_28_x86_64"
NAME = "0.33.0-rocm-cp312-x86_64"


def lock(dest, *arguments, **options):
    given = {"lock_release": "0.33.0", "lock_stack": "rocm", "lock_python": "3.12", "lock_dest": str(dest), **options}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_", "ANSIBLE_"))}
    environment.update(
        ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"),
        ANSIBLE_NOCOLOR="1",
        PATH=f"{BIN}:{os.environ['PATH']}",
        PIP_CONFIG_FILE=os.devnull,
        UV_NO_CONFIG="1",
    )
    command = [BIN / "ansible-playbook", "playbooks/lock_release.yml", "-e", json.dumps(given), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(UV is None, reason="needs uv on PATH")
@pytest.mark.long
def test_the_vendors_builds_go_before_those_of_the_ordinary_index(tmp_path):
    ordinary, vendor, dest = tmp_path / "ordinary", tmp_path / "vendor", tmp_path / "releases"
    make_wheel(ordinary / "wheels", "vllm", "0.33.0", tag=TAG)
    make_wheel(ordinary / "wheels", "torch", "2.12.0", tag=TAG)
    digests = {
        "uv": make_wheel(ordinary / "wheels", "uv", "0.13.8"),
        "regex": make_wheel(ordinary / "wheels", "regex", "2026.1", tag=TAG),
        "vllm": make_wheel(vendor / "wheels", "vllm", "0.33.0+rocm721", tag=TAG),
        "torch": make_wheel(vendor / "wheels", "torch", "2.11.0+rocm7.2", tag=TAG),
    }
    for root in (ordinary, vendor):
        assert run_module("wheel_index", root=str(root))["rc"] == 0
    with served(ordinary) as (index, _asked), served(vendor) as (wheels, _too):
        options = {
            "lock_index": f"{index}/simple/",
            "lock_indexes": [f"{wheels}/simple/"],
            "lock_requirements": ["vllm==0.33.0", "torch", "regex"],
        }
        done = lock(dest, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "changed=3" in done.stdout
        assert f'requirements: {{"3.12": {NAME}.txt}}' in done.stdout.replace('\\"', '"')
        text = (dest / f"requirements/{NAME}.txt").read_text()
        assert "changed=0" in lock(dest, **options).stdout
    found = parse_lock(text)
    assert {name: pin.version for name, pin in found.pins.items()} == {
        "regex": "2026.1", "torch": "2.11.0+rocm7.2", "uv": "0.13.8", "vllm": "0.33.0+rocm721",
    }  # fmt: skip
    assert {name: set(pin.hashes) for name, pin in found.pins.items()} == {name: {d} for name, d in digests.items()}
    assert (found.target.python, found.target.machine) == ("3.12", "x86_64")
    assert "127.0.0.1" not in text


def test_wrong_options_are_one_sentence(tmp_path):
    for name, value, expected in (
        ("lock_release", "latest", "a version of vLLM such as 0.33.0"),
        ("lock_stack", "tpu", "one of cuda, rocm, cann, cpu, xpu"),
        ("lock_python", "312", "a version of Python such as 3.12"),
    ):
        done = lock(tmp_path / "releases", **{name: value})
        assert done.returncode != 0
        assert f'{name}: found "{value}", expected {expected}' in done.stdout.replace('\\"', '"')
    assert not (tmp_path / "releases").exists()


def test_good_values_pass_in_check_mode(tmp_path):
    done = lock(tmp_path / "releases", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "releases").exists()
