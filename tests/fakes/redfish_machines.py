# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines as their BMCs show them: documents by path, as in DMTF's mock-up format.

None of these is a recording. They were written after recordings of real BMCs (iDRAC 9 of a PowerEdge R750 with an
H100, XCC of an SR670 with two A6000, OpenBMC of a GH200 and a GB300; iLO 6 of a DL380a with two H100 NVL, replayed by a
simulator), with the keys, links, oddities and levels of ``$expand`` that those have. Machines of which no recording was
found (HGX H200, MI300X, Atlas) follow the same makers' BMCs and the Redfish schema.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping

from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import Chips
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.reader import Answers
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.survey import survey

ROOT = "/redfish/v1"
Documents = Dict[str, Any]

ASPEED = ("1a03", "2000", "0x030000", "ASPEED Technology, Inc.")
MATROX = ("102b", "0536", "0x000003", "Matrox Electronics Systems Ltd.")
CONNECTX = ("15b3", "1021", "0x020000", "Mellanox Technologies")
NVME = ("1e0f", "0007", "0x010802", "KIOXIA Corporation")
CHIPSET = ("8086", "a190", "0x060400", "Intel Corporation")
NVSWITCH = ("10de", "22a3", "0x068000", "NVIDIA Corporation")
IBMC_VGA = ("19e5", "1711", "0x030000", "Huawei")


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


class Builder:
    """Collects documents. ``levels`` of ``$expand``: 0 for a BMC that has none."""

    def __init__(self, levels: int = 0, **root: Any) -> None:
        self.documents: Documents = {}
        features = {"ExpandAll": True, "Levels": True, "Links": True, "MaxLevels": levels, "NoLinks": True}
        self.put(ROOT, Id="RootService", RedfishVersion="1.15.0", **root)
        if levels:
            self.documents[ROOT]["ProtocolFeaturesSupported"] = {"ExpandQuery": features, "FilterQuery": True}
        for name in ("Systems", "Chassis"):
            self.documents[ROOT][name] = link(f"{ROOT}/{name}")
            self.collection(f"{ROOT}/{name}")

    def put(self, path: str, **document: Any) -> str:
        self.documents[path] = {"@odata.id": path, "@odata.type": "#Mockup.v1_0_0.Mockup", "Name": "x", **document}
        return path

    def collection(self, path: str) -> str:
        return self.put(path, **{"Members": [], "Members@odata.count": 0})

    def member(self, collection: str, name: str, **document: Any) -> str:
        path = self.put(f"{collection}/{name}", Id=name, **document)
        if collection not in self.documents:
            self.collection(collection)
        self.documents[collection]["Members"].append(link(path))
        self.documents[collection]["Members@odata.count"] += 1
        return path

    def system(self, name: str, cpus: int = 2, **document: Any) -> str:
        path = self.member(f"{ROOT}/Systems", name, Processors=link(f"{ROOT}/Systems/{name}/Processors"), **document)
        self.collection(f"{path}/Processors")
        for number in range(cpus):
            self.processor(path, f"CPU{number}", ProcessorType="CPU", Manufacturer="Intel", Model="Intel(R) Xeon(R)")
        return path

    def chassis(self, name: str, **document: Any) -> str:
        path = f"{ROOT}/Chassis/{name}"
        self.collection(f"{path}/PCIeDevices")
        return self.member(f"{ROOT}/Chassis", name, PCIeDevices=link(f"{path}/PCIeDevices"), **document)

    def processor(self, system: str, name: str, **document: Any) -> str:
        enabled = {"State": "Enabled", "Health": "OK"}
        return self.member(f"{system}/Processors", name, **{"Status": enabled, **document})

    def device(self, owner: str, name: str, chip: tuple[str, ...], functions: int = 1, **document: Any) -> list[str]:
        """Add a PCI device with its functions below a chassis or system; return the functions' paths."""
        vendor, device, code, maker = chip
        below = f"{owner}/PCIeDevices/{name}/PCIeFunctions"
        enabled = {"State": "Enabled", "Health": "OK"}
        whole = {"Status": enabled, "Manufacturer": maker, "PCIeFunctions": link(below), **document}
        self.member(f"{owner}/PCIeDevices", name, **whole)
        self.collection(below)
        ids = {"VendorId": f"0x{vendor}", "DeviceId": f"0x{device}", "ClassCode": code}
        return [
            self.member(below, str(number), **ids, FunctionType="Physical", FunctionId=number)
            for number in range(functions)
        ]


def hgx(device: str = "2335", name: str = "NVIDIA H200", count: int = 8, extra: tuple[str, ...] = ()) -> Documents:
    """An HGX host: its BMC shows the baseboard as its own system, and its chips again below the host's."""
    builder = Builder(levels=5, Vendor="AMI", Product="AMI Redfish Server")
    baseboard = builder.system("HGX_Baseboard_0", cpus=0)
    host = builder.system("Self", Links={"Chassis": [link(f"{ROOT}/Chassis/Self")]})
    chassis = builder.chassis("Self")
    builder.processor(baseboard, "FPGA_0", ProcessorType="FPGA", Manufacturer="NVIDIA")
    for number in range(1, count + 1):
        own = builder.chassis(f"HGX_GPU_SXM_{number}")
        chip = ("10de", device, "0x000000", "NVIDIA")
        (function,) = builder.device(own, f"GPU_SXM_{number}", chip, Model=name)
        builder.documents[function]["DeviceClass"] = "ProcessingAccelerators"
        builder.processor(
            *(baseboard, f"GPU_SXM_{number}"),
            ProcessorType="GPU",
            Manufacturer="NVIDIA",
            Model=name,
            PartNumber=f"{device}-885-A1",
            Links={
                "Chassis": link(own),
                "PCIeDevice": link(f"{own}/PCIeDevices/GPU_SXM_{number}"),
                "PCIeFunctions": [link(function)],
            },
        )
        builder.device(chassis, f"00_00_{number:02X}", ("10de", device, "0x030200", "NVIDIA Corporation"))
    for number, chip in enumerate([NVSWITCH] * 4 + [ASPEED] + [CONNECTX] * 10 + [NVME] * 8 + [CHIPSET] * 10, 32):
        builder.device(chassis, f"00_00_{number:02X}", chip)
    for number, pci_id in enumerate(extra, 128):
        builder.device(chassis, f"00_00_{number:02X}", ("10de", pci_id, "0x030200", "NVIDIA Corporation"))
    assert host
    return builder.documents


def idrac(chip: tuple[str, ...] = ("1002", "74a1", "0x000012", "AMD"), count: int = 8, virtual: int = 0) -> Documents:
    """A PowerEdge: the same devices below Systems and Chassis, the class written the wrong way round."""
    builder = Builder(levels=1, Vendor="Dell")
    chassis = builder.chassis("System.Embedded.1")
    devices: list[str] = []
    functions: list[str] = []
    system = builder.system("System.Embedded.1", Links={"Chassis": [link(chassis)]})
    for number in range(count):
        place = f"{number + 16}-0"
        found = builder.device(system, place, chip)
        builder.device(chassis, place, chip)
        for index in range(virtual):
            path = builder.member(f"{system}/PCIeDevices/{place}/PCIeFunctions", f"v{index}", FunctionType="Virtual")
            builder.documents[path].update(VendorId=f"0x{chip[0]}", DeviceId="0x74b5", ClassCode="0x000012")
            found.append(path)
        builder.processor(
            *(system, f"Video.Slot.{number + 21}-1"),
            ProcessorType="GPU",
            Manufacturer="Advanced Micro Devices, Inc. [AMD/ATI]",
            Model="AMD Instinct MI300X",
            PartNumber="102-G30211-0C",
            Links={"PCIeFunctions": [link(path) for path in found[:1]]},
        )
        devices.append(f"{system}/PCIeDevices/{place}")
        functions += found
    for number, other in enumerate([MATROX, CONNECTX, CONNECTX, NVME, CHIPSET]):
        functions += builder.device(system, f"{number + 200}-0", other)
        devices.append(f"{system}/PCIeDevices/{number + 200}-0")
    builder.documents[system]["PCIeDevices"] = [link(path) for path in devices]
    builder.documents[system]["PCIeFunctions"] = [link(path) for path in functions]
    del builder.documents[f"{system}/PCIeDevices"]  # it lists the devices in the system only
    return builder.documents


def xcc(device: str = "26b9", count: int = 4) -> Documents:
    """A ThinkSystem with L40S cards: processors without a model, linked to their functions."""
    builder = Builder(levels=2, Vendor="Lenovo")
    chassis = builder.chassis("1")
    system = builder.system("1", Links={"Chassis": [link(chassis)]})
    devices = [f"{chassis}/PCIeDevices/ob_1"]
    functions = builder.device(chassis, "ob_1", ("102b", "0522", "0x030000", ""))
    for number in range(count):
        found = builder.device(chassis, f"slot_{number + 4}", ("10de", device, "0x030200", "NVIDIA"))
        devices.append(f"{chassis}/PCIeDevices/slot_{number + 4}")
        functions += found
        links = {"PCIeFunctions": [link(path) for path in found], "PCIeFunctions@odata.count": 1}
        extra = {"ProcessorType": "GPU", "Manufacturer": "NVIDIA Corporation", "Model": None, "Status": None}
        builder.processor(system, f"GPU{number + 1}", Links=links, **extra)
    builder.documents[system]["PCIeDevices"] = [link(path) for path in devices]
    builder.documents[system]["PCIeFunctions"] = [link(path) for path in functions]
    return builder.documents


def ilo(name: str = "NVIDIA H100 NVL", device: str = "2321", count: int = 2) -> Documents:
    """A ProLiant: the model is a part number, nothing links processor and device, some links lead nowhere."""
    builder = Builder(levels=1, Vendor="HPE")
    chassis = builder.chassis("1")
    system = builder.system("1", Links={"Chassis": [link(f"{chassis}/")]})
    builder.device(chassis, "237", ("102B", "0538", "0X000003", ""))
    for number in range(count):
        part = "900-21010-0320-030"
        said = {"Manufacturer": "NVIDIA", "Model": part, "PartNumber": part, "Name": name, "ProcessorType": "GPU"}
        builder.processor(system, str(number + 3), **said)
        builder.device(chassis, str(number + 244), ("10DE", device, "0X000003", "NVIDIA"), Name=name)
    builder.documents[f"{chassis}/PCIeDevices"]["Members"].append(link(f"{chassis}/PCIeDevices/300"))
    return builder.documents


def ubb(count: int = 8) -> Documents:
    """A host with AMD's baseboard: its accelerators are processors with names, no PCI device is linked or listed."""
    builder = Builder(levels=6, Vendor="Supermicro")
    builder.system("1")
    baseboard = builder.system("UBB", cpus=0)
    for number in range(count):
        said = {"ProcessorType": "Accelerator", "Manufacturer": "AMD", "Model": "MI300X-O"}
        builder.processor(baseboard, f"OAM_{number}", **{**said, "Model": "AMD Instinct MI300X OAM"})
    return builder.documents


def ibmc(device: str = "d802", count: int = 8, name: str = "") -> Documents:
    """An Atlas: no ``$expand``, devices below the chassis; processors with a name where ``name`` is given."""
    builder = Builder(levels=0, Vendor="Huawei")
    chassis = builder.chassis("1")
    system = builder.system("1", Links={"Chassis": [link(chassis)]})
    builder.device(chassis, "PCIeDevice0", IBMC_VGA)
    for number in range(1, count + 1):
        if name:
            said = {"ProcessorType": "Accelerator", "Manufacturer": "Huawei", "Model": name}
            builder.processor(system, f"Npu{number}", **said)
        else:
            builder.device(chassis, f"PCIeCard{number}", ("19e5", device, "0x120000", "Huawei"))
    return builder.documents


def plain(levels: int = 0) -> Documents:
    """A server without accelerators: its display chip is the BMC's own."""
    builder = Builder(levels)
    chassis = builder.chassis("1")
    builder.system("1", Links={"Chassis": [link(chassis)]})
    for number, chip in enumerate([ASPEED, CONNECTX, NVME, NVME, CHIPSET, CHIPSET]):
        builder.device(chassis, f"D{number}", chip)
    return builder.documents


def enclosures(count: int = 4) -> Documents:
    """A baseboard's own BMC that lists no processors: its chips are devices of an enclosure each."""
    builder = Builder(levels=0)
    builder.system("HGX_Baseboard_0", cpus=0)
    for number in range(1, count + 1):
        own = builder.chassis(f"HGX_GPU_SXM_{number}")
        builder.device(own, f"GPU_SXM_{number}", ("10de", "2330", "0x030200", "NVIDIA"))
    for number in range(4):
        own = builder.chassis(f"HGX_NVSwitch_{number}")
        builder.device(own, f"NVSwitch_{number}", NVSWITCH)
    return builder.documents


# Each machine, and the models that are in it.
MACHINES: dict[str, tuple[Callable[[], Documents], dict[str, int]]] = {
    "HGX H200": (hgx, {"h200": 8}),
    "HGX H100": (lambda: hgx("2330", "NVIDIA H100 80GB HBM3"), {"h100": 8}),
    "HGX H200 and two L40S": (lambda: hgx(extra=("26b9", "26b9")), {"h200": 8, "l40s": 2}),
    "XE9680 with MI300X": (idrac, {"mi300x": 8}),
    "XE9680 with MI300X, virtual functions": (lambda: idrac(virtual=2), {"mi300x": 8}),
    "MI300X, names only": (ubb, {"mi300x": 8}),
    "L40S": (xcc, {"l40s": 4}),
    "H100 NVL": (ilo, {"h100_nvl": 2}),
    "H100 NVL under another name": (lambda: ilo("HPE Accelerator"), {"h100_nvl": 2}),
    "Atlas 800 A2": (ibmc, {"ascend_a2": 8}),
    "Atlas 800 A2, names only": (lambda: ibmc(name="Ascend 910B3"), {"ascend_a2": 8}),
    "Atlas 800 A3": (lambda: ibmc("d803", 16), {"ascend_a3": 16}),
    "HGX H100's own BMC": (enclosures, {"h100": 4}),
    "plain server": (plain, {}),
    "plain server that expands": (lambda: plain(6), {}),
}


def read_documents(documents: Mapping[str, Any]) -> Chips:
    """Return the chips that a recording shows: ``documents`` are the JSON documents by path. Raises RedfishError."""
    known = {path.rstrip("/"): document for path, document in documents.items()}
    steps = survey()
    answers: Answers | None = None
    try:
        while True:
            wanted = next(steps) if answers is None else steps.send(answers)
            answers = {item.path: known.get(item.path.rstrip("/")) for item in wanted}
    except StopIteration as done:
        chips: Chips = done.value
        return chips
