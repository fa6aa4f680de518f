# SPDX-License-Identifier: GPL-3.0-or-later
"""Single documents of BMCs, with the odd forms that vendors were seen to write."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish import documents
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import MAX_NAME, RedfishError

PLACE = "/redfish/v1/Systems/1"


@pytest.mark.parametrize(
    ("expand", "levels"),
    [
        ({"NoLinks": True, "Levels": True, "MaxLevels": 2}, 2), ({"NoLinks": True, "Levels": True, "MaxLevels": 9}, 3),
        ({"NoLinks": True, "Levels": True}, 1), ({"NoLinks": True, "Levels": True, "MaxLevels": 0}, 1),
        ({"NoLinks": True, "Levels": True, "MaxLevels": True}, 1), ({"NoLinks": True}, 0), ({"Levels": True}, 0),
        ({"NoLinks": "true", "Levels": True}, 0), (None, 0), ([], 0),
    ],
)  # fmt: skip
def test_a_service_says_how_deep_it_expands(expand, levels):
    assert documents.levels_of({"ProtocolFeaturesSupported": {"ExpandQuery": expand}}) == levels
    assert documents.levels_of({}) == documents.levels_of({"ProtocolFeaturesSupported": 1}) == 0


def test_embedded_documents_are_more_than_links():
    link, whole = {"@odata.id": "/redfish/v1/a"}, {"@odata.id": "/redfish/v1/b", "Id": "b", "Name": "b"}
    functions = {"@odata.id": "/redfish/v1/f", "Members": []}
    document = {"Members": [link, whole, "x"], "PCIeFunctions": functions, "PCIeDevices": [whole], "Links": whole}
    assert documents.embedded(document) == [whole, functions]
    assert documents.embedded({"Members": {"a": 1}}) == []


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"@odata.id": "/redfish/v1/x"}, "/redfish/v1/x"), ({"@odata.id": "/redfish/v1/x#/Links"}, "/redfish/v1/x"),
        (None, None), ([{"@odata.id": "/redfish/v1/x"}], None), ({}, None), ({"@odata.id": None}, None),
    ],
)  # fmt: skip
def test_a_link_is_a_path_of_the_service(value, path):
    assert documents.link_to({"@odata.id": PLACE, "Chassis": value}, "Chassis") == path


@pytest.mark.parametrize(
    "path",
    [
        "http://other/redfish/v1/x",
        "//other/redfish",
        "/redfish/../etc",
        "/x",
        "/redfish/a b",
        "/redfish/" + "x" * 300,
        5,
    ],
)
def test_a_link_to_anywhere_else_is_refused(path):
    with pytest.raises(RedfishError, match="has a link that is not a path of the service"):
        documents.link_to({"@odata.id": PLACE, "Chassis": {"@odata.id": path}}, "Chassis")


def test_lists_of_links_are_bounded_and_hold_links_alone():
    one = {"@odata.id": "/redfish/v1/a"}
    assert documents.links_to({"Members": [one]}, "Members", PLACE) == ["/redfish/v1/a"]
    # A system lists its devices, an enclosure has one link to all of them.
    assert documents.links_to({"PCIeDevices": one}, "PCIeDevices", PLACE) == []
    for value, reason in (
        (one, "Members is not a list"), ([one, "x"], "lists something that is not a link"),
        ([one] * (documents.MAX_MEMBERS + 1), "lists more than 1000 Members"), ([{}], "has a link that is not a path"),
    ):  # fmt: skip
        with pytest.raises(RedfishError, match=f"{PLACE}.* ?{reason}"):
            documents.links_to({"Members": value}, "Members", PLACE)
    with pytest.raises(RedfishError, match=f"{PLACE}: Chassis is not a link"):
        documents.link_to({"@odata.id": PLACE, "Chassis": "x"}, "Chassis")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0x10DE", "10de"), ("10DE", "10de"), ("0x000010de", "10de"), ("2h", "0002"), (" 0x2335 ", "2335"),
        ("N/A", None),
        ("0x0000", None), ("0xFFFF", None), ("", None), (None, None), ("0x12345", None),
    ],
)  # fmt: skip
def test_ids_of_pci_have_four_digits(value, number):
    assert documents.hex4({"@odata.id": PLACE, "VendorId": value}, "VendorId") == number


def test_an_id_that_is_no_text_is_named_with_its_document():
    with pytest.raises(RedfishError, match=f"{PLACE}: VendorId is not a text"):
        documents.hex4({"@odata.id": PLACE, "VendorId": 4318}, "VendorId")


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"ClassCode": "0x030200"}, "03"), ({"ClassCode": "0x000203"}, "03"), ({"ClassCode": "0x120000"}, "12"),
        ({"ClassCode": "0x000000", "DeviceClass": "DisplayController"}, "03"), ({"DeviceClass": "Other"}, ""),
        ({"DeviceClass": "NetworkController"}, "ff"), ({"ClassCode": "03"}, ""), ({}, ""),
    ],
)  # fmt: skip
def test_the_class_is_a_code_in_either_order_or_a_word(document, found):
    assert documents.base_class(document) == found


@pytest.mark.parametrize(
    ("processor", "name"),
    [
        ({"Model": "H200", "Manufacturer": "NVIDIA"}, "NVIDIA H200"),
        ({"Model": "NVIDIA H200", "Manufacturer": "NVIDIA"}, "NVIDIA H200"),
        ({"Model": "900-21001", "Name": "GPU 1"}, "GPU 1"), ({"Model": "B2", "PartNumber": "B2", "Name": "GPU"}, "GPU"),
        ({"Id": "GPU_SXM_1"}, "GPU_SXM_1"), ({}, "processor"), ({"Model": "A{{ x }}\n\x1b[0m"}, "A?? x ????[0m"),
        ({"Model": "A" + "x" * 500}, "A" + "x" * (MAX_NAME - 1)), ({"Model": 5, "Name": ["x"]}, "processor"),
    ],
)  # fmt: skip
def test_a_name_is_for_people_and_safe_to_show_and_to_store(processor, name):
    assert documents.name_of(processor) == name


def test_what_is_not_there_says_so():
    assert documents.is_absent({"Status": {"State": "Absent"}}) and not documents.is_absent({"Status": "Absent"})
    assert not documents.is_there({"@odata.id": PLACE}) and documents.is_there({"@odata.id": PLACE, "Id": "1"})
    linked = {"@odata.id": PLACE, "Chassis": {"@odata.id": "/redfish/v1/c"}}
    assert documents.links_of_all([{"@odata.id": PLACE}, linked], "Chassis") == ["/redfish/v1/c"]
