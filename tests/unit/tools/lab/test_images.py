# SPDX-License-Identifier: GPL-3.0-or-later
"""The images of a lab's hosts: a mirror of Debian that fails once does not fail the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lab import images
from tools.lab.plan import Lab, LabError, Recipe


class Mmdebstrap:
    """Fails as often as told, then writes the tarball."""

    def __init__(self, failures):
        self.failures = failures
        self.calls = 0

    def __call__(self, title, command, environment):
        self.calls += 1
        if self.calls <= self.failures:
            raise LabError(f"{title}: mmdebstrap failed:\nE: 503 Service Unavailable")
        partial = next(Path(word) for word in command if word.endswith(".tar"))
        partial.write_text("root")


@pytest.fixture
def build(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "BUILD_PAUSE_SECONDS", 0)
    lab = Lab("lab", "10.87.99", tmp_path / "home", tmp_path)
    tarball = tmp_path / "bookworm.tar"

    def run(failures):
        mmdebstrap = Mmdebstrap(failures)
        monkeypatch.setattr(images, "show_progress", mmdebstrap)
        images.build_image(lab, Recipe("bookworm", (), (), (), ""), tarball)
        return tarball.read_text(), mmdebstrap.calls

    return run


def test_an_image_is_built_again_after_a_failure(build, capsys):
    assert build(failures=2) == ("root", 3)
    assert "503 Service Unavailable" in capsys.readouterr().out


def test_a_build_that_keeps_failing_is_an_error(build):
    with pytest.raises(LabError, match="503 Service Unavailable"):
        build(failures=3)
