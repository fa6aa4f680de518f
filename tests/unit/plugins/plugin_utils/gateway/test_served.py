# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run says at its end."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.served import (
    first_instance,
    of_gateways,
    of_hosts,
    urls_of,
)

LISTENERS = [{"port": 443, "services": ["chat", "code"]}, {"port": 8443, "services": ["small"]}]
MODELS = {"chat": ["a/big"], "code": ["a/code", "a/big"], "small": ["a/small"]}


def plan(host="127.0.0.1", port=8000, models=("a/big",), **more):
    listen = {"host": host, "port": port} if port else {}
    return {"listen": listen, "served_model_names": list(models), **more}


def served(urls, authority="/site/.ca/ca.crt", is_open=False, first=("gpu-1", "chat"), **paths):
    return {"urls": urls, "key_files": paths, "open": is_open, "first": list(first), "authority": authority}


def test_a_url_has_the_models_of_its_port_and_no_usual_port():
    assert urls_of("10.0.0.1", True, LISTENERS, MODELS) == {
        "https://10.0.0.1/v1": ["a/big", "a/code"],
        "https://10.0.0.1:8443/v1": ["a/small"],
    }
    assert list(urls_of("fd00::1", False, LISTENERS, MODELS)) == ["http://[fd00::1]:443/v1", "http://[fd00::1]:8443/v1"]


def test_gateways_with_tls_and_keys():
    plans = {"gw-1": served({"https://gw/v1": ["a/big"]}, red="/keys/red.key"), "gw-2": served({"https://b/v1": ["c"]})}
    assert of_gateways(plans, False) == [
        "Served:",
        "  https://gw/v1 (gw-1): a/big",
        "  https://b/v1 (gw-2): c",
        "Clients need the certificate of the CA (/site/.ca/ca.crt) and a key.",
        "Keys: red in /keys/red.key.",
        "Another key: `inference key add NAME --team TEAM`.",
        "Next: `inference verify`, or `inference chat gpu-1 chat QUESTION`.",
    ]


def test_gateways_that_share_an_address_have_one_line():
    plans = dict.fromkeys(("gw-1", "gw-2"), served({"http://10.0.0.9/v1": ["a", "b"]}, "", is_open=True, first=()))
    assert of_gateways(plans, True) == [
        "Would be served:",
        "  http://10.0.0.9/v1 (gw-1, gw-2): a, b",
        "Next: `inference verify`.",
    ]
    assert of_gateways({}, False) == []


def test_hosts_without_a_gateway():
    plans = {
        "gpu-1": {"chat": plan(), "wide": plan(port=0, group={"role": "worker"})},
        "gpu-2": {"chat": plan(), "open": plan("0.0.0.0", 8001, ["b"])},
    }
    assert of_hosts(plans, {"gpu-1": "10.0.0.1", "gpu-2": "10.0.0.2"}, False) == [
        "Served by each host itself, because the site has no gateway:",
        "  http://127.0.0.1:8000/v1 on gpu-1, gpu-2: a/big",
        "  http://10.0.0.2:8001/v1 on gpu-2: b",
        "Next: `inference verify`, or `inference chat gpu-1 chat QUESTION`.",
    ]
    assert of_hosts({"mirror": {}}, {"mirror": "10.0.0.3"}, True) == []
    assert first_instance({"gpu-1": {"wide": plan(group={"role": "prefill"})}}) == []


def test_long_lists_are_cut():
    plans = {f"gpu-{number}": {"chat": plan("0.0.0.0")} for number in range(20)}
    lines = of_hosts(plans, {host: host for host in plans}, False)
    assert (len(lines), lines[-2]) == (15, "  and 8 more")
