# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei's stand-in behaves as its installers and npu-smi do, and what it leaves is proven by the collection."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.host import inspect_host
from ansible_collections.baremetal.inference.plugins.module_utils.cann.proof import Expected, check_driver
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult

from tests.standins import modules
from tests.standins.build import main
from tests.standins.place import Place
from tests.standins.tool import answer
from tests.standins.vendors import huawei

KERNEL, NEXT = "6.1.0-40-amd64", "6.1.0-41-amd64"
DRIVER = "Ascend-hdk-910b-npu-driver_{}_linux-x86-64.run"
OLD, NEW = "25.5.1", "26.0.rc1"
OLD_FIRMWARE = "Ascend-hdk-910b-npu-firmware_7.8.0.6.201.run"
NEW_FIRMWARE = "Ascend-hdk-910b-npu-firmware_9.0.0.0.205.run"
FULL = ["--full", "--install-for-all", "--quiet"]
UPGRADE = ["--upgrade", "--quiet"]
TOOLS = ("npu-smi", "dkms", "modinfo")


def host(tmp_path, machine="atlas_a2"):
    """Return a host with headers of its kernel and the user that installers want."""
    main(["--root", str(tmp_path), "tree", machine, "--kernel", KERNEL])
    place = Place(tmp_path)
    (tmp_path / f"lib/modules/{KERNEL}/build").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=debian\nVERSION_ID=12\n")
    (tmp_path / "etc/passwd").write_text("HwHiAiUser:x:1000:1000::/home/HwHiAiUser:/bin/bash\n")
    (tmp_path / "etc/group").write_text("HwHiAiUser:x:1000:\n")
    return place


@pytest.fixture
def place(tmp_path):
    return host(tmp_path)


def run(place, file, argv):
    return huawei.VENDOR.install(file, argv, place)


def findings(place):
    """Return what the collection finds on the host, with the stand-in's tools."""

    def ask(argv):
        if argv[0] == "npu-smi" and not (place.root / "usr/local/bin/npu-smi").exists():
            return CommandResult(127)
        if argv[0] not in TOOLS:
            return CommandResult(127)
        said = answer(argv[0], list(argv[1:]), place)
        return CommandResult(said.rc, said.out, said.err)

    recording = inspect_host(str(place.root), str(place.sys), str(place.proc), run=ask)
    return [finding.what for finding in check_driver(recording, Expected(driver="25.5.1"))]


def installed(place):
    assert run(place, DRIVER.format(OLD), FULL).rc == 0
    assert run(place, OLD_FIRMWARE, ["--full", "--quiet"]).rc == 0
    return place


@pytest.mark.parametrize("machine", ["atlas_a2", "atlas_a3"])
def test_what_installers_leave_is_proven(tmp_path, machine):
    assert findings(installed(host(tmp_path, machine))) == []


def test_firmware_and_then_the_driver_take_the_place_of_others(place):
    installed(place)
    assert run(place, NEW_FIRMWARE, UPGRADE).rc == 0
    assert findings(place) == []
    assert run(place, DRIVER.format(NEW), UPGRADE).rc == 0
    assert findings(place) == []
    assert f"Version: {NEW}" in answer("npu-smi", ["info"], place).out


def test_a_chip_that_cannot_be_started_anew_ends_with_2(place):
    installed(place)
    (place.state / "hot-reset-fails").touch()
    assert run(place, NEW_FIRMWARE, UPGRADE).rc == 2
    assert run(place, DRIVER.format(NEW), UPGRADE).rc == 2
    assert f"driver {OLD} runs, {NEW} is installed" in findings(place)
    (place.state / "hot-reset-fails").unlink()
    main(["--root", str(place.root), "boot"])
    assert findings(place) == []


@pytest.mark.parametrize(
    ("file", "argv", "words"),
    [
        (DRIVER.format(OLD), ["--full", "--force-it", "--quiet"], "unrecognized parameter --force-it"),
        (DRIVER.format(OLD), ["--full"], "Do you accept the EULA"),
        (DRIVER.format(OLD), ["--quiet"], "one of --full, --install and --upgrade is needed"),
        (DRIVER.format(OLD), ["--upgrade", "--install-for-all", "--quiet"], "--upgrade goes with none of"),
        (DRIVER.format(OLD), UPGRADE, "no driver is installed"),
        (DRIVER.format(OLD), ["--full", "--quiet", "--install-username=npu"], "npu not exists!"),
        (OLD_FIRMWARE, ["--full", "--quiet"], "the driver has to be installed before the firmware"),
        (OLD_FIRMWARE, ["--full", "--install-for-all", "--quiet"], "unrecognized parameter --install-for-all"),
        ("Ascend-cann-910b-ops_9.1.0_linux-x86-64.run", ["--full", "--quiet"], "unrecognized parameter --full"),
        ("Ascend-cann-910b-ops_9.1.0_linux-x86-64.run", ["--install", "--quiet"], "ASCEND_HOME_PATH is not set"),
    ],
)
def test_what_installers_refuse(place, file, argv, words):
    said = run(place, file, argv)
    assert said.rc == 1
    assert words in said.err
    assert words in (place.root / "var/log/ascend_seclog/ascend_install.log").read_text()


def test_an_installer_without_headers(place):
    (place.root / f"lib/modules/{KERNEL}/build").rmdir()
    assert run(place, DRIVER.format(OLD), FULL).rc == 1
    assert "the installation of driver 25.5.1 was not completed" in findings(place)


def test_faults_of_chips(place):
    installed(place)
    first, second = place.machine().chips()[:2]
    (place.state / "lost-chip").write_text(first)
    assert findings(place) == ["npu-smi lists 7 of 8 chips on PCI; the driver is not bound to it"]
    (place.state / "lost-chip").unlink()
    (place.state / "alarm").write_text(second)
    assert findings(place) == ["health is Alarm, error 0x80E18402"]


def test_a_driver_that_is_not_loaded(place):
    installed(place)
    for name in reversed(list(huawei.VENDOR.autoload)):
        assert modules.unload(place, name).rc == 0
    assert [what[:30] for what in findings(place)] == [
        "driver 25.5.1 is on disk and n",
        "npu-smi cannot reach the drive",
    ]


def test_a_kernel_that_has_no_module(place):
    installed(place)
    main(["--root", str(place.root), "boot", "--kernel", NEXT])
    assert findings(place)[0] == f"no driver is loaded: there is no module for kernel {NEXT}"


def test_parts_of_cann(place, monkeypatch):
    file = "Ascend-cann-{}_9.1.0_linux-x86-64.run".format
    assert run(place, file("toolkit"), ["--full", "--quiet"]).rc == 0
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend/cann")
    assert run(place, file("910b-ops"), ["--install", "--quiet"]).rc == 0
    assert run(place, file("nnal"), ["--install", "--quiet"]).rc == 0
    recording = inspect_host(str(place.root), str(place.sys), str(place.proc), run=lambda argv: CommandResult(127))
    assert recording.installed.cann == {"toolkit": "9.1.0", "ops": "9.1.0", "nnal": "9.1.0"}


def test_repositories_and_files(tmp_path):
    words = ["--version", OLD, "--version", NEW, "--set", "cann=9.1.0"]
    main(["mirror", "huawei", str(tmp_path / "m"), "--kernel", KERNEL, *words])
    site = tmp_path / "m/debian"
    assert (site / "cann-keyring_1.0.0_all.deb").exists()
    index = (site / "dists/hdk/main/binary-amd64/Packages").read_text()
    for line in (
        "Package: ascend910b-driver\nVersion: 26.0.rc1",
        "Package: ascend910b-firmware\nVersion: 7.8.0.6.201",
        "Package: net-tools\n",
        f"Package: linux-headers-{KERNEL}\n",
    ):
        assert line in index
    assert "Package: ascend-cann-910b-ops\n" in (site / "dists/cann/main/binary-amd64/Packages").read_text()
    main(["run-files", "huawei", str(tmp_path / "f"), *words, "--set", "chip=A3"])
    names = {line.split()[1] for line in (tmp_path / "f/SHA256SUMS").read_text().splitlines()}
    assert "Ascend-hdk-A3-npu-firmware_9.0.0.0.205.run" in names
    assert len(names) == 7
