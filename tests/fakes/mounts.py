# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory of others that an admin has mounted at a place of the collection: a bind mount of the same device."""

from __future__ import annotations

import contextlib
import subprocess

import pytest


@contextlib.contextmanager
def bound(shared, place):
    """Mount a new directory with one file at a place, which is made; skip the test where nobody may mount."""
    for directory in (shared, place):
        directory.mkdir(parents=True, exist_ok=True)
    (shared / "file").write_text("of another host")
    done = subprocess.run(["mount", "--bind", str(shared), str(place)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("only root of a host may mount")
    try:
        yield
        assert (shared / "file").read_text() == "of another host"
    finally:
        subprocess.run(["umount", str(place)], check=True)
