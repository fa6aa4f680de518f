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

PROMTOOL = shutil.which("promtool")
SCHEMA = json.loads(Path(__file__).with_name("dashboard.schema.json").read_text())
DASHBOARDS = sorted((Path(__file__).resolve().parents[3] / "playbooks/files/monitoring/dashboards").glob("*.json"))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_holds_to_the_schema(path):
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(path.read_text()))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_consistent(path):
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem
    names = {each["name"] for each in board["templating"]["list"]}
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= names
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for one, other in itertools.combinations([panel["gridPos"] for panel in board["panels"]], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


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
