# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts of public threads show of their firmware (tests/fixtures/host_firmware.yml)."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import ProvisionError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.firmware import (
    purposes_of,
    read_settings,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.host_firmware import (
    PROOFS,
    host_differences,
    read_shown,
)

RECORDED = yaml.safe_load((Path(__file__).parents[4] / "fixtures/host_firmware.yml").read_text())
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
EXPRESS, ACS = 0x78, 0x148
REGION = r"Region (\d): (Memory|I/O ports) at (\S+)(?: \((\d\d)-bit, (non-)?pref.*?\))?(?:.*size=(\d+)(\w?))?"


def config_of(port=0, link=0, acs=None, size=4096):
    """Return a configuration space with a capability of PCI Express, and that of ACS if bits are given."""
    config = bytearray(size)
    config[0x34] = EXPRESS
    config[EXPRESS] = 0x10
    config[EXPRESS + 2] = port << 4 | 2
    struct.pack_into("<H", config, EXPRESS + 0x10, link)
    if acs is not None:
        struct.pack_into("<I", config, 0x100, ACS << 20 | 0x10001)
        struct.pack_into("<IHH", config, ACS, 0x1000D, 0x5F, acs)
    return config


def chip(lines, link=0):
    """Return resources and configuration of a function from its lines of lspci."""
    resource, config = ["0x0 0x0 0x0"] * 6, config_of(link=link)
    for line in lines:
        found = re.match(REGION, line)
        if found:
            number, kind, start, width, plain, size, unit = found.groups()
            flags = 1 if kind != "Memory" else (4 if width == "64" else 0) | (0 if plain else 8)
            address = 0 if start == "<unassigned>" else int(start, 16)
            form, value = ("<Q", address) if width == "64" else ("<I", address & 0xFFFFFFFF)
            struct.pack_into(form, config, 0x10 + 4 * int(number), value | flags)
            if start != "<unassigned>":
                end = int(start, 16) + int(size) * UNITS[unit] - 1
                resource[int(number)] = f"0x{int(start, 16):016x} 0x{end:016x} 0x000000000014220c"
    return {"bridge": False, "resource": "\n".join(resource), "config": bytes(config).hex()}


def port(name, kind=6):
    """Return a port of a switch with these bits of ACS."""
    line = RECORDED["acs"][name]
    bits = sum(1 << number for number, word in enumerate(ACS_BITS) if f"{word}+" in line)
    return {"bridge": True, "resource": "", "config": bytes(config_of(kind, acs=bits)).hex()}


def differences(functions=(), purposes=tuple(PROOFS), sockets=2, nodes=2):
    output = json.dumps({"functions": dict(functions), "sockets": sockets, "nodes": nodes}).encode()
    return [str(each) for each in host_differences(purposes, read_shown(output))]


@pytest.mark.parametrize("name", ["h100", "a100", "wx8100", "rtx8000"])
def test_chips_that_have_their_addresses_are_right(name):
    assert differences({"0000:3b:00.0": chip(RECORDED[name])}) == []


def test_a_bar_for_which_the_kernel_found_no_space_is_named():
    assert differences({"0000:03:00.0": chip(RECORDED["no_space"])}) == [
        "above_4g: BAR 0 of 0000:03:00.0 is 'without an address', wanted one"
    ]
    eight = {f"0000:{bus:02x}:00.0": chip(RECORDED["no_space"]) for bus in range(8)}
    assert differences(eight) == ["above_4g: BAR 0 of 0000:00:00.0 and 7 more is 'without an address', wanted one"]


def test_a_kernel_may_keep_the_size_of_what_has_no_address():
    function = chip(RECORDED["a100"])
    lines = function["resource"].splitlines()
    lines[1] = f"0x0000000000001000 0x0000000fffffffff 0x{0x20000000 | 0x14220C:016x}"
    function["resource"] = "\n".join(lines)
    assert differences({"0000:da:00.0": function}) == [
        "above_4g: BAR 1 of 0000:da:00.0 is 'without an address', wanted one"
    ]


def test_ports_of_switches_that_redirect_are_counted_in_one_sentence():
    functions = {f"0000:0b:{slot:02x}.0": port("redirects") for slot in range(4)}
    functions |= {"0000:0c:00.0": port("clear"), "0000:0c:01.0": port("only_valid")}
    # A port of the processor itself.
    functions["0000:00:01.0"] = port("redirects", 4)
    assert differences(functions) == [
        "acs_off: ACSCtl of 0000:0b:00.0 and 3 more is 'ReqRedir CmpltRedir', "
        "wanted none of these (host_tuning_acs_off clears them)"
    ]


@pytest.mark.parametrize(("link", "found"), [(0x40, None), (0x41, "L0s"), (0x42, "L1"), (0x43, "L0s L1")])
def test_links_of_chips_that_sleep_are_named(link, found):
    said = [f"aspm_off: ASPM of 0000:da:00.0 is '{found}', wanted none"] if found else []
    assert differences({"0000:da:00.0": chip(RECORDED["a100"], link)}) == said


@pytest.mark.parametrize(
    ("sockets", "nodes", "said"),
    [
        (2, 2, []),  # vllm-project/vllm issue 8058
        (2, 8, ["numa: number of NUMA nodes with processors is 8, wanted 2, one for each socket"]),
        (2, 1, ["numa: number of NUMA nodes with processors is 1, wanted 2, one for each socket"]),
        # A kernel without NUMA shows no node.
        (2, 0, []),
        (0, 1, []),
    ],
)
def test_numa_nodes_are_compared_with_the_sockets(sockets, nodes, said):
    assert differences(sockets=sockets, nodes=nodes) == said


def test_only_what_the_bmc_was_compared_for_is_proved():
    purposes = purposes_of(read_settings(), "Dell Inc.", {"PcieAspmL1": "Disabled", "Unknown": 1})
    assert purposes == {"aspm_off"}
    assert differences({"0000:03:00.0": chip(RECORDED["no_space"])}, purposes, nodes=8) == []
    # Any user reads 64 bytes only.
    short = {**chip(RECORDED["a100"], 0x42), "config": bytes(config_of(link=0x42))[:64].hex()}
    assert differences({"0000:da:00.0": short}, {"aspm_off", "acs_off"}) == []


@pytest.mark.parametrize(
    "output",
    [
        b"", b"[]", b"{", b"[" * 100_000, b'{"functions": [], "sockets": 1, "nodes": 1}',
        b'{"functions": {"0000:3b:00.0": {"bridge": 1, "resource": "", "config": "zz"}}, "sockets": 1, "nodes": 1}',
        b'{"functions": {}, "sockets": null, "nodes": 1}', b"\xff\xfe",
        b'{"functions": {}, "sockets": NaN, "nodes": 1}',
        b'{"functions": {}, "sockets": Infinity, "nodes": 1}',
        b'{"functions": {}, "sockets": -1, "nodes": 1}',
        b'{"functions": {}, "sockets": 2, "nodes": 1' + b"0" * 4000 + b"}",
        json.dumps({"functions": {f"0000:00:{bus:02x}.{each}": port("clear") for bus in range(65) for each in range(8)},
                    "sockets": 2, "nodes": 2}).encode(),
    ],
)  # fmt: skip
def test_another_answer_is_one_sentence(output):
    with pytest.raises(ProvisionError, match="is not what show_firmware_host"):
        read_shown(output)


@pytest.mark.parametrize("resource", ["", "x y z", "0x0", "0x1 0x2 0x3 0x4", "-1 0 0\n" * 9])
def test_resources_that_cannot_be_read_are_no_addresses(resource):
    function = {**chip(RECORDED["h100"]), "resource": resource}
    absent = "above_4g: BAR 0 of 0000:3b:00.0 and 2 more is 'without an address', wanted one"
    assert differences({"0000:3b:00.0": function}) == ([] if resource.startswith("-1") else [absent])


def test_a_name_that_is_no_address_is_not_shown():
    assert differences({"\x1b[2J": chip(RECORDED["no_space"])}) == []
