# SPDX-License-Identifier: GPL-3.0-or-later
"""What npu-smi says of a machine, in the forms that hosts with such chips have shown."""

from __future__ import annotations

from typing import Sequence

from tests.standins.modules import loaded
from tests.standins.place import Answer, Place
from tests.standins.vendors import huawei_install

FAILED = "DrvMngGetConsoleLogLevel failed. (ret=4)\ndcmi module initialize failed. ret is -8005\n"
LINE = "+---------------------------+---------------+----------------------------------------------------+\n"
DOUBLE = "+===========================+===============+====================================================+\n"
HEAD = (
    "+------------------------------------------------------------------------------------------------+\n"
    "| npu-smi {version:<17} Version: {version:<59}|\n"
    f"{LINE}"
    "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
    "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
    f"{DOUBLE}"
)
ROW = (
    "| {npu:<6}{name:<19} | {health:<13} | 86.0        40                0    / 0             |\n"
    "| {die:<25} | {address:<13} | 0           0    / 0          3402 / {memory:<14}|\n"
    f"{DOUBLE}"
)
TAIL = (
    f"{LINE}| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |\n"
    f"{DOUBLE}"
    f"| {'No running processes found in NPU 0':<95}|\n{DOUBLE}"
)
PCIE_COUNTERS = ("TX Error Count", "RX Error Count", "Lcrc Error Count", "Ecrc Error Count", "Retry Count")
FIELD = "\t{name:<30} : {value}\n"


def answer(argv: Sequence[str], place: Place) -> Answer:
    """Say what npu-smi says: ``info``, ``info -l``, ``info -m``, ``info -t TYPE -i N [-c N]``."""
    if not loaded(place, huawei_install.MODULE):
        return Answer(255, FAILED)
    words = list(argv)
    if words == ["info"]:
        return Answer(out=_table(place))
    if words == ["info", "-l"]:
        return Answer(out=_cards(place))
    if words == ["info", "-m"]:
        return Answer(out=_mapping(place))
    if words[:3] == ["info", "-t", "board"]:
        return Answer(out=_board(place, words[4]))
    if words[:3] == ["info", "-t", "ecc"]:
        return Answer(out=_ecc(place, words[4], words[6]))
    if words[:3] == ["info", "-t", "pcie-err"]:
        return Answer(out=_fields({"NPU ID": words[4], **dict.fromkeys(PCIE_COUNTERS, "0")}))
    if words[:3] == ["info", "-t", "hccs"]:
        links = f"[{' '.join('0' for _link in range(7))}]"
        return Answer(out=_fields({"hccs health status": "OK", "hccs retry count": links, "hccs error count": links}))
    if words[:3] == ["info", "-t", "health"]:
        return Answer(out=_fields({"Health": "Alarm", "Error Code": "0x80E18402"}))
    return Answer(1, f"Error parameter of {words[-1]}\n")


def _chips(place: Place) -> list[tuple[int, int, str]]:
    """Return card, die and address of each chip that the driver has taken."""
    machine = place.machine()
    dies = machine.chip["chips_per_card"]
    lost = place.fault("lost-chip")
    numbered = [(number // dies, number % dies, address) for number, address in enumerate(machine.chips())]
    return [chip for chip in numbered if chip[2] != lost]


def _fields(values: dict[str, str]) -> str:
    return "".join(FIELD.format(name=name, value=value) for name, value in values.items())


def _version(place: Place) -> str:
    return place.read(f"sys/module/{huawei_install.MODULE}/version")


def _table(place: Place) -> str:
    chip = place.machine().chip
    ill = place.fault("alarm")
    rows = [
        ROW.format(
            npu=npu,
            die=die,
            name=chip["name"],
            health="Alarm" if address == ill else "OK",
            address=address.upper(),
            memory=chip["memory_mib"],
        )
        for npu, die, address in _chips(place)
    ]
    return HEAD.format(version=_version(place)) + "".join(rows) + TAIL


def _cards(place: Place) -> str:
    cards: dict[int, int] = {}
    for npu, _die, _address in _chips(place):
        cards[npu] = cards.get(npu, 0) + 1
    whole = _fields({"Total Count": str(len(cards))})
    return whole + "".join(f"\n{_fields({'NPU ID': str(npu), 'Chip Count': str(n)})}" for npu, n in cards.items())


def _mapping(place: Place) -> str:
    machine = place.machine()
    dies = machine.chip["chips_per_card"]
    head = f"\t{'NPU ID':<30} {'Chip ID':<30} {'Chip Logic ID':<30} Chip Name\n"
    rows = []
    for npu, die, _address in _chips(place):
        rows.append((npu, die, str(npu * dies + die), f"Ascend {machine.chip['name']}"))
        if die == dies - 1:
            rows.append((npu, dies, "-", "Mcu"))
    return head + "".join(f"\t{npu:<30} {die:<30} {logic:<30} {name}\n" for npu, die, logic, name in rows)


def _ecc(place: Place, npu: str, die: str) -> str:
    """Return the memory errors of a chip; fault ``ecc``: ADDRESS COUNT."""
    fault, _blank, count = (place.fault("ecc") or "").partition(" ")
    numbers = {address: (str(card), str(chip)) for card, chip, address in _chips(place)}
    double = count if numbers.get(fault) == (npu, die) else "0"
    return _fields(
        {
            "NPU ID": npu,
            "HBM Single Bit Error Count": "0",
            "HBM Double Bit Error Count": double,
            "HBM Single Bit Aggregate Total Err Cnt": "0",
            "HBM Double Bit Aggregate Total Err Cnt": double,
            "HBM Single Bit Isolated Pages Count": "0",
            "HBM Double Bit Isolated Pages Count": "0",
            "Chip ID": die,
        }
    )


def _board(place: Place, npu: str) -> str:
    address = next((address for card, _die, address in _chips(place) if str(card) == npu), "")
    runs = place.state / "firmware-runs"
    firmware = place.fault("old-firmware") or (runs.read_text() if runs.exists() else "")
    return _fields(
        {
            "NPU ID": npu,
            "Software Version": _version(place),
            "Firmware Version": firmware,
            "Compatibility": "OK",
            "Board ID": "0x32",
            "PCIe Bus Info": address.upper(),
            "PCI Vendor ID": "0x19e5",
        }
    )
