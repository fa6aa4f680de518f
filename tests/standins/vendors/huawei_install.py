# SPDX-License-Identifier: GPL-3.0-or-later
"""What Huawei's .run files do with a host: driver, firmware and CANN, by their options and their statuses.

0 is installed and running, 1 failed, 2 installed and the chips have to be started anew.
"""

from __future__ import annotations

import os
import re
from typing import Sequence

from tests.standins import modules
from tests.standins.packages import dkms_conf, stub, write
from tests.standins.place import Answer, Place

MODULE = "drv_davinci_intf_host"
MODULES = {"drv_seclib_host": "", MODULE: "drv_seclib_host", "drv_devmng_host": MODULE}
DKMS = ("davinci_ascend", "1.0")
HOME = "usr/local/Ascend"
INFO = "etc/ascend_install.info"
LOG = "var/log/ascend_seclog/ascend_install.log"
FIRMWARE = {"25.5.1": "7.8.0.6.201", "26.0.rc1": "9.0.0.0.205"}
# What a driver takes, by its first number.
TAKES = {"25": "[7.0.0,8.9.9]", "26": "[7.0.0,9.9.99]"}
NAMES = {
    "driver": "Ascend-hdk-{chip}-npu-driver_{version}_linux-{arch}.run",
    "firmware": "Ascend-hdk-{chip}-npu-firmware_{version}.run",
    "toolkit": "Ascend-cann-toolkit_{version}_linux-{arch}.run",
    "ops": "Ascend-cann-{chip}-ops_{version}_linux-{arch}.run",
    "nnal": "Ascend-cann-nnal_{version}_linux-{arch}.run",
}
WORDS = {
    "driver": ("--full", "--install-for-all", "--quiet", "--upgrade", "--install-username", "--install-usergroup"),
    "firmware": ("--full", "--quiet", "--upgrade"),
    "toolkit": ("--full", "--install", "--quiet"),
    "ops": ("--install", "--quiet"),
    "nnal": ("--install", "--quiet"),
}
MODES = ("--full", "--install", "--upgrade")
HOMES = {
    "toolkit": "cann/{arch}-linux/ascend_toolkit_install.info",
    "ops": "cann/{arch}-linux/ascend_ops_install.info",
    "nnal": "nnal/atb/latest/version.info",
}


class InstallError(Exception):
    """An installer gives up; the text is what it says."""


def firmware_of(version: str) -> str:
    """Return the number of the firmware that a driver came with."""
    return FIRMWARE[version.lower()]


def file_name(component: str, chip: str, version: str, arch: str) -> str:
    """Return the name of a .run file."""
    return NAMES[component].format(chip=chip, version=version, arch=arch)


def install(file: str, argv: Sequence[str], place: Place) -> Answer:
    """Do what a .run file does. ``--package`` is the stand-in's own: a package's script calls it, new or not."""
    found = re.match(r".*?(driver|firmware|toolkit|ops|nnal)_([^_]+?)(_linux-.*)?\.run$", file)
    assert found, file
    component, version = found.group(1), found.group(2)
    try:
        words = _words(component, argv, place)
        _check(component, words, place)
        if component == "driver":
            return _driver(version, words, place)
        if component == "firmware":
            return _firmware(version, words, place)
        return _cann(component, version, argv, place)
    except InstallError as exc:
        _log(place, f"[ERROR]{exc}")
        return Answer(1, err=f"[ERROR]{exc}\n")


def _words(component: str, argv: Sequence[str], place: Place) -> dict[str, str]:
    """Return options with their values; a package's script calls what fits."""
    given = {name: value for name, _equals, value in (word.partition("=") for word in argv)}
    if "--package" not in given:
        return given
    if component in ("driver", "firmware"):
        there = read(place, component).get("Version")
        return {"--upgrade": ""} if there else {"--full": "", "--quiet": ""}
    return {"--full" if component == "toolkit" else "--install": "", "--quiet": ""}


def _check(component: str, words: dict[str, str], place: Place) -> None:
    unknown = [word for word in words if word not in WORDS[component]]
    if unknown:
        raise InstallError(f"unrecognized parameter {unknown[0]}, try --help for more information")
    if len([word for word in words if word in MODES]) != 1:
        raise InstallError("one of --full, --install and --upgrade is needed")
    if "--quiet" not in words and "--upgrade" not in words:
        raise InstallError("Do you accept the EULA? [y/n]: no answer")
    if "--upgrade" in words and any(word.startswith("--install") for word in words):
        raise InstallError("--upgrade goes with none of --install-username, --install-usergroup, --install-for-all")
    failure = place.fault("installer-fails")
    if failure is not None:
        raise InstallError(failure or "something went wrong")


def _driver(version: str, words: dict[str, str], place: Place) -> Answer:
    user = words.get("--install-username", "HwHiAiUser")
    group = words.get("--install-usergroup", user)
    if not re.search(f"^{user}:", (place.root / "etc/passwd").read_text(), re.MULTILINE):
        raise InstallError(f"{user} not exists! Please add {user} first")
    if "--upgrade" in words and not read(place, "driver"):
        raise InstallError("no driver is installed, --upgrade has nothing to upgrade")
    (place.root / INFO).unlink(missing_ok=True)
    _driver_files(version, place)
    name, number = DKMS
    write(place.root / f"usr/src/{name}-{number}/dkms.conf", dkms_conf(name, number, MODULES, MODULE_VERSION=version))
    modules.dkms(["remove", f"{name}/{number}", "--all"], place)
    built = modules.dkms(["standin-install", name, number], place)
    if built.rc:
        raise InstallError(f"Drivers dkms install failed, details in : /var/lib/dkms/{name}/{number}/build/make.log")
    if not modules.info(place, MODULE, place.kernel()):
        raise InstallError(f"no header of kernel {place.kernel()}: dkms has built nothing for it")
    text = f"UserName={user}\nUserGroup={group}\nDriver_Install_Path_Param=/{HOME}\n"
    every = "yes" if "--install-for-all" in words else "no"
    write(
        place.root / INFO,
        f"Driver_Install_Type=full\n{text}Driver_Install_For_All={every}\nDriver_Install_Status=complete\n",
    )
    return _reset(place, f"Driver package {version} installed")


def _driver_files(version: str, place: Place) -> None:
    takes = TAKES[version.split(".")[0]]
    info = f"Version={version}\nascendhal_version=7.35.23\ncompatible_version_fw={takes}\npackage_version={version}\n"
    write(place.root / HOME / "driver/version.info", info)
    write(place.root / "usr/local/bin/npu-smi", stub("npu-smi"))
    write(place.root / "usr/local/dcmi/libdcmi.so", "stand-in\n")
    write(place.root / "usr/local/Ascend/driver/tools/hccn_tool", "stand-in\n")
    (place.root / HOME / "driver/lib64").mkdir(parents=True, exist_ok=True)


def _firmware(version: str, words: dict[str, str], place: Place) -> Answer:
    if not read(place, "driver"):
        raise InstallError("the driver has to be installed before the firmware")
    if "--upgrade" in words and not read(place, "firmware"):
        raise InstallError("no firmware is installed, --upgrade has nothing to upgrade")
    hdk = next(driver for driver, number in FIRMWARE.items() if number == version)
    write(
        place.root / HOME / "firmware/version.info",
        f"Version={version}\nfirmware_version=1.0\npackage_version={hdk}\n"
        "compatible_version_drv=[25.5,25.5.],[26.0,26.0.]\n",
    )
    return _reset(place, f"Firmware package {version} installed")


def _reset(place: Place, words: str) -> Answer:
    """Start the chips anew, with the driver and the firmware that are on disk now, where that can be done."""
    with_old = modules.loaded(place, MODULE) and modules.users(place, MODULE) > 0
    if place.fault("hot-reset-fails") is not None or with_old:
        _log(place, f"[INFO]{words} successfully! [WARNING]hot reset failed, reboot the host to take it into use")
        return Answer(2, f"{words} successfully! Reboot needed.\n")
    for name in reversed(list(MODULES)):
        modules.unload(place, name)
    for name in MODULES:
        modules.load(place, name)
    _log(place, f"[INFO]{words} successfully!")
    return Answer(0, f"{words} successfully!\n")


def _cann(component: str, version: str, argv: Sequence[str], place: Place) -> Answer:
    # A package's script reads it itself.
    if component != "toolkit" and "--package" not in argv and "ASCEND_HOME_PATH" not in os.environ:
        raise InstallError("ASCEND_HOME_PATH is not set, source set_env.sh of the toolkit first")
    home = place.root / HOME
    arch = os.uname().machine
    if component == "toolkit":
        whole = home / f"cann-{version}"
        whole.mkdir(parents=True, exist_ok=True)
        (home / "ascend-toolkit").mkdir(exist_ok=True)
        for link, target in (("cann", f"cann-{version}"), ("ascend-toolkit/latest", f"../cann-{version}")):
            (home / link).unlink(missing_ok=True)
            (home / link).symlink_to(target)
        write(home / "ascend-toolkit/set_env.sh", f"export ASCEND_HOME_PATH=/{HOME}/cann-{version}\n")
    elif not (home / "cann").exists():
        raise InstallError(f"install the toolkit before the {component}")
    info = f"package_name=Ascend-cann-{component}\nversion={version}\narch={arch}\n"
    write(home / HOMES[component].format(arch=arch), info)
    return Answer(0, f"Ascend-cann-{component} {version} installed\n")


def read(place: Place, component: str) -> dict[str, str]:
    """Return what the version.info of driver or firmware says, nothing where it is not installed."""
    file = place.root / HOME / component / "version.info"
    return dict(re.findall(r"^(\w+)=(.*)$", file.read_text(), re.MULTILINE)) if file.exists() else {}


def run_firmware(place: Place) -> None:
    """Let the chips start with the firmware that is installed."""
    (place.state / "firmware-runs").write_text(read(place, "firmware").get("Version", ""))


def make_nodes(place: Place) -> None:
    """Make the chips' devices; plain files do for who looks whether they are there."""
    dev = place.root / "dev"
    dev.mkdir(exist_ok=True)
    count = len(place.machine().chips())
    for name in (*(f"davinci{number}" for number in range(count)), "davinci_manager", "devmm_svm", "hisi_hdc"):
        if not (dev / name).exists():
            (dev / name).touch()


def _log(place: Place, words: str) -> None:
    file = place.root / LOG
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a") as stream:
        stream.write(f"[Driver] [2026-11-21 12:00:00] {words}\n")
