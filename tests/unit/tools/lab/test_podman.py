# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting a container: an address that podman has not released yet is waited for, anything else is an error."""

from __future__ import annotations

import pytest

from tools.lab import podman as room
from tools.lab.plan import LabError

OWNED = "Error: IPAM error: requested ip address 10.87.241.10 is already allocated to container ID c7ec82"


@pytest.fixture
def calls(monkeypatch):
    """Return what podman was asked; the errors in .failing answer the next starts."""

    class Calls(list):
        def __init__(self):
            super().__init__()
            self.failing = []

    made = Calls()

    def podman(*arguments):
        made.append(arguments)
        if arguments[0] == "start" and made.failing:
            raise LabError(made.failing.pop(0))

    monkeypatch.setattr(room, "podman", podman)
    monkeypatch.setattr(room.time, "sleep", lambda seconds: None)
    return made


def test_an_address_that_is_still_allocated_is_waited_for(calls):
    calls.failing = [OWNED, OWNED]
    room.start_container("x")
    assert calls == [("start", "x"), ("container", "cleanup", "x")] * 2 + [("start", "x")]


def test_an_address_that_stays_allocated_is_an_error(calls):
    calls.failing = [OWNED] * 100
    with pytest.raises(LabError, match="already allocated"):
        room.start_container("x")


def test_another_failure_is_an_error_at_once(calls):
    calls.failing = ["Error: no such container"]
    with pytest.raises(LabError, match="no such container"):
        room.start_container("x")
    assert calls == [("start", "x")]
