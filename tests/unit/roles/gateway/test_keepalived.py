# SPDX-License-Identifier: GPL-3.0-or-later
"""keepalived's configuration: a busy machine must not look like a broken gateway, or the shared address flaps."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest

from tests.fakes.gateways import render

TEMPLATES = Path(__file__).resolve().parents[4] / "roles/gateway/templates"


@pytest.fixture(scope="module")
def text():
    environment = jinja2.Environment(autoescape=False, loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True)
    environment.filters["comment"] = lambda value: f"# {value}"
    return environment.get_template("keepalived.conf.j2").render(
        ansible_managed="managed",
        inventory_hostname="gw-1",
        gateway_interface="eth0",
        gateway_router_id=7,
        gateway_address="10.0.0.9",
        __gateway_paths={"unusable": "/run/gateway/unusable", "arrivals": "/var/lib/gateway/arrivals"},
        __gateway_plan={"peers": {"own": "10.0.0.1", "others": ["10.0.0.2", "10.0.0.3"]}},
    )


def block(text, name):
    """Return the lines of one block."""
    found = re.search(rf"^( *){name} \{{\n(.*?)^\1\}}", text, re.M | re.S)
    assert found, name
    return [line.strip() for line in found[2].splitlines()]


def test_it_reads_the_agent_s_file_and_starts_no_program_for_its_checks(text):
    assert block(text, "track_file gateway_unusable") == ['file "/run/gateway/unusable"', "weight -100"]
    assert block(text, "track_file") == ["gateway_unusable"]
    assert not re.search(r"vrrp_script|track_script|track_process", text)


def test_it_has_time_of_the_processor_before_others(text):
    assert "vrrp_rt_priority 20" in block(text, "global_defs")


def test_all_gateways_are_equal_so_the_address_does_not_return_by_itself(text):
    (priority,) = re.findall(r"^ *priority (\d+)$", text, re.M)
    # Without the weight of the file a gateway wins against all that have it.
    assert int(priority) - 100 > 0
    assert "state BACKUP" in text
    assert block(text, "unicast_peer") == ["10.0.0.2 min_ttl 255", "10.0.0.3 min_ttl 255"]


def test_only_a_peer_in_the_same_network_is_heard(text):
    assert "vrrp_check_unicast_src" in block(text, "global_defs")
    # IPv6 would send with the hop limit of the host.
    assert "    unicast_ttl 255" in text.splitlines()


def test_a_shared_address_depends_on_a_file_and_on_no_program():
    text = render(
        "keepalived.conf.j2",
        {
            "inventory_hostname": "gw1", "gateway_interface": "eth0", "gateway_router_id": 51,
            "gateway_address": "10.0.0.9/24",
            "__gateway_paths": {"unusable": "/var/lib/gateway-agent/unusable", "arrivals": "/a"},
            "__gateway_plan": {"peers": {"own": "10.0.0.1", "others": ["10.0.0.2"]}},
        },
    )  # fmt: skip
    lines = [line.strip() for line in text.splitlines()]
    for line in (
        "unicast_src_ip 10.0.0.1",
        "10.0.0.2 min_ttl 255",
        "10.0.0.9/24 dev eth0",
        "priority 150",
        "weight -100",
    ):
        assert line in lines
    assert 'file "/var/lib/gateway-agent/unusable"' in lines and "vrrp_script" not in text
