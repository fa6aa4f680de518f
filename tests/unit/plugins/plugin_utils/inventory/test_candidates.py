# SPDX-License-Identifier: GPL-3.0-or-later
"""The fact accelerator_detected has one shape, whoever has seen the chips."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import parse_cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import PciFunction
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import match
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import summary
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.candidates import Seen
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import Chips

CATALOGUE = load_catalogue()
CPU = parse_cpu("", "MemTotal: 1 kB\n", 1, "x86_64")
UNKNOWN_ID = "10de:ffff"


def on_the_host(ids):
    functions = []
    for number, pci_id in enumerate(ids):
        vendor, device = pci_id.split(":")
        functions.append(PciFunction(f"0000:{number:02x}:00.0", vendor, device, "0302"))
    return summary(match(functions, CATALOGUE, CPU))


def by_bmc(ids):
    counts = {pci_id: ids.count(pci_id) for pci_id in ids}
    return Seen(CATALOGUE, {}).by_bmc(Chips(ids=counts, names={}))


H100, MI300X = (
    next(pci_id for pci_id, chip in CATALOGUE.chips.items() if chip.model == model) for model in ("h100", "mi300x")
)


@pytest.mark.parametrize(
    "ids",
    [[H100] * 8, [MI300X] * 8, [H100] * 2 + [MI300X], [UNKNOWN_ID] * 8, [H100, UNKNOWN_ID], []],
    ids=["h100", "mi300x", "mixed", "unknown", "unknown beside", "none"],
)
def test_a_bmc_and_the_host_itself_describe_the_same_chips_alike(ids):
    seen, told = on_the_host(ids), by_bmc(ids)
    assert list(told) == list(seen)
    # What a BMC cannot know: where chips sit, so how they are numbered, and the memory of a host without chips.
    told.pop("numbers"), seen.pop("numbers")
    assert [chip["vendor"] for chip in told.pop("unknown")] == [chip["vendor"] for chip in seen.pop("unknown")]
    if not ids:
        assert told.pop("memory_mib") is None
        seen.pop("memory_mib")
    assert told == seen
