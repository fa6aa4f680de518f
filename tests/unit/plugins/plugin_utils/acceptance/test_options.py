# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.acceptance.options import (
    AcceptanceError,
    check_names,
    check_peer,
    check_port,
    expected_figures,
    not_negative,
    positive,
    seconds_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue


def device(pci_id, address="0000:1b:00.0"):
    vendor, _colon, number = pci_id.partition(":")
    return {"address": address, "vendor_id": vendor, "device_id": number}


@pytest.mark.parametrize("minutes", [2, "2", 0.5, "30"])
def test_the_deadline_leaves_room_for_the_start(minutes):
    seconds = seconds_of(minutes)
    assert seconds.burn_in == float(minutes) * 60
    assert seconds.deadline >= seconds.burn_in + 300
    assert 1 <= seconds.storage <= 10


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: seconds_of("soon"), "accept_minutes: found 'soon', expected a number from 0 on"),
        (lambda: seconds_of(0), "accept_minutes: found 0, expected a number above 0"),
        (lambda: seconds_of("nan"), "accept_minutes: found 'nan', expected a number from 0 on"),
        (lambda: seconds_of(True), "accept_minutes: found true, expected a number from 0 on"),
        (lambda: seconds_of(5000), "accept_minutes: found 5000, expected at most 1440 (a day)"),
        (lambda: check_port("80"), "accept_port: found '80', expected a port from 1024 to 65535"),
        (lambda: check_port(5299.5), "accept_port: found 5299.5, expected a port from 1024 to 65535"),
        (
            lambda: positive("accept_storage_bytes", "-1"),
            "accept_storage_bytes: found '-1', expected a number from 0 on",
        ),
        (
            lambda: check_names({"accept_minute": 3}),
            "accept_minute: accept.yml has no variable of this name; nearest: 'accept_minutes'",
        ),
        (
            lambda: check_peer("gpu-2", "gpu-1", ["gpu-1", "gpu-02"], ["gpu-1"]),
            "is not a host of the inventory; nearest: 'gpu-02'",
        ),
        (lambda: check_peer("gpu-1", "gpu-1", ["gpu-1"], ["gpu-1"]), "accept_peer: gpu-1 is the host itself"),
        (lambda: check_peer("c", "a", ["a", "b", "c"], ["a", "b"]), "2 hosts would measure the network with c"),
    ],
)
def test_what_cannot_be_meant(call, sentence):
    with pytest.raises(AcceptanceError) as caught:
        call()
    assert sentence in str(caught.value)


def test_a_limit_of_the_network_needs_a_second_host():
    with pytest.raises(AcceptanceError, match=r"accept_network_gbit_per_s: found 90 without accept_peer; name a"):
        check_peer("", "a", ["a", "b"], ["a"], 90)
    check_peer("b", "a", ["a", "b"], ["a"], 90)


def test_what_can_be_meant():
    check_names({"accept_minutes": 3, "vllm_instances": {}})
    check_peer("", "a", [], ["a", "b"])
    check_peer("b", "a", ["a", "b"], ["a"])
    assert (check_port("5299"), not_negative("x", "0"), positive("x", "2.5")) == (5299, 0, 2.5)


def test_figures_of_a_chip_are_those_of_its_pci_id():
    devices = [device("10de:2335"), device("10de:233b", "0000:43:00.0"), device("10de:1eb8", "0000:44:00.0")]
    found = expected_figures({"devices": devices}, load_catalogue())
    sxm, nvl, t4 = (found[one["address"]] for one in devices)
    assert (sxm["bf16_tflops"]["value"], sxm["bf16_tflops"]["status"]) == (790, "measured")
    assert sxm["copy_tb_per_s"]["value"] == 4.3
    # The form replaces one figure and keeps the others.
    assert nvl["bf16_tflops"]["status"] == "datasheet"
    assert nvl["copy_tb_per_s"] == sxm["copy_tb_per_s"]
    assert t4 == {}
    assert expected_figures({"devices": []}, load_catalogue()) == {}
