# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue

from tools import known_accelerators

# The six of Ironic 39 (ironic/drivers/modules/inspector/hooks/known_accelerators.yaml).
OF_IRONIC = {"10de:1eb8", "10de:1df6", "10de:2236", "10de:2235", "10de:26b9", "10de:26ba"}


def test_every_chip_of_the_catalogue_is_listed_once_and_those_that_ironic_knows(capsys):
    known_accelerators.main([])
    devices = yaml.safe_load(capsys.readouterr().out)["pci_devices"]
    ids = [f"{device['vendor_id']}:{device['device_id']}" for device in devices]
    assert len(set(ids)) == len(ids)
    assert set(ids) >= OF_IRONIC
    catalogue = load_catalogue()
    left_out = {id for id in catalogue.chips if id not in ids}
    assert left_out == {id for id, chip in catalogue.chips.items() if "virtual" in (chip.form or "")} != set()
    assert {device["type"] for device in devices} == {"GPU", "NPU"}
    # As Ironic's hook compares them: strings, in small letters, without a prefix.
    assert all(len(part) == 4 and part == part.lower() for each in ids for part in each.split(":"))
