# SPDX-License-Identifier: GPL-3.0-or-later
"""The scenario's hosts: one with Huawei's packages, one with its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standins.fleet import Fleet

PLAY = Path(__file__).resolve().parents[1] / "converge.yml"


@pytest.fixture(scope="session")
def fleet():
    """Both hosts, and runs of the play over them."""
    return Fleet(PLAY)


@pytest.fixture
def cleaned(fleet):
    """Yield a list; commands that are put into it are run on all hosts after the test, the last first."""
    yield from fleet.cleaned()
