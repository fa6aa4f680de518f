# SPDX-License-Identifier: GPL-3.0-or-later
"""Chips that a site must not be surprised by."""

from __future__ import annotations

ON = ("cpu-12",)
CHIPS = "/standin/sys/bus/pci/devices/0000:[12ab]0:00.0/device"
UPGRADE = {"cuda_version": "580.159.04", "cuda_policy": "install"}


def state(fleet):
    """Return what a run that refuses must not have changed."""
    return fleet.run("cat /var/lib/standin/log; dpkg-query -W 'nvidia*'; ls /etc/apt/sources.list.d")


def test_a_chip_that_nobody_knows_stops_the_run_before_anything_changes(fleet, cleaned):
    fleet.run("standin function 0000:c1:00.0 10de:ffff")
    cleaned.append("standin function 0000:c1:00.0 --remove")
    before = state(fleet)
    assert fleet.play(**UPGRADE).fails_everywhere("unknown accelerator of NVIDIA: 10de:ffff", "0000:c1:00.0")
    assert state(fleet) == before


def test_chips_below_the_floor_of_vllm_stop_the_run_before_anything_changes(fleet, cleaned):
    fleet.run(f"for file in {CHIPS}; do echo 0x1db6 >$file; done")
    cleaned.append(f"for file in {CHIPS}; do echo 0x26b9 >$file; done")
    before = state(fleet)
    done = fleet.play(accelerator="v100", **UPGRADE)
    assert done.fails_everywhere("nothing can be served on NVIDIA V100", "vLLM needs compute capability 7.5")
    assert state(fleet) == before


def test_a_chip_below_the_floor_beside_others_is_named_and_the_modules_that_it_lacks_too(fleet, cleaned):
    fleet.run("standin function 0000:c1:00.0 10de:1db6")
    cleaned.append("standin function 0000:c1:00.0 --remove")
    done = fleet.play()
    assert "nothing can be served on v100" in " ".join(done.output.split())
    assert done.fails_everywhere("4 of 5 chips", "0000:c1:00.0")


def test_a_policy_that_halts_says_what_it_would_have_done(fleet):
    before = state(fleet)
    done = fleet.play(**{**UPGRADE, "cuda_policy": "halt"})
    assert done.fails_everywhere("580.95.05", "580.159.04", "cuda_policy is halt")
    assert state(fleet) == before
