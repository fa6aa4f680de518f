# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards as data: what Grafana needs of each, and no panel over another. test_rules.py has the expressions."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.dashboards import dashboards

PROMTOOL = shutil.which("promtool")
SCHEMA = json.loads(Path(__file__).with_name("dashboard.schema.json").read_text())
TABLE = Path(__file__).resolve().parents[3] / "playbooks/files/monitoring/dashboards.yml"
BOARDS = {name: json.loads(text) for name, text in dashboards(TABLE).items()}
each_board = pytest.mark.parametrize("name", BOARDS)


@each_board
def test_a_dashboard_holds_to_the_schema(name):
    jsonschema.Draft202012Validator(SCHEMA).validate(BOARDS[name])


@each_board
def test_a_dashboard_is_consistent(name):
    board = BOARDS[name]
    assert f"{board['uid']}.json" == name
    names = {each["name"] for each in board["templating"]["list"]}
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= names
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for one, other in itertools.combinations([panel["gridPos"] for panel in board["panels"]], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_there_is_one_for_fleet_instance_chip_and_gateway():
    assert list(BOARDS) == [f"inference-{name}.json" for name in ("chips", "fleet", "gateways", "instance")]


def checked(expressions, directory):
    """Return what promtool finds of expressions, with values in the place of Grafana's variables."""
    filled = [re.sub(r"\$\w+", ".+", text.replace("$__rate_interval", "5m")) for text in expressions]
    rules = [{"record": f"panel:number{number}", "expr": text} for number, text in enumerate(filled)]
    path = directory / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([PROMTOOL, "check", "rules", path], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not here (Debian's package prometheus)")
@each_board
def test_prometheus_can_read_every_expression(name, tmp_path):
    found = [target["expr"] for panel in BOARDS[name]["panels"] for target in panel["targets"]]
    assert len(found) >= 6 and checked(found, tmp_path) == ""
    assert "parse error" in checked([*found, "sum(rate(vllm:x[5m])"], tmp_path)
