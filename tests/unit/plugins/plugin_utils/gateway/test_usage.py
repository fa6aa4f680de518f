# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of several gateways as one table, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.usage import merge_rows, usage_text

HOUR = 1_764_075_600


def row(hour=HOUR, gateway="gw1", client="alice", team="research", model="m", requests=2, tokens=10):
    return {
        "hour": hour, "gateway": gateway, "client": client, "team": team, "model": model, "requests": requests,
        "aborted": 1, "uncounted": 0, "prompt": tokens * 1000, "cached": tokens, "completion": tokens,
    }  # fmt: skip


def results(**gateways):
    return {name: {"rows": rows, "gaps": []} for name, rows in gateways.items()}


def test_two_gateways_store_the_same_row_once():
    behind, ahead = row(requests=2, tokens=10), row(requests=3, tokens=11)
    assert merge_rows([behind, ahead, row(gateway="gw2")]) == [ahead, row(gateway="gw2")]


def test_the_table_sums_hours_and_gateways_and_each_team():
    rows = [row(), row(HOUR + 3600), row(gateway="gw2"), row(client="bob"), row(client="carol", team="")]
    lines = usage_text(results(gw1=rows, gw2=rows)).splitlines()
    assert lines[0].split() == [
        "team", "client", "model", "requests", "aborted", "uncounted", "prompt", "cached", "completion"
    ]  # fmt: skip
    assert [line.split() for line in lines[2:]] == [
        ["-", "carol", "m", "2", "1", "0", "10,000", "10", "10"],
        ["research", "alice", "m", "6", "3", "0", "30,000", "30", "30"],
        ["research", "bob", "m", "2", "1", "0", "10,000", "10", "10"],
        ["research", "all", "all", "8", "4", "0", "40,000", "40", "40"],
    ]


def test_csv_and_json_have_each_hour():
    found = results(gw1=[row(), row(HOUR + 3600, client="=cmd()")])
    rows = list(csv.DictReader(io.StringIO(usage_text(found, "csv"))))
    assert [each["hour"] for each in rows] == ["2025-11-25T13:00Z", "2025-11-25T14:00Z"]
    assert rows[0]["prompt"] == "10000" and rows[1]["client"] == "'=cmd()"
    assert [each["completion"] for each in json.loads(usage_text(found, "json"))["rows"]] == [10, 10]


def test_missing_records_are_named():
    gap = {"hour": HOUR, "server": "gw--chat-1", "missing": 3}
    found = {
        "gw1": {"rows": [row()], "gaps": [gap, {**gap, "hour": HOUR + 3600}]},
        "gw2": {"rows": [row()], "gaps": [gap]},
    }
    assert "6 records of gw--chat-1 are missing" in usage_text(found)
    assert json.loads(usage_text(found, "json"))["missing"] == {"gw--chat-1": 6}


def test_no_row_says_so():
    assert usage_text(results(gw1=[])) == "No gateway has counted tokens in this time."


def test_an_unknown_format_is_an_error():
    with pytest.raises(ValueError, match="expected one of table, csv, json"):
        usage_text(results(gw1=[]), "xml")
