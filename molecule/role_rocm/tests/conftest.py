# SPDX-License-Identifier: GPL-3.0-or-later
"""The scenario's hosts: one with eight MI300X and AMD's tools, one workstation with two R9700 and none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standins.fleet import Fleet

PLAY = Path(__file__).resolve().parents[1] / "converge.yml"
DISTRIBUTIONS = {"cpu-12": "debian12", "cpu-13": "debian13"}
MIRROR = "standin mirror amd /srv/amd --version 31.40.1 --version 31.50 --kernel 6.1.0-40-amd64 --kernel 6.1.0-41-amd64"


class AmdFleet(Fleet):
    """The hosts, with AMD's repositories on each."""

    def mirror(self, *options: str) -> None:
        """Publish AMD's repositories once more, with faults."""
        for name, host in self.hosts.items():
            host.check_output(" ".join([MIRROR, "--distribution", DISTRIBUTIONS[name], *options]))


@pytest.fixture(scope="session")
def fleet() -> AmdFleet:
    """The scenario's hosts."""
    return AmdFleet(PLAY)


@pytest.fixture
def cleaned(fleet):
    """Yield a list; commands that are put into it are run on all hosts after the test, the last first."""
    yield from fleet.cleaned()
