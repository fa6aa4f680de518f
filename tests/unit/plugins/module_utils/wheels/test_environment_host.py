# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual environment against its lock and the records of its packages."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.environment_host import (
    find_damage,
    mark_verified,
    set_aside,
)
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import Pin

PINS = [Pin("big-torch", "2.9.1+cpu", frozenset()), Pin("tiny", "1.0", frozenset())]


def add(packages, name, version, files):
    info = packages / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    rows = []
    for place, content in files.items():
        path = packages / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f'"{place}",sha256={digest},{len(content)}')
    rows += [f"{info.name}/RECORD,,", "tiny/__pycache__/x.cpython-311.pyc,,"]
    (info / "RECORD").write_text("\r\n".join(rows) + "\r\n")


@pytest.fixture
def env(tmp_path):
    path = tmp_path / "0.32.0-cpu-0123456789ab"
    packages = path / "lib/python3.11/site-packages"
    (path / "bin").mkdir(parents=True)
    torch = {"torch/__init__.py": b"one", "shared/__init__.py": b"", "../../../bin/torch": b"#!"}
    add(packages, "big_torch", "2.9.1+cpu", torch)
    add(packages, "tiny", "1.0", {"tiny/__init__.py": b"two", "shared/__init__.py": b"other"})
    (path / "bin/python").write_text("")
    (path / "bin/python").chmod(0o755)
    return path


def packages_of(env):
    return env / "lib/python3.11/site-packages"


def test_a_complete_environment_has_no_damage(env):
    assert find_damage(str(env), PINS) == []
    mark_verified(str(env), PINS)
    assert find_damage(str(env), PINS) == []


def test_a_marker_may_exclude_a_package(env):
    assert find_damage(str(env), [*PINS, Pin("winonly", "1", frozenset(), "sys_platform == 'win32'")]) == []


@pytest.mark.parametrize(("damage", "expected"), [
    (lambda env: shutil.rmtree(packages_of(env) / "tiny"), "lib/python3.11/site-packages/tiny/__init__.py is missing"),
    (lambda env: shutil.rmtree(packages_of(env) / "tiny-1.0.dist-info"), "the package tiny is missing"),
    (lambda env: (packages_of(env) / "tiny-1.0.dist-info/RECORD").unlink(), "tiny has no record of its files"),
    (lambda env: (packages_of(env) / "torch/__init__.py").write_text("four"),
     "lib/python3.11/site-packages/torch/__init__.py has 4 bytes, expected 3"),
    (lambda env: (packages_of(env) / "tiny-1.0.dist-info").rename(packages_of(env) / "tiny-2.0.dist-info"),
     "the package tiny has version 2.0, the lock has 1.0"),
    (lambda env: (env / "bin/torch").unlink(), "bin/torch is missing"),
    (lambda env: (env / "bin/python").unlink(), "bin/python does not run"),
])  # fmt: skip
def test_damage_is_found(env, damage, expected):
    damage(env)
    assert expected in find_damage(str(env), PINS)


def test_another_content_of_the_same_size_is_found_after_the_verification(env):
    mark_verified(str(env), PINS)
    file = packages_of(env) / "torch/__init__.py"
    before = file.stat()
    time.sleep(0.05)
    file.write_bytes(b"0ne")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    # A touch is no damage.
    os.utime(packages_of(env) / "tiny/__init__.py")
    assert find_damage(str(env), PINS) == ["lib/python3.11/site-packages/torch/__init__.py has another content"]


def test_what_a_package_records_wrongly_is_no_damage(env):
    (packages_of(env) / "torch/__init__.py").write_text("four")
    mark_verified(str(env), PINS)
    assert find_damage(str(env), PINS) == []
    (packages_of(env) / "tiny/__init__.py").unlink()
    assert find_damage(str(env), PINS) == ["lib/python3.11/site-packages/tiny/__init__.py is missing"]


def test_a_damaged_environment_makes_room(env):
    set_aside(str(env))
    aside = env.parent / f".{env.name}.damaged"
    assert not env.exists() and (aside / "bin/python").exists()
    env.mkdir()
    set_aside(str(env))
    assert not (aside / "bin").exists()
    set_aside(str(env))
