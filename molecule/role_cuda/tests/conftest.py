# SPDX-License-Identifier: GPL-3.0-or-later
"""The scenario's hosts, with two versions of NVIDIA's driver to choose from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standins.fleet import HOSTS, Fleet

PLAY = Path(__file__).resolve().parents[1] / "converge.yml"
DISTRIBUTIONS = {"cpu-12": "debian12", "cpu-13": "debian13"}
MIRROR = (
    "standin mirror nvidia /srv/nvidia --version 580.95.05 --version 580.159.04 "
    "--kernel 6.1.0-40-amd64 --kernel 6.1.0-41-amd64"
)


class NvidiaFleet(Fleet):
    """The hosts, with NVIDIA's repository on each."""

    def mirror(self, *options: str) -> None:
        """Publish the vendor's repository once more, with faults."""
        for name, host in self.hosts.items():
            host.check_output(" ".join([MIRROR, "--distribution", DISTRIBUTIONS[name], *options]))


@pytest.fixture(scope="module")
def fleet(request) -> NvidiaFleet:
    """The scenario's hosts, or those that a file of tests names as `ON`: one where both would show the same."""
    return NvidiaFleet(PLAY, getattr(request.module, "ON", HOSTS))


@pytest.fixture
def cleaned(fleet):
    """Yield a list; commands that are put into it are run on all hosts after the test, the last first."""
    yield from fleet.cleaned()
