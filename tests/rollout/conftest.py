# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with three hosts that serve and a gateway: the one that LAB_NAME names where it is up, else a new one."""

from __future__ import annotations

import os

import pytest

from tests.rollout.site import FLEET, HOSTS, TOP, Site

os.environ.setdefault("LAB_NAME", "rollout")
os.environ.setdefault("LAB_SUBNET_PREFIX", "10.87.203")
os.environ.setdefault("LAB_HOME", str(TOP / ".lab"))


@pytest.fixture(scope="session")
def lab():
    """The lab, with everything that serves in it; it stays up afterwards (bin/lab down)."""
    site = Site()
    site.bring_up()
    return site


@pytest.fixture
def site(lab):
    """The lab as the inventory says it, with every server in service. What a test before has left is rolled back."""
    lab.settle()
    assert {lab.ask(host) for host in HOSTS} == {FLEET}
    return lab
