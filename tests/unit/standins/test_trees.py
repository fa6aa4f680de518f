# SPDX-License-Identifier: GPL-3.0-or-later
"""The trees of machines: every folder builds one, in the shape that detection reads."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import read_functions

from tests.standins import trees
from tests.standins.build import main
from tests.standins.place import MACHINES, Machine, Place

NAMES = sorted(path.name for path in MACHINES.iterdir())


@pytest.fixture(autouse=True)
def accounts(tmp_path):
    """A host has groups."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").touch()


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_whole(tmp_path, name):
    machine = Machine.load(name)
    assert len(machine.chips()) in (2, 4, 8, 16)
    for group in machine.functions:
        nodes = group.get("numa", 0)
        assert not isinstance(nodes, list) or len(nodes) == len(group["addresses"]), group
        assert all(node < trees.numa_nodes(machine) for node in (nodes if isinstance(nodes, list) else [nodes]))
    places = [address for group in machine.functions for address in group["addresses"]]
    assert len(set(places)) == len(places)
    assert set(machine.boot_modules) <= set(machine.kernel_modules)
    main(["--root", str(tmp_path), "tree", name])
    found = {function.address: function for function in read_functions(str(tmp_path / "standin/sys"))}
    assert sorted(found) == sorted(places)
    assert all(found[address].id in machine.chip["ids"] for address in machine.chips())


def test_a_machine_that_is_not_there_is_named_with_those_that_are(tmp_path):
    with pytest.raises(SystemExit, match=r"no machine hgx_h300; there are .*hgx_h200"):
        main(["--root", str(tmp_path), "tree", "hgx_h300"])


def test_a_tree_that_is_made_anew_has_nothing_of_the_old_one(tmp_path):
    place = Place(tmp_path)
    main(["--root", str(tmp_path), "tree", "hgx_h200"])
    (place.state / "mismatch").touch()
    main(["--root", str(tmp_path), "tree", "r9700", "--kernel", "6.12.0-1-amd64"])
    assert [function.vendor_id for function in read_functions(str(place.sys))] == ["1002", "1002"]
    assert place.kernel() == "6.12.0-1-amd64"
    assert place.fault("mismatch") is None
    assert place.machine().name == "r9700"


def test_functions_come_and_go(tmp_path):
    main(["--root", str(tmp_path), "tree", "l40s_pcie"])
    main(["--root", str(tmp_path), "function", "0000:c1:00.0", "10de:1db6"])
    sysfs = str(tmp_path / "standin/sys")
    assert "10de:1db6" in {function.id for function in read_functions(sysfs)}
    main(["--root", str(tmp_path), "function", "0000:c1:00.0", "--remove"])
    assert "10de:1db6" not in {function.id for function in read_functions(sysfs)}


def test_another_boot_has_another_id_and_kernel_and_only_the_modules_of_boot(tmp_path):
    place = Place(tmp_path)
    main(["--root", str(tmp_path), "tree", "hgx_b200"])
    before = place.read("proc/sys/kernel/random/boot_id")
    place.write({"sys/module/nouveau/refcnt": "0"})
    main(["--root", str(tmp_path), "boot", "--kernel", "6.1.0-41-amd64"])
    assert place.read("proc/sys/kernel/random/boot_id") not in ("", before)
    assert place.kernel() == "6.1.0-41-amd64"
    assert [path.name for path in (place.sys / "module").iterdir()] == ["mlx5_core"]


def test_the_management_ports_of_nvlink_5_show_in_a_b200_only(tmp_path):
    from ansible_collections.baremetal.inference.plugins.module_utils.cuda.host import has_management_port

    shown = {}
    for name in ("hgx_b200", "hgx_h200"):
        main(["--root", str(tmp_path / name), "tree", name])
        shown[name] = has_management_port(str(tmp_path / name / "standin/sys"))
    assert shown == {"hgx_b200": True, "hgx_h200": False}
