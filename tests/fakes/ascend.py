# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with Ascend chips to show to modules: what npu-smi and Huawei's installers leave and say, in recorded forms.

The forms are those of hosts with 910B4, 910B3, A3 and 310P chips, as their users wrote them down; none was recorded by
the authors.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.fakes.nvidia import tool, write
from tests.fakes.sysfs import lines, write_sysfs

KERNEL = "5.15.0-25-generic"
VERSION, FIRMWARE = "26.0.rc1", "9.0.0.0.205"
UBUNTU = 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\n'
MODULE = "drv_davinci_intf_host"
INSTALL_INFO = """\
Driver_Install_Type=full
UserName=HwHiAiUser
UserGroup=HwHiAiUser
Driver_Install_Path_Param=/usr/local/Ascend
Driver_Install_For_All=yes
Driver_Install_Status=complete
"""
DRIVER_INFO = f"""\
Version={VERSION}
ascendhal_version=7.35.23
aicpu_version=1.0
tdt_version=1.0
Innerversion=V100R001C23SPC002B212
compatible_version=[V100R001C19],[V100R001C20],[V100R001C21],[V100R001C22],[V100R001C23]
compatible_version_fw=[6.4.0,6.4.99],[7.0.0,9.9.99]
package_version={VERSION}
"""
FIRMWARE_INFO = f"""\
Version={FIRMWARE}
firmware_version=1.0
package_version={VERSION}
compatible_version_drv=[24.1,24.1.],[25.0,25.0.],[26.0,26.0.]
"""
TOOLKIT_INFO = """\
package_name=Ascend-cann-toolkit
version={version}
innerversion=V100R001C25SPC001B212
compatible_version=[V100R001C15],[V100R001C18],[V100R001C19]
arch={arch}
os=linux
path=/usr/local/Ascend/cann-{version}/{arch}-linux
"""
HEAD = """\
+------------------------------------------------------------------------------------------------+
| npu-smi {version}          Version: {version}                                                  |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
"""
ROWS = """\
| {npu:<6}{name:<19} | {health:<13} | 86.0        40                0    / 0             |
| {chip:<25} | {address:<13} | 0           0    / 0          3402 / 65536         |
+===========================+===============+====================================================+
"""
DUO_ROWS = """\
| {npu:<7} {name:<21} | {health:<15} | NA           45                0     / 0             |
| {chip:<7} {device:<21} | {address:<15} | 0            1529 / {memory:<32} |
+===============================+=================+======================================================+
"""
# The form of npu-smi 25.7.rc1 for Ascend 950PR, as five public texts show it; the figures are made up.
TABLE_950 = """\
+-------------------------------------------------------------------------------------------------+
| npu-smi 25.7.rc1.6                               Version: 25.7.rc1.6                            |
+--------+------------------+---------------+-----------------------------------------------------+
| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |
+========+==================+===============+=====================================================+
| 0      | Ascend950PR      | OK            | 195.1       56                0     / 0             |
|        |                  | 0000:61:00.0  | 3           0    / 0          5240  / 131072        |
+========+==================+===============+=====================================================+
| 1      | Ascend950PR      | Alarm         | 207.2       65                0     / 0             |
|        |                  | 0000:71:00.0  | 7           0    / 0          5250  / 131072        |
+========+==================+===============+=====================================================+
+---------------------------+---------------+-----------------------------------------------------+
| NPU ID                    | Process id    | Process name             | Process memory(MB)       |
+===========================+===============+=====================================================+
| 0                         | 139667        | python                   | 30780                    |
+===========================+===============+=====================================================+
"""
PROCESSES = """\
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 139667        | python                   | 30780                   |
+===========================+===============+====================================================+
"""
BOARD = """\
\tNPU ID                         : {npu}
\tSoftware Version               : {version}
\tFirmware Version               : {firmware}
\tCompatibility                  : {compatibility}
\tBoard ID                       : 0x32
\tPCB ID                         : A
\tBOM ID                         : 1
\tPCIe Bus Info                  : 0000:{npu:02x}:00.0
\tPCI Vendor ID                  : 0x19e5
\tPCI Device ID                  : 0xD802
\tChip Count                     : 1
"""
MODINFO = (
    f"filename:       /lib/modules/{{kernel}}/updates/dkms/{MODULE}.ko\nlicense:        GPL\n"
    "srcversion:     AB12CD\nvermagic:       {kernel} SMP mod_unload modversions aarch64\n"
)
DPKG = "".join(
    f"{state}\t{name}\t{version}\n"
    for state, name, version in (
        ("hi ", "ascend910b-driver", VERSION),
        ("hi ", "ascend910b-firmware", FIRMWARE),
        *(("ii ", name, "1") for name in ("make", "gcc", "net-tools", "dkms")),
        ("ii ", f"linux-image-{KERNEL}", "5.15.0-25.25"),
        ("ii ", f"linux-headers-{KERNEL}", "5.15.0-25.25"),
        ("ii ", "bash", "5.1-6"),
    )
)


def table(addresses, name="910B4", ill=(), version=VERSION, dies=1):
    """Return ``npu-smi info`` of chips at these addresses; ``ill`` are the numbers of those that raise an alarm."""
    rows = [
        ROWS.format(
            npu=index // dies,
            chip=index % dies,
            name=name,
            health="Alarm" if index in ill else "OK",
            address=address.upper(),
        )
        for index, address in enumerate(addresses)
    ]
    return HEAD.format(version=version) + "".join(rows) + PROCESSES


def cards(count, chips=1):
    """Return ``npu-smi info -l``."""
    each = "\tNPU ID                         : {}\n\tChip Count                     : {}\n\n"
    return f"\tTotal Count                    : {count}\n\n" + "".join(each.format(n, chips) for n in range(count))


def mapping(count, dies=1, name="Ascend 910B4"):
    """Return ``npu-smi info -m``: of each card its chips, and the controller that is none."""
    head = "\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n"
    rows = []
    for card in range(count):
        rows += [f"\t{card:<30} {die:<30} {card * dies + die:<30} {name}\n" for die in range(dies)]
        rows.append(f"\t{card:<30} {dies:<30} {'-':<30} Mcu\n")
    return head + "".join(rows)


def npu_smi(directory, addresses, ill=(), dies=1, version=VERSION, firmware=FIRMWARE, compatibility="OK"):
    """Write an npu-smi that lists these chips."""
    count = len(addresses) // dies
    boards = [
        (
            f"'info -t board -i {npu}'",
            0,
            BOARD.format(npu=npu, version=version, firmware=firmware, compatibility=compatibility),
            "",
        )
        for npu in range(count)
    ]
    health = "\tHealth                         : Alarm\n\tError Code                     : 0x80E18402\n"
    tool(
        directory,
        "npu-smi",
        ("info", 0, table(addresses, ill=ill, version=version, dies=dies), ""),
        ("'info -l'", 0, cards(count, dies), ""),
        ("'info -m'", 0, mapping(count, dies), ""),
        *boards,
        ("'info -t health'*", 0, health, ""),
    )


def atlas_host(tmp_path, pci_id="19e5:d802", count=8, dies=1):
    """Write an Ubuntu host with Ascend chips and all that belongs to them; return its directory."""
    functions = lines(pci_id, count, pci_class="1200")
    write_sysfs(tmp_path / "sys", functions)
    addresses = [line.split()[0] for line in functions]
    write(tmp_path / f"sys/module/{MODULE}/srcversion", "AB12CD\n")
    write(tmp_path / "proc/sys/kernel/osrelease", f"{KERNEL}\n")
    write(tmp_path / "etc/os-release", UBUNTU)
    write(tmp_path / "etc/passwd", "root:x:0:0::/root:/bin/sh\nHwHiAiUser:x:1000:1000::/home/HwHiAiUser:/bin/bash\n")
    write(tmp_path / "etc/group", "root:x:0:\nHwHiAiUser:x:1000:\n")
    write(tmp_path / f"boot/vmlinuz-{KERNEL}", "")
    write(tmp_path / "etc/ascend_install.info", INSTALL_INFO)
    write(tmp_path / "usr/local/Ascend/driver/version.info", DRIVER_INFO)
    write(tmp_path / "usr/local/Ascend/firmware/version.info", FIRMWARE_INFO)
    (tmp_path / "usr/local/dcmi").mkdir()
    for node in [*(f"davinci{n}" for n in range(count)), "davinci_manager", "devmm_svm", "hisi_hdc"]:
        write(tmp_path / "dev" / node, "")
    bin_directory = tmp_path / "bin"
    npu_smi(bin_directory, addresses, dies=dies)
    tool(bin_directory, "dpkg-query", ("--show*", 0, DPKG, ""))
    tool(bin_directory, "apt-mark", ("showhold", 0, "ascend910b-driver\nascend910b-firmware\n", ""))
    tool(bin_directory, "dkms", ("status", 0, f"davinci_ascend/1.0, {KERNEL}, aarch64: installed\n", ""))
    tool(
        bin_directory,
        "modinfo",
        (f"'-k {KERNEL} {MODULE}'", 0, MODINFO.format(kernel=KERNEL), ""),
        ("*", 1, "", "modinfo: ERROR\n"),
    )
    tool(bin_directory, "systemctl", ("*", 0, "", ""))
    tool(bin_directory, "grubby", ("*", 127, "", ""))
    return tmp_path


def duo_table(name: str) -> str:
    """Return ``npu-smi info`` of the cards of tests/fixtures/atlas_300i_duo.yml, whose two chips show one bus id."""
    cards = yaml.safe_load((Path(__file__).parents[1] / "fixtures/atlas_300i_duo.yml").read_text())[name]
    keys = ("npu", "chip", "device", "address", "memory")
    return "".join(DUO_ROWS.format(name="310P3", health="OK", **dict(zip(keys, row))) for row in cards)
