# SPDX-License-Identifier: GPL-3.0-or-later
"""Put together what the health service of a host has to know of its hardware, its instances and the faults."""

from typing import Any, Mapping, Sequence

from ..catalog.faults import faults_of_host


def settings_of(
    accelerator: Mapping[str, Any],
    host: str,
    plans: Mapping[str, Mapping[str, Any]],
    fault_path: Sequence[str] = (),
    parts: int = 1,
) -> dict[str, Any]:
    """Return the part of the service's configuration that the options of the role do not give.

    ``accelerator`` is the fact ``accelerator_detected``, ``plans`` are the plans of the instances, whose chips are
    numbered in ``parts`` of each chip of its model. An instance without
    chips of its own (a CPU, or a host whose chips could not be told apart) is concerned by the faults of all chips.
    Raises FaultsError.
    """
    devices = {str(device["address"]).lower(): device.get("model") for device in accelerator.get("devices") or ()}
    addresses = sorted(devices)
    own = [address for address in addresses if devices[address] in (None, accelerator["model"])]
    return {
        "host": host,
        "stack": accelerator["stack"],
        "vendor": accelerator["vendor"],
        "model": accelerator["model"],
        "addresses": addresses,
        "chips": {
            name: list(
                dict.fromkeys(own[chip // parts] for chip in plan.get("chips") or () if chip // parts < len(own))
            )
            for name, plan in plans.items()
        },
        "faults": faults_of_host(accelerator["stack"], fault_path),
    }
