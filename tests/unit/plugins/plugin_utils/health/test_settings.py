# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from dataclasses import fields

from ansible_collections.baremetal.inference.plugins.module_utils.health.settings_host import Settings
from ansible_collections.baremetal.inference.plugins.plugin_utils.health.settings import settings_of

HARDWARE = {
    "stack": "cuda", "vendor": "nvidia", "model": "h200",
    "devices": [{"address": "0000:5D:00.0"}, {"address": "0000:1b:00.0"}],
}  # fmt: skip


def test_chips_have_the_numbers_of_the_vendors_tool():
    found = settings_of(HARDWARE, "gpu-01", {"chat": {"chips": [1]}, "quick": {"chips": [0, 1]}, "cpu": {}})
    assert found["addresses"] == ["0000:1b:00.0", "0000:5d:00.0"]
    assert found["chips"] == {"chat": ["0000:5d:00.0"], "quick": ["0000:1b:00.0", "0000:5d:00.0"], "cpu": []}


def test_chips_of_other_models_have_no_numbers():
    places = {"0000:01:00.0": "l4", "0000:41:00.0": "h200", "0000:81:00.0": "h200"}
    hardware = {**HARDWARE, "devices": [{"address": address, "model": model} for address, model in places.items()]}
    found = settings_of(hardware, "gpu-01", {"chat": {"chips": [1]}, "quick": {"chips": [0]}})
    assert (found["addresses"], found["chips"]) == (list(places), {"chat": ["0000:81:00.0"], "quick": ["0000:41:00.0"]})


def test_parts_of_a_chip_are_concerned_by_its_faults():
    plans = {"chat": {"chips": [0, 7]}, "quick": {"chips": [7, 8, 9]}, "more": {"chips": [16]}}
    found = settings_of(HARDWARE, "amd-01", plans, parts=8)
    assert found["chips"] == {
        "chat": ["0000:1b:00.0"], "quick": ["0000:1b:00.0", "0000:5d:00.0"], "more": []
    }  # fmt: skip


def test_the_service_knows_every_key():
    found = settings_of(HARDWARE, "gpu-01", {})
    assert set(found) <= {each.name for each in fields(Settings)}
    assert Settings(**json.loads(json.dumps(found))).stack == "cuda"


def test_a_host_without_chips():
    found = settings_of({"stack": "cpu", "vendor": "cpu", "model": "cpu"}, "cpu-01", {"chat": {"chips": []}})
    assert (found["addresses"], found["chips"]) == ([], {"chat": []})
