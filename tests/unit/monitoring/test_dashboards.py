# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards as data: what Grafana needs of each, and no panel over another. test_rules.py has the expressions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

PROMTOOL = shutil.which("promtool")
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


def checked(expressions, directory):
    """Return what promtool finds of expressions, with values in the place of Grafana's variables."""
    filled = [re.sub(r"\$\w+", ".+", text.replace("$__rate_interval", "5m")) for text in expressions]
    rules = [{"record": f"panel:number{number}", "expr": text} for number, text in enumerate(filled)]
    path = directory / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([PROMTOOL, "check", "rules", path], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not here (Debian's package prometheus)")
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_prometheus_can_read_every_expression(path, tmp_path):
    board = json.loads(path.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(found) >= 6 and checked(found, tmp_path) == ""
    assert "parse error" in checked([*found, "sum(rate(vllm:x[5m])"], tmp_path)
