# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that sign a release (CONTRIBUTING.md) and check it (docs/operate/upgrade.md)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.signer import signer

TOP = Path(__file__).resolve().parents[3]
MARK = f"<!-- run by: {Path(__file__).relative_to(TOP)} -->"
BLOCK = re.compile(re.escape(MARK) + r"\n```console\n(.*?)\n```", re.DOTALL)


def block(page):
    (found,) = BLOCK.findall((TOP / page).read_text())
    return re.sub(r"^\$ ", "", found, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A release that was built, signed and installed as documented, and the check of it."""
    home = tmp_path_factory.mktemp("release")
    (home / "ansible.cfg").write_text("")
    with signer() as keys:
        (home / "release.gpg").write_bytes(keys.public())

        def run(text):
            environment = {
                **os.environ,
                "HOME": str(home),
                "GNUPGHOME": str(keys.home),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "ANSIBLE_COLLECTIONS_PATH": str(home / "collections"),
                "ANSIBLE_HOME": str(home / ".ansible"),
                "ANSIBLE_CONFIG": str(home / "ansible.cfg"),
            }
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", text.replace(".cache/release", f"{home}/built")],
                cwd=TOP,
                env=environment,
                check=False,
                capture_output=True,
                text=True,
            )
            return done.returncode, done.stdout + done.stderr

        rc, said = run(block("CONTRIBUTING.md"))
        assert rc == 0, said
        rc, said = run(
            "ansible-galaxy collection install --offline .cache/release/*.tar.gz\n"
            "cp .cache/release/MANIFEST.json.asc ~/MANIFEST.json.asc"
        )
        assert rc == 0, said
        yield home, lambda: run(block("docs/operate/upgrade.md"))


def test_a_signed_release_is_accepted_and_a_changed_file_named(release):
    home, check = release
    rc, said = check()
    assert rc == 0 and "Successfully verified" in said, said
    with (home / "collections/ansible_collections/baremetal/inference/playbooks/site.yml").open("a") as file:
        file.write("#\n")
    rc, said = check()
    assert rc != 0 and "playbooks/site.yml" in said, said


def test_a_signature_of_another_release_is_refused(release):
    home, check = release
    manifest = home / "collections/ansible_collections/baremetal/inference/MANIFEST.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"namespace": "baremetal"', '"namespace":  "baremetal"'))
    try:
        rc, said = check()
    finally:
        manifest.write_text(text)
    assert rc != 0 and "Signature verification failed" in said, said
