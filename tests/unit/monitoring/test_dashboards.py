# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards as data: what Grafana needs of each, and no panel over another. test_rules.py has the expressions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

DASHBOARDS = sorted((Path(__file__).resolve().parents[3] / "playbooks/files/monitoring/dashboards").glob("*.json"))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_complete(path):
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem and board["title"] and board["schemaVersion"] >= 36
    names = {each["name"] for each in board["templating"]["list"]}
    ids, places = set(), set()
    for panel in board["panels"]:
        ids.add(panel["id"])
        places.add((panel["gridPos"]["x"], panel["gridPos"]["y"]))
        assert panel["title"] and panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= names
    assert len(ids) == len(places) == len(board["panels"])


def test_there_is_one_for_fleet_instance_chip_and_gateway():
    assert [path.stem for path in DASHBOARDS] == [
        "inference-chips", "inference-fleet", "inference-gateways", "inference-instance",
    ]  # fmt: skip
