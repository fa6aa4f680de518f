# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in of NVIDIA's driver and tools, read by the collection's own parsers."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.answers import QUERY, parse_query, parse_report
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.proof import TOOL_ERRORS

from tests.fakes.nvidia import H200_QUERY
from tests.standins import daemons, modules, trees
from tests.standins.packages import dkms_conf
from tests.standins.place import Machine, Place
from tests.standins.tool import answer
from tests.standins.vendors import nvidia_smi
from tests.standins.vendors.nvidia import LICENCES, MODULES

VERSION = "580.95.05"
ASKED = [f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]


def machine(tmp_path, name, kind="open"):
    """Return a machine with a driver that is loaded."""
    place = Place(tmp_path)
    trees.write_machine(place, Machine.load(name))
    source = place.root / f"usr/src/nvidia-{VERSION}/dkms.conf"
    source.parent.mkdir(parents=True)
    source.write_text(dkms_conf("nvidia", VERSION, MODULES, LICENSE=LICENCES[kind]))
    (place.root / "lib/modules" / place.kernel() / "build").mkdir(parents=True)
    library = place.root / nvidia_smi.LIBRARY
    library.parent.mkdir(parents=True)
    library.write_text(VERSION)
    assert modules.dkms(["standin-install", "nvidia", VERSION], place).rc == 0
    assert modules.modprobe(["nvidia"], place).rc == 0
    return place


@pytest.mark.parametrize(
    ("name", "count", "title"),
    [
        ("hgx_a100", 8, "NVIDIA A100-SXM4-80GB"),
        ("hgx_h100", 8, "NVIDIA H100 80GB HBM3"),
        ("hgx_h200", 8, "NVIDIA H200"),
        ("hgx_b200", 8, "NVIDIA B200"),
        ("l40s_pcie", 4, "NVIDIA L40S"),
    ],
)
def test_every_chip_of_a_machine_is_listed_and_reported(tmp_path, name, count, title):
    place = machine(tmp_path, name)
    chips = place.machine().chips()
    gpus = parse_query(answer("nvidia-smi", ASKED, place).out)
    assert [gpu.address for gpu in gpus] == chips
    assert {(gpu.name, gpu.driver_version) for gpu in gpus} == {(title, VERSION)}
    assert len({gpu.uuid for gpu in gpus}) == count
    reports = parse_report(answer("nvidia-smi", ["-q", "-x"], place).out)
    assert [report.address for report in reports] == chips


def test_the_line_of_a_chip_has_the_form_of_the_recorded_one(tmp_path):
    line = answer("nvidia-smi", ASKED, machine(tmp_path, "hgx_h200")).out.splitlines()[0].split(", ")
    recorded = H200_QUERY.split(", ")
    same = [number for number, name in enumerate(QUERY) if name not in ("uuid", "driver_version", "pci.bus_id")]
    assert [line[number] for number in same] == [recorded[number] for number in same]
    assert len(line) == len(recorded)


@pytest.mark.parametrize(("name", "status", "memory"), [("hgx_h200", "Enabled", (16384,) * 7), ("l40s_pcie", "", ())])
def test_a_chip_that_can_be_divided_has_the_mig_instances_of_the_file(tmp_path, name, status, memory):
    place = machine(tmp_path, name)
    (place.state / "mig").write_text("16384 " * 7)
    reports = parse_report(answer("nvidia-smi", ["-q", "-x"], place).out)
    assert {(report.mig, report.mig_pending, report.mig_memory) for report in reports} == {(status, status, memory)}
    assert {gpu.mig for gpu in parse_query(answer("nvidia-smi", ASKED, place).out)} == {status or "[N/A]"}


def test_chips_join_the_fabric_once_the_manager_of_the_drivers_version_runs(tmp_path):
    place = machine(tmp_path, "hgx_h200")

    def states():
        reports = parse_report(answer("nvidia-smi", ["-q", "-x"], place).out)
        return {f"{report.fabric} {report.fabric_status}".strip() for report in reports}

    assert states() == {"In Progress"}
    wrong = answer("nvidia-fabricmanager", ["580.159.04"], place)
    assert (wrong.rc, wrong.daemon) == (1, ())
    assert "don't match with driver version 580.95.05" in wrong.err
    right = answer("nvidia-fabricmanager", [VERSION], place)
    daemons.enter(place, 1, "nvidia-fabricmanager", right.daemon, right.note, cgroup="0::/")
    assert states() == {"Completed Success"}


@pytest.mark.parametrize(
    ("fault", "text", "status"),
    [("mismatch", "", 18), ("no-driver", "", 9), ("lost-chip", "0000:1b:00.0", 15)],
)
def test_errors_are_those_that_the_proof_knows(tmp_path, fault, text, status):
    import re

    place = machine(tmp_path, "hgx_h200")
    (place.state / fault).write_text(text)
    said = answer("nvidia-smi", ASKED, place)
    assert said.rc == status
    assert any(re.search(pattern, said.out) for pattern, _what, _action in TOOL_ERRORS)


def test_tools_that_are_newer_than_what_is_loaded_say_so(tmp_path):
    place = machine(tmp_path, "l40s_pcie")
    (place.root / nvidia_smi.LIBRARY).write_text("580.159.04")
    assert "Driver/library version mismatch" in answer("nvidia-smi", [], place).out


@pytest.mark.parametrize(("kind", "listed"), [("open", 4), ("proprietary", 5)])
def test_the_open_modules_leave_a_v100_alone(tmp_path, kind, listed):
    place = machine(tmp_path, "l40s_pcie", kind)
    trees.add_function(place, "0000:c1:00.0", {"id": "10de:1db6", "class": "030200"})
    assert len(parse_query(answer("nvidia-smi", ASKED, place).out)) == 4
    modules.modprobe(["-r", "nvidia"], place)
    modules.modprobe(["nvidia"], place)
    assert len(parse_query(answer("nvidia-smi", ASKED, place).out)) == listed
    said = place.read("proc/driver/nvidia/version")
    assert ("Open Kernel Module" in said) == (kind == "open")


@pytest.mark.parametrize(("options", "state"), [([], "Enabled"), (["--no-persistence-mode"], "Disabled")])
def test_the_persistence_daemon_decides_on_the_mode(tmp_path, options, state):
    place = machine(tmp_path, "l40s_pcie")
    said = answer("nvidia-persistenced", options, place)
    daemons.enter(place, 1, "nvidia-persistenced", said.daemon, said.note, cgroup="0::/")
    (first, *_rest) = parse_report(answer("nvidia-smi", ["-q", "-x"], place).out)
    assert first.persistence == state
    assert modules.rmmod(["nvidia"], place).rc == 1
