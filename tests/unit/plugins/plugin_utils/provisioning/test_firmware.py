# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue against attributes that BMCs of five makers have shown (tests/fixtures/firmware.yml)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import ProvisionError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.firmware import (
    differences,
    read_settings,
    settings_step,
)

RECORDED = yaml.safe_load((Path(__file__).parents[4] / "fixtures/firmware.yml").read_text())
SETTINGS = read_settings()
MAKERS = {
    "dell": "Dell Inc.", "hpe": "HPE", "lenovo": "Lenovo", "supermicro": "Supermicro", "nvidia": "NVIDIA",
}  # fmt: skip


def found(maker, **change):
    return [str(each) for each in differences(SETTINGS, MAKERS[maker], {**RECORDED[maker], **change})]


@pytest.mark.parametrize(
    ("maker", "expected"),
    [
        ("dell", ["aspm_off: PcieAspmL1 is 'Enabled', wanted Disabled",
                  "performance: SysProfile is 'PerfPerWattOptimizedDapc', wanted PerfOptimized"]),
        ("hpe", ["performance: PowerRegulator is 'OsControl', wanted StaticHighPerf"]),
        ("lenovo", ["acs_off: Processors_PCIeACSCTL is 'Enabled', wanted Disabled"]),
        ("supermicro", []),
        ("nvidia", []),
    ],
)  # fmt: skip
def test_what_recorded_servers_should_set_differently(maker, expected):
    assert found(maker) == expected


def test_the_name_and_the_spelling_of_this_board_are_what_is_set():
    change = {"Above4GDecoding_0041": "Disabled", "PCIeACSCTL_1E3C": "Enable"}
    wanted = differences(SETTINGS, "Supermicro", {**RECORDED["supermicro"], **change})
    assert settings_step(wanted)[0]["args"] == {
        "settings": [
            {"name": "Above4GDecoding_0041", "value": "Enabled"},
            {"name": "PCIeACSCTL_1E3C", "value": "Disable"},
        ]
    }


def test_nothing_is_set_where_nothing_differs_and_nothing_is_said_of_a_maker_without_entries():
    assert settings_step(()) == []
    assert differences(SETTINGS, "Example", RECORDED["dell"]) == ()
    assert differences(SETTINGS, "", {}) == ()


def test_each_maker_of_the_catalogue_but_weka_s_was_recorded():
    """A name that no recording has is marked with W as its source."""
    for entry in yaml.safe_load((Path(__file__).parents[5] / "catalog/firmware.yml").read_text())["settings"]:
        if entry["source"].startswith("L"):
            maker = entry["makers"][0]
            known = {name.rsplit("_", 1)[0] if maker == "supermicro" else name for name in RECORDED[maker]}
            assert known & {entry["names"][0], entry["names"][0].rstrip("_")}, entry


@pytest.mark.parametrize(
    "text",
    ["[]", "purposes: {}\nsettings: [1]", "purposes: {a: {}}\nsettings: [{purpose: b}]",
     "purposes: {a: {}}\nsettings: [{purpose: a, makers: dell, names: [A], wanted: [B], source: L}]"],
)  # fmt: skip
def test_a_file_that_is_no_catalogue_is_refused(tmp_path, text):
    (tmp_path / "firmware.yml").write_text(text)
    with pytest.raises(ProvisionError, match=r"firmware\.yml: "):
        read_settings(tmp_path / "firmware.yml")
