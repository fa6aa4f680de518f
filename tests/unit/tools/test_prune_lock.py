# SPDX-License-Identifier: GPL-3.0-or-later
"""Which requirements and which hashes of a lock remain; pip itself chooses the files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.prune_lock import headline, own_part, prune, wanted_by

FILES = Path(__file__).parents[3] / "roles/provisioner/files"
LOCK = """\
a==1 ; python_full_version < '3.12' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via c
a==2 ; python_full_version >= '3.12' \\
    --hash=sha256:cc
c==3 \\
    --hash=sha256:dd \\
    --hash=sha256:ee
"""


def test_only_hashes_that_are_used_remain():
    assert prune(LOCK, {"bb", "cc", "dd", "ee"}) == LOCK.replace("    --hash=sha256:aa \\\n", "").replace(
        "    # via c\n", ""
    )


@pytest.mark.parametrize(("python", "versions"), [("3.11", ["a==1", "c==3"]), ("3.13", ["a==2", "c==3"])])
def test_a_marker_is_compared_with_the_python_of_the_lock(python, versions):
    found = wanted_by(LOCK, python)
    assert re.findall(r"^\w==\d", found, re.MULTILINE) == versions and ";" not in found


@pytest.mark.parametrize("name", ["cp311", "cp313"])
def test_a_lock_for_one_target_has_nothing_that_has_one_wheel_for_all(name):
    shared = (FILES / "ironic.txt").read_text()
    first, second, own = (FILES / f"ironic-{name}-x86_64.txt").read_text().split("\n", 2)
    assert (first, second) == (f"# target: {name}-x86_64", "# besides: ironic.txt")
    assert own_part(own, shared) == own
    assert own_part(f"alembic{shared.partition('alembic')[2]}", shared).count("==") < 30


@pytest.mark.parametrize("name", ["ironic", "agent"])
def test_a_lock_of_the_role_has_a_hash_for_each_requirement_and_few(name):
    requirements = re.findall(r"(?m)^\w.*(?:\n    .*)*", (FILES / f"{name}.txt").read_text())
    counts = {each.split("==")[0]: each.count("--hash=sha256:") for each in requirements}
    assert len(counts) > 40
    # Four versions of Python on two processors; the ramdisk has one.
    assert not {each: count for each, count in counts.items() if not 1 <= count <= {"ironic": 8, "agent": 1}[name]}


@pytest.mark.parametrize(
    ("targets", "line"),
    [(["3.13-x86_64-28"], "# target: cp313-x86_64\n"), (["3.11-x86_64", "3.11-aarch64"], "")],
)
def test_a_lock_for_one_target_names_it(targets, line):
    assert headline(targets) == line
