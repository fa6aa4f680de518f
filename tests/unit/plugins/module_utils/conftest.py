# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A function that puts a script of sh in the place of a program of the host."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return write
