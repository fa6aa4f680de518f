# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import stat
import subprocess
import time

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.weights.background import (
    ACCESS_MINUTES,
    access_command,
)


def write(path, **options):
    """Run the command as a connection does: it has to end although its loop in the background goes on."""
    subprocess.run(
        # As Ansible's shell plugin does, it adds its own command.
        ["/bin/sh", "-c", f"{access_command(str(path), **options)} && sleep 0"],
        input=b"canary",
        capture_output=True,
        check=True,
        timeout=60,
    )


def gone(path):
    deadline = time.monotonic() + 60
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not path.exists()


@pytest.fixture
def jobs(tmp_path):
    return tmp_path / "with blank" / ".ansible_async"


def test_secret_that_nobody_takes_is_removed_though_its_writer_is_gone(jobs):
    path = jobs / "access-1.json"
    write(path, minutes=0, pause=0.1)
    assert gone(path)


def test_secret_is_there_for_its_owner_alone_until_it_is_taken(jobs):
    path = jobs / "access-1.json"
    write(path, pause=0.1)
    assert path.read_bytes() == b"canary"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.unlink()


def test_secrets_of_earlier_runs_are_swept(jobs):
    jobs.mkdir(parents=True)
    names = ["access-old.json", "access-new.json", "j123.456", "weights-1.json"]
    for name in names:
        (jobs / name).write_text("")
        if name != "access-new.json":
            os.utime(jobs / name, (time.time() - ACCESS_MINUTES * 60 - 120,) * 2)
    write(jobs / "access-1.json", pause=0.1)
    assert sorted(path.name for path in jobs.iterdir()) == sorted({*names, "access-1.json"} - {"access-old.json"})
    (jobs / "access-1.json").unlink()
