# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health.commands_host import (
    boot_faults,
    clear,
    status,
    take_cleared,
)
from ansible_collections.baremetal.inference.plugins.module_utils.health.ledger import Ledger, Run
from ansible_collections.baremetal.inference.plugins.module_utils.health.settings_host import Settings
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import Event, Fault

CHIP = "0000:5d:00.0"


@pytest.fixture
def settings(tmp_path):
    return Settings("gpu-01", "cuda", "nvidia", "h200", {}, addresses=[CHIP], state_dir=str(tmp_path))


def test_the_service_takes_a_word_once(settings):
    assert clear(settings, CHIP, "1").startswith(f"Told the service that {CHIP} is well")
    clear(settings, "all", "2")
    assert sorted(take_cleared(settings.state_dir)) == [CHIP, "all"]
    assert take_cleared(settings.state_dir) == []


def test_an_unknown_chip_is_named_with_the_nearest_one(settings):
    with pytest.raises(SystemExit, match=f"0000:5e:00.0: no chip of this host; .*{CHIP}"):
        clear(settings, "0000:5e:00.0", "1")
    assert take_cleared(settings.state_dir) == []


def test_status_without_a_saved_state_and_with_a_damaged_one(settings, tmp_path):
    assert status(settings) == "Every instance is well."
    (tmp_path / "state.json").write_text("{")
    assert status(settings).startswith("The saved state is damaged")


def test_faults_that_only_a_boot_ends_are_a_json_list(settings, tmp_path):
    assert boot_faults(settings) == "[]"
    fault = Fault("xid", "79", "off the bus", "isolate_host", "boot")
    ledger = Ledger()
    ledger.record(Event(fault, CHIP), {"chat": Run("a", 1.0, True)}, 100.0, "boot-1")
    (tmp_path / "state.json").write_text(json.dumps({"ledger": ledger.document()}))
    assert boot_faults(settings) == f'["xid 79 of {CHIP}: off the bus"]'
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(SystemExit, match="The saved state is damaged"):
        boot_faults(settings)
