# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the chips of catalog/accelerators as Ironic's known_accelerators.yaml.

    PYTHONPATH=.collections .venv/bin/python tools/known_accelerators.py >known_accelerators.yaml

Ironic's own file has six chips; its option [inspector] known_accelerators names another one, for sites whose Ironic
inspects servers. Virtual functions are left out: their physical function is listed.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Sequence

import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import Catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import VIRTUAL

TYPES = {"ascend": "NPU"}


def known_accelerators(catalogue: Catalogue) -> dict[str, Any]:
    """Return the document: one entry for each PCI id."""
    devices = []
    for pci_id, chip in sorted(catalogue.chips.items()):
        model = catalogue.models[chip.model]
        vendor, _colon, device = pci_id.partition(":")
        if chip.form and chip.form.endswith(VIRTUAL):
            continue
        info = f"{model.title} {chip.form}" if chip.form else model.title
        devices.append(
            {"vendor_id": vendor, "device_id": device, "type": TYPES.get(model.vendor, "GPU"), "device_info": info}
        )
    return {"pci_devices": devices}


def main(words: Sequence[str] | None = None) -> None:
    """Print the document."""
    argparse.ArgumentParser(description="Print Ironic's known_accelerators.yaml.").parse_args(words)
    sys.stdout.write("# Made by tools/known_accelerators.py from catalog/accelerators\n")
    yaml.safe_dump(known_accelerators(load_catalogue()), sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
