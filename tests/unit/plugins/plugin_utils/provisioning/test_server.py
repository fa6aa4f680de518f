# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import Record, RecordFile
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.server import (
    MOST_DISKS,
    Disk,
    read_power,
    read_server,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import RedfishError

from tests.fakes.provision_entries import entry
from tests.fakes.servers_off import ROOT, SYSTEM, Server


def survey(documents, steps):
    """Return what a survey finds in documents."""
    wanted = next(steps)
    while True:
        try:
            wanted = steps.send({item.path: documents.get(item.path.rstrip("/")) for item in wanted})
        except StopIteration as done:
            return done.value


@pytest.fixture
def documents():
    return Server("127.20.0.1", "52:54:00:12:34:56", "SRV0001", {"S6CKNX0T": b"", "DATA0001": b""}).documents()


def test_a_server_is_read_with_its_disks(documents):
    found = survey(documents, read_server(""))
    assert (found.path, found.serial, found.name, found.power) == (SYSTEM, "SRV0001", "Example GPU-8", "Off")
    assert found.disks == (Disk("S6CKNX0T", "PM9A3", 960), Disk("DATA0001", "PM9A3", 960))
    assert found.disk_of(entry()) == found.disks[0]
    assert survey(documents, read_server(SYSTEM)) == found
    assert survey(documents, read_power(SYSTEM)) == "Off"


def test_a_bmc_without_a_list_of_disks_has_none(documents):
    del documents[SYSTEM]["Storage"]
    assert survey(documents, read_server("")).disks == ()


@pytest.mark.slow
def test_a_text_of_a_bmc_is_no_template_in_the_record(documents, tmp_path):
    documents[SYSTEM]["SerialNumber"] = documents[SYSTEM]["Model"] = "{{ 6 * 7 }}{% set a = 1 %}{# b #}"
    found = survey(documents, read_server(""))
    assert found.name == "Example ?? 6 * 7 ???% set a = 1 %??# b #?"
    RecordFile(tmp_path / "provisioned.yml").note("gpu-01", Record("order1", bmc_serial=found.serial))
    words = ["-m", "ansible", "adhoc", "-i", str(tmp_path), "gpu-01", "-m", "debug", "-a", "var=provisioned.bmc_serial"]
    shown = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout
    assert found.serial in shown
    assert "42" not in shown


def test_several_systems_need_a_name(documents):
    documents[f"{ROOT}/Systems"]["Members"].append({"@odata.id": f"{ROOT}/Systems/HGX_Baseboard_0"})
    with pytest.raises(
        RedfishError, match=r"lists 2 systems; name one with provision\.system: /redfish/v1/Systems/1, "
    ):
        survey(documents, read_server(""))
    documents[f"{ROOT}/Systems"]["Members"] = []
    with pytest.raises(RedfishError, match="it has none"):
        survey(documents, read_server(""))


@pytest.mark.parametrize("power", [None, 7, "Sleeping", "\x1b[2J"])
def test_an_unknown_power_state_is_never_taken_for_off(documents, power):
    documents[SYSTEM]["PowerState"] = power
    with pytest.raises(RedfishError, match="shows the power state"):
        survey(documents, read_server(""))


def test_a_system_that_is_not_there_is_named(documents):
    with pytest.raises(RedfishError, match="has no system /redfish/v1/Systems/9"):
        survey(documents, read_server(f"{ROOT}/Systems/9"))


def test_hostile_disks_are_bounded_and_printable(documents):
    drives = [f"{SYSTEM}/Storage/1/Drives/{number}" for number in range(500)]
    documents[f"{SYSTEM}/Storage/1"]["Drives"] = [{"@odata.id": path} for path in drives]
    for path in drives:
        documents[path] = {"SerialNumber": "A\x1b[2J" + "x" * 1000, "Model": 7, "CapacityBytes": True}
    found = survey(documents, read_server(""))
    assert len(found.disks) == MOST_DISKS
    assert found.disks[0].serial.startswith("A?[2J")
    assert len(found.disks[0].serial) == 120
    assert (found.disks[0].model, found.disks[0].gigabytes) == ("", None)
