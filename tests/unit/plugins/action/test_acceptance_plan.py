# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.action.acceptance_plan import hardware_of

PLACES = {"0000:01:00.0": ("rtx_pro_6000", "2bb1"), "0000:09:00.0": ("gb300", "31c2")}
DEVICES = [
    {"address": address, "model": model, "vendor_id": "10de", "device_id": device}
    for address, (model, device) in PLACES.items()
]


def test_beside_other_gpus_only_the_chips_that_are_planned_for_are_loaded():
    models = {"gb300": 1, "rtx_pro_6000": 1}
    station = {"model": "gb300", "count": 1, "models": models, "devices": DEVICES}
    found = hardware_of({**station, "numbers": {"gb300": [1], "rtx_pro_6000": [0]}}, [])
    assert list(found["expected"]) == ["0000:09:00.0"]
    assert found["devices"] == ["nvidia.com/gpu=1"]
    assert found["visible"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}


def test_a_host_of_one_model_is_loaded_whole():
    found = hardware_of({"model": "gb300", "count": 1, "models": {"gb300": 1}, "devices": DEVICES[1:]}, [])
    assert (found["devices"], found["visible"]) == (["nvidia.com/gpu=all"], {})
