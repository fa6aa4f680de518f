# SPDX-License-Identifier: GPL-3.0-or-later
"""A loop that goes on."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.common.loop_host import Loop


def test_a_fault_is_reported_once_and_its_end_too(capsys):
    faults = iter([ValueError("x"), ValueError("x"), None, KeyError("y")])

    def step():
        fault = next(faults)
        if fault:
            raise fault
        return 0.5

    loop = Loop("chips", step, 3.0)
    assert [loop.once() for _time in range(4)] == [3.0, 3.0, 0.5, 3.0]
    assert [line.split(" (")[0] for line in capsys.readouterr().out.splitlines()] == [
        "chips failed, and is tried again: ValueError: x",
        "chips works again",
        "chips failed, and is tried again: KeyError: 'y'",
    ]
