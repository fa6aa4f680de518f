# SPDX-License-Identifier: GPL-3.0-or-later
"""Which RDMA device transfers the KV cache of which chip.

Each process of vLLM sees one chip, and UCX would let all of them share the devices: several on one device are slower
than each on its own. vLLM reads the pairs, and names the device of its chip to UCX in each process.
"""

from collections import Counter
from typing import Collection, Sequence

from .hardware import Accelerator

PAIRS, NAMES = "VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS"


def nic_environment(accelerator: Accelerator, names: Collection[str], allowed: Sequence[str] = ()) -> dict[str, str]:
    """Return vLLM's variables with a device for each chip of a host; empty where they cannot be set.

    ``names`` are the variables that the release reads, ``allowed`` the only devices that may be used, where any are
    given. vLLM ends at its start if a chip has no pair, so every chip has one or there is none. Only its CUDA platform
    reads them.
    """
    if accelerator.stack != "cuda" or not {PAIRS, NAMES} <= set(names):
        return {}
    pairs = nearest_nics(accelerator, allowed)
    if len(pairs) < accelerator.count:
        return {}
    # UCX wants the port of each device; near_rdma has those whose first one works.
    return {PAIRS: ",".join(f"{chip}={nic}" for chip, nic in pairs.items()), NAMES: "UCX_NET_DEVICES:1"}


def nearest_nics(accelerator: Accelerator, allowed: Sequence[str] = ()) -> dict[str, str]:
    """Return the PCI address of an RDMA device for each chip that has one near, by the chip's.

    The device with the most bridges in common is the nearest; among equals the one that the fewest chips have.
    """
    near: dict[str, list[tuple[int, str]]] = {}
    for name, address, chips in accelerator.rdma:
        for chip, common in chips:
            if not allowed or name in allowed:
                near.setdefault(chip, []).append((common, address))
    used: Counter[str] = Counter()
    pairs = {}
    for chip, found in sorted(near.items()):
        _common, _used, nic = min((-common, used[address], address) for common, address in found)
        used[nic] += 1
        pairs[chip] = nic
    return pairs
