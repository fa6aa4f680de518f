# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import (
    Chips,
    RedfishError,
    found,
    model_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.survey import survey

from tests.fakes.redfish_machines import (
    ASPEED,
    CONNECTX,
    IBMC_VGA,
    MACHINES,
    ROOT,
    Builder,
    hgx,
    idrac,
    link,
    plain,
    read_documents,
)
from tests.fakes.redfish_server import find

CATALOGUE = load_catalogue()


def online(documents):
    """Return the chips and the number of requests, as of a service that expands what its root says."""
    steps, answers, asked = survey(), None, 0
    try:
        while True:
            wanted = next(steps) if answers is None else steps.send(answers)
            asked += len(wanted)
            answers = {
                item.path: find(
                    documents, f"{item.path}?$expand=.($levels={item.levels})" if item.levels else item.path
                )
                for item in wanted
            }
    except StopIteration as done:
        return done.value, asked


def one_device(*chips, **document):
    """Return the documents of a server with these PCI devices besides its network card."""
    builder = Builder()
    chassis = builder.chassis("1")
    builder.system("1", Links={"Chassis": [link(chassis)]})
    builder.device(chassis, "nic", CONNECTX)
    for number, chip in enumerate(chips):
        builder.device(chassis, str(number), chip, **document)
    return builder.documents


class TestMachines:
    @pytest.mark.parametrize("name", MACHINES)
    def test_every_chip_counts_once(self, name):
        build, models = MACHINES[name]
        assert found(read_documents(build()), CATALOGUE) == (models, [])

    @pytest.mark.parametrize("name", MACHINES)
    def test_expanded_answers_say_the_same(self, name):
        build, models = MACHINES[name]
        chips, _asked = online(build())
        assert found(chips, CATALOGUE) == (models, [])

    @pytest.mark.parametrize(("name", "most"), [("HGX H200", 8), ("XE9680 with MI300X", 5), ("L40S", 8)])
    def test_few_requests_where_the_service_expands(self, name, most):
        _chips, asked = online(MACHINES[name][0]())
        assert asked <= most

    def test_one_function_tells_for_all_processors_of_a_kind(self):
        documents = hgx()
        for number in range(2, 9):
            del documents[f"{ROOT}/Chassis/HGX_GPU_SXM_{number}/PCIeDevices/GPU_SXM_{number}/PCIeFunctions/0"]
        assert found(read_documents(documents), CATALOGUE) == ({"h200": 8}, [])


class TestWhatCounts:
    @pytest.mark.parametrize("state", ["Absent", "Disabled"])
    def test_absent_processors_and_devices_do_not(self, state):
        documents = idrac(count=3)
        for path in list(documents):
            if path.endswith(("Video.Slot.21-1", "/16-0")):
                documents[path]["Status"] = {"State": state}
        assert read_documents(documents).ids == {"1002:74a1": 2}

    def test_a_host_that_is_off_still_shows_its_chips(self):
        documents = idrac(count=2)
        for path in list(documents):
            if "Video.Slot" in path:
                documents[path]["Status"] = {"State": "StandbyOffline"}
        assert found(read_documents(documents), CATALOGUE) == ({"mi300x": 2}, [])

    def test_the_sound_of_a_graphics_card_does_not(self):
        documents = one_device(("10de", "26b9", "0x030000", "NVIDIA"))
        sound = f"{ROOT}/Chassis/1/PCIeDevices/0/PCIeFunctions/1"
        documents[sound] = {"@odata.id": sound, "VendorId": "0x10de", "DeviceId": "0x22ba", "ClassCode": "0x040300"}
        documents[f"{ROOT}/Chassis/1/PCIeDevices/0/PCIeFunctions"]["Members"].append(link(sound))
        assert found(read_documents(documents), CATALOGUE) == ({"l40s": 1}, [])

    def test_virtual_functions_do_not_even_where_the_bmc_does_not_say_so(self):
        documents = idrac(virtual=2)
        for document in documents.values():
            document.pop("FunctionType", None)
        for path in [path for path in documents if "Video.Slot" in path]:
            documents[path]["ProcessorType"] = "OEM"
        assert found(read_documents(documents), CATALOGUE) == ({"mi300x": 8}, [])

    @pytest.mark.parametrize("chip", [ASPEED, IBMC_VGA, ("10de", "22a3", "", "NVIDIA"), ("19e5", "3714", "", "Huawei")])
    def test_consoles_switches_and_disks_do_not(self, chip):
        assert found(read_documents(one_device(chip)), CATALOGUE) == ({}, [])

    @pytest.mark.parametrize("code", ["0x030200", "0x000003", "0X030200", "", "0x000000", "N/A"])
    def test_a_catalogued_id_counts_however_its_class_is_written(self, code):
        assert found(read_documents(one_device(("10DE", "26B9", code, "NVIDIA"))), CATALOGUE) == ({"l40s": 1}, [])

    def test_two_kinds_at_once(self):
        documents = one_device(("10de", "26b9", "0x030200", ""), ("10de", "2335", "0x030200", ""), ASPEED)
        assert found(read_documents(documents), CATALOGUE) == ({"h200": 1, "l40s": 1}, [])


class TestUnknown:
    def test_an_id_that_no_file_lists(self):
        documents = one_device(*[("10de", "fff0", "0x030200", "NVIDIA")] * 2)
        unknown = [{"id": "10de:fff0", "vendor": "nvidia", "count": 2}]
        assert found(read_documents(documents), CATALOGUE) == ({}, unknown)

    def test_an_id_that_a_processor_calls_a_gpu_whatever_its_class(self):
        chips = read_documents(hgx("fff0", "NVIDIA X900"))
        assert found(chips, CATALOGUE) == ({}, [{"id": "10de:fff0", "vendor": "nvidia", "count": 8}])

    def test_a_name(self):
        chips = Chips(names={"AMD Instinct MI999X": 8})
        assert found(chips, CATALOGUE) == ({}, [{"name": "AMD Instinct MI999X", "vendor": "amd", "count": 8}])

    def test_a_name_is_explained_by_the_same_number_of_ids(self):
        assert found(Chips({"10de:2321": 2}, {"GPU 1": 1, "HPE thing": 1}), CATALOGUE) == ({"h100_nvl": 2}, [])

    def test_a_name_of_another_maker_is_not(self):
        _models, unknown = found(Chips({"10de:2321": 2}, {"AMD Instinct MI999X": 1}), CATALOGUE)
        assert [entry["name"] for entry in unknown] == ["AMD Instinct MI999X"]

    @pytest.mark.parametrize("pci_id", ["1a03:2000", "102b:0536", "8086:a190", "15b3:1021"])
    def test_other_makers_are_none_of_ours(self, pci_id):
        assert found(Chips({pci_id: 1}, {}, {pci_id: "03"}), CATALOGUE) == ({}, [])


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H200", "h200"),
        ("H100 SXM5", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA H100 NVL", "h100_nvl"),
        ("NVIDIA GH200 96GB HBM3", "gh200"),
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A10", "a10"),
        ("Nvidia(R) L40S", "l40s"),
        ("L40", "l40"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("Advanced Micro Devices, Inc. [AMD/ATI] MI325X", "mi325x"),
        ("MI355X", "mi355x"),
        ("Intel Gaudi 3 HL-325L", "gaudi3"),
        ("Intel Data Center GPU Max 1550", "max_1550"),
        ("Huawei Ascend 910B", "ascend_a2"),
        ("Ascend910B3", "ascend_a2"),
        ("Huawei Ascend910_9392", "ascend_a3"),
        ("Ascend 910C", "ascend_a3"),
        ("Atlas 300I Duo", "ascend_310p"),
        ("Ascend 910", "ascend_910"),
        ("Huawei Atlas 200I A2", None),  # no NVIDIA A2
        ("AMD Radeon RX 6700 XT", None),
        ("NVIDIA Quadro RTX A6000", "rtx_a6000"),
        ("NVIDIA Quadro P4000", None),
        ("900-21010-0320-030", None),
        ("GPU 1", None),
        ("", None),
    ],
)
def test_names_of_processors(name, model):
    known = {key: key for key in CATALOGUE.models}
    assert model_of(name, CATALOGUE) == (known.get(model, f"no model {model}") if model else None)


def test_a_name_that_would_write_on_the_terminal_is_shown_harmless():
    documents = MACHINES["MI300X, names only"][0]()
    for document in documents.values():
        if document.get("ProcessorType") == "Accelerator":
            document["Model"] = "MI\x1b]0;x\x07\ud800" + "9" * 500
    ((name, count),) = read_documents(documents).names.items()
    assert (name.isprintable(), len(name), count) == (True, 120, 8)


class TestStored:
    def test_chips_come_back_as_they_went(self):
        chips = read_documents(MACHINES["H100 NVL"][0]())
        assert Chips.from_dict(json.loads(json.dumps(chips.as_dict()))) == chips

    @pytest.mark.parametrize(
        "data", [None, [], {"ids": []}, {"ids": {"a": "1"}}, {"names": {"a": -1}}, {"ids": {"a": True}}, {"x": {}}]
    )
    def test_anything_else_is_refused(self, data):
        with pytest.raises(RedfishError, match="stored chips"):
            Chips.from_dict(data)


class TestRubbish:
    @pytest.mark.parametrize(
        ("path", "document", "said"),
        [
            ("", None, "no Redfish: /redfish/v1/ names neither Systems nor Chassis"),
            ("", [], "/redfish/v1/ is not a JSON object"),
            ("", {"Systems": 7}, "Systems is not a link"),
            ("", {"Systems": link("https://elsewhere/")}, "not a path of the service"),
            ("", {"Systems": link(f"{ROOT}/../../etc/passwd")}, "not a path of the service"),
            ("", {"Systems": link(f"{ROOT}/a\r\nHost: x")}, "not a path of the service"),
            ("", {"Systems": link(f"{ROOT}/\x1b[31m\u202e")}, "not a path of the service"),
            ("", {"Systems": link(7)}, "not a path of the service"),
            ("/Systems", {"Members": {}}, "/redfish/v1/Systems: Members is not a list"),
            ("/Systems", {"Members": [1]}, "lists something that is not a link"),
            ("/Systems", {"Members": [{}]}, "not a path of the service"),
            ("/Systems", {"Members": [link(f"{ROOT}/Systems")]}, "lists an entry that is not a system"),
            ("/Systems", {"Members": [link(f"{ROOT}/Systems/{number}") for number in range(1001)]}, "more than 1000"),
            ("/Systems/1", {"Id": "1", "Processors": "none"}, "Processors is not a link"),
            ("/Chassis/1/PCIeDevices/D4/PCIeFunctions/0", {"VendorId": 4318}, "VendorId is not a text"),
        ],
    )
    def test_is_named(self, path, document, said):
        documents = {**plain(), f"{ROOT}{path}": document}
        with pytest.raises(RedfishError) as raised:
            read_documents(documents)
        assert said in str(raised.value)

    def test_a_bmc_that_lists_no_pci_devices_cannot_tell(self):
        builder = Builder()
        builder.system("1")
        with pytest.raises(RedfishError, match="shows processors but no PCI devices: it cannot tell"):
            read_documents(builder.documents)

    def test_nor_one_whose_devices_are_links_that_lead_nowhere(self):
        documents = {path: document for path, document in idrac(count=0).items() if "/PCIeFunctions/" not in path}
        with pytest.raises(RedfishError, match="shows processors but no PCI devices"):
            read_documents(documents)

    def test_links_that_lead_nowhere_are_passed_over(self):
        documents = plain()
        documents[f"{ROOT}/Chassis/1/PCIeDevices"]["Members"].append(link(f"{ROOT}/Chassis/1/PCIeDevices/gone"))
        assert found(read_documents(documents), CATALOGUE) == ({}, [])

    def test_pages_are_followed_and_end(self):
        documents = idrac(("10de", "26b9", "0x000003", "NVIDIA"), count=6)
        collection = documents[f"{ROOT}/Systems/System.Embedded.1/Processors"]
        rest = f"{ROOT}/Systems/System.Embedded.1/Processors?$skip=3"
        documents[rest] = {"Members": collection["Members"][3:], "Members@odata.nextLink": rest}
        collection["Members"], collection["Members@odata.nextLink"] = collection["Members"][:3], rest
        assert found(read_documents(documents), CATALOGUE) == ({"l40s": 6}, [])

    def test_lists_without_end_are_cut(self):
        class Endless(dict):
            def get(self, path, default=None):
                page = f"{ROOT}/Systems?page={len(path)}{'x' * (len(path) % 200)}"
                return super().get(path) or {"Members": [link(page + "m")], "Members@odata.nextLink": page}

        steps, answers, asked = survey(), None, 0
        documents = Endless({f"{ROOT}/": {"Systems": link(f"{ROOT}/Systems")}})
        with pytest.raises(RedfishError):
            while True:
                wanted = next(steps) if answers is None else steps.send(answers)
                asked += len(wanted)
                answers = {item.path: documents.get(item.path) for item in wanted}
        assert asked <= 500
