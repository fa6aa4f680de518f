# SPDX-License-Identifier: GPL-3.0-or-later
"""The three commands of docs/start/air-gapped.md that sign a disk and check it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.fakes.signer import signer
from tests.fakes.wheelhouse import run_module

TOP = Path(__file__).resolve().parents[3]
MARK = f"<!-- run by: {Path(__file__).relative_to(TOP)} -->\n```console\n"
COMMANDS = [
    line.removeprefix("$ ")
    for block in (TOP / "docs/start/air-gapped.md").read_text().split(MARK)[1:]
    for line in block.partition("```")[0].splitlines()
]


@pytest.fixture
def site(tmp_path):
    """A filled disk, the home of a user with a key, and the page's commands run there."""
    (tmp_path / "disk/encodings").mkdir(parents=True)
    (tmp_path / "disk/encodings/y").write_bytes(b"words")
    entry = {"size": 5, "sha256": hashlib.sha256(b"words").hexdigest()}
    run_module("mirror_bundle", root=str(tmp_path / "disk"), holds={"encodings": {"y": {"encodings/y": entry}}})
    with signer() as keys:
        (tmp_path / "site.gpg").write_bytes(keys.public())

        def run(*commands):
            text = "\n".join(commands).replace("/media/disk", str(tmp_path / "disk"))
            environment = {**os.environ, "HOME": str(tmp_path), "GNUPGHOME": str(keys.home), "LC_ALL": "C"}
            done = subprocess.run(
                ["bash", "-ec", text],
                cwd=tmp_path / "disk",
                env=environment,
                check=False,
                capture_output=True,
                text=True,
            )
            return done.returncode, done.stdout + done.stderr

        yield tmp_path / "disk", run


def test_the_page_signs_and_checks_in_three_commands(site):
    assert [re.search(r"(gpgv?|sha256sum) ", command)[1] for command in COMMANDS] == ["gpg", "gpgv", "sha256sum"]
    rc, said = site[1](*COMMANDS)
    assert rc == 0 and "Good signature" in said, said


def test_a_changed_file_is_named_and_a_changed_list_refused(site):
    disk, run = site
    assert run(COMMANDS[0])[0] == 0
    (disk / "encodings/y").write_bytes(b"WORDS")
    rc, said = run(*COMMANDS[1:])
    assert rc != 0 and "encodings/y: FAILED" in said, said
    (disk / "SHA256SUMS").write_text(f"{hashlib.sha256(b'WORDS').hexdigest()}  encodings/y\n")
    rc, said = run(*COMMANDS[1:])
    assert rc != 0 and "BAD signature" in said, said
