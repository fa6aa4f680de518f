# SPDX-License-Identifier: GPL-3.0-or-later
"""Which RDMA device is which chip's."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.nics import (
    NAMES,
    PAIRS,
    nearest_nics,
    nic_environment,
)

RELEASE = {PAIRS, NAMES}


def host(rdma, count, stack="cuda"):
    """Return a host; ``rdma`` has the bridges in common with each chip by device."""
    known = tuple((name, address, tuple(chips.items())) for name, (address, chips) in rdma.items())
    return Accelerator("h200", stack, "hopper", "nvidia", count, rdma=known)


# Two switches below one root port each: two chips and two devices, then two chips and one.
SWITCHES = {
    "mlx5_0": ("0000:18:00.0", {"0000:17:00.0": 3, "0000:1a:00.0": 2}),
    "mlx5_1": ("0000:1b:00.0", {"0000:17:00.0": 2, "0000:1a:00.0": 3}),
    "mlx5_2": ("0000:98:00.0", {"0000:97:00.0": 2, "0000:9a:00.0": 2}),
}


def test_the_nearest_device():
    assert nearest_nics(host(SWITCHES, 4)) == {
        "0000:17:00.0": "0000:18:00.0",
        "0000:1a:00.0": "0000:1b:00.0",
        "0000:97:00.0": "0000:98:00.0",
        "0000:9a:00.0": "0000:98:00.0",
    }


def test_equally_near_devices_are_shared_out():
    chips = {f"0000:1{number}:00.0": 2 for number in range(4)}
    equal = {"mlx5_0": ("0000:20:00.0", chips), "mlx5_1": ("0000:21:00.0", chips)}
    assert list(nearest_nics(host(equal, 4)).values()) == ["0000:20:00.0", "0000:21:00.0"] * 2


def test_vllm_gets_pairs_and_the_name_of_ucx_s_variable():
    assert nic_environment(host(SWITCHES, 4), RELEASE) == {
        PAIRS: "0000:17:00.0=0000:18:00.0,0000:1a:00.0=0000:1b:00.0,"
        "0000:97:00.0=0000:98:00.0,0000:9a:00.0=0000:98:00.0",
        NAMES: "UCX_NET_DEVICES:1",
    }


def test_every_chip_has_a_pair_or_none_has():
    assert nic_environment(host(SWITCHES, 5), RELEASE) == {}
    assert nic_environment(host(SWITCHES, 4), RELEASE, ["mlx5_0", "mlx5_1"]) == {}
    assert nic_environment(host({}, 8), RELEASE) == {}


def test_only_what_the_release_and_its_platform_read():
    assert nic_environment(host(SWITCHES, 4), {PAIRS}) == {}
    assert nic_environment(host(SWITCHES, 4, "rocm"), RELEASE) == {}
