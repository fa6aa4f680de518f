# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.baremetal.inference.plugins.filter.gateways import FilterModule
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.client_table import client_table

NOW = 1795600000


def known(**more):
    return {"keys": 1, "rate": "", "concurrent": "", "services": ["*"], "expires": "never", "team": "", **more}


REQUESTS = {
    name: {"clients": {"reports": {"team": "finance", "models": ["chat"]}, "old": {}, "new": {"expires": "2027-01-31"}}}
    for name in ("gw1", "gw2")
}
KEYS = {
    "gw1": {"present": {"reports": known(team="finance"), "old": known(keys=2, expires="2026-01-31"), "eve": known()}},
    "gw2": {"present": {"reports": known(team="finance"), "old": known(keys=2, expires="2026-01-31"), "new": known()}},
}
ROW = {"hour": 1, "gateway": "gw1", "team": "finance", "model": "m", "requests": 2, "aborted": 0, "uncounted": 0,
       "prompt": 1000, "cached": 5, "completion": 234}  # fmt: skip


def rows(text):
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()[2:] if line}


def test_the_table_compares_the_inventory_with_the_gateways():
    usage = {"gw1": {"rows": [{**ROW, "client": "reports"}]}, "gw2": {"rows": [{**ROW, "client": "reports"}]}}
    text = client_table(REQUESTS, KEYS, usage, NOW, 200)
    assert text.endswith("requests and tokens: those of the last 30 days")
    found = rows(text)
    assert found["reports"] == ["finance", "chat", "1", "never", "2", "1,234"]
    assert found["old"] == ["all", "2", "2026-01-31", "0", "0", "expired"]
    note = "not at gw1 yet: run gateway.yml -t gateway_keys"
    assert " ".join(found["new"]) == f"all 1 never 0 0 {note}"
    note = "not in gateway_clients of gw1: the next run of gateway.yml ends it"
    assert " ".join(found["eve"]) == f"all 1 never 0 0 {note}"


def test_without_usage_there_are_no_columns_for_it():
    text = client_table(REQUESTS, KEYS, {"gw1": {"skipped": True}, "gw2": {"msg": "no database"}}, NOW, 200)
    assert "tokens" not in text.splitlines()[0] and rows(text)["reports"] == ["finance", "chat", "1", "never"]
    assert text.splitlines()[-1] == "gw2: no tokens: no database"


def test_a_client_that_no_gateway_has_shows_its_end_from_the_inventory():
    text = client_table({"gw": {"clients": {"a": {"expires": "2027-01-31"}, "b": {"expires": "x"}}}}, {}, {}, NOW, 200)
    assert rows(text) == {"a": ["all", "2027-01-31"], "b": ["all", "invalid"]}


def test_no_clients_and_no_results():
    table = FilterModule().filters()["gateway_clients"]
    assert table({}, {}, {}) == table({"gw": {"clients": {}}}, {"gw": {"present": {}}}, {}) == "No gateway has clients."
    with pytest.raises(AnsibleFilterError, match="expected results of modules by gateway"):
        table({"gw": 5}, {}, {})
