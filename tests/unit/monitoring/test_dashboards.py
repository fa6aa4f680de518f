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
    assert list(BOARDS) == [f"inference-{name}.json" for name in ("chips", "fleet", "gateways", "instance", "teams")]


def checked(expressions, directory):
    """Return what promtool finds of expressions, with values in the place of Grafana's variables."""
    filled = [re.sub(r"\$\w+", ".+", text.replace("$tariff", "0.3")) for text in expressions]
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


# Two instances of one model with 350 W each write 350 tokens a second together: 2 J for each. Of 280 that the gateways
# counted, research had 210. A third instance shares its chip.
SERIES = {
    'accel_power_watts{host="a",chip="0",instance="chat"}': "350x30",
    'accel_power_watts{host="b",chip="0",instance="chat"}': "350x30",
    'accel_power_watts{host="b",chip="1",instance="one,two"}': "500x30",
    'vllm:num_requests_running{host="a",instance="chat",service="chat",model_name="m"}': "1x30",
    'vllm:num_requests_running{host="b",instance="chat",service="chat",model_name="m"}': "1x30",
    'vllm:generation_tokens_total{host="a",instance="chat",service="chat",model_name="m"}': "0+12000x30",
    'vllm:generation_tokens_total{host="b",instance="chat",service="chat",model_name="m"}': "0+9000x30",
    'inference_usage_tokens_total{gateway="g1",client="r",team="research",model="m",kind="completion"}': "0+6300x30",
    'inference_usage_tokens_total{gateway="g2",client="r",team="research",model="m",kind="completion"}': "0+6300x30",
    'inference_usage_tokens_total{gateway="g1",client="p",team="product",model="m",kind="completion"}': "0+4200x30",
}
COSTS = {
    "Power of the chips of each model": {"m": 700.0},
    "Energy of a million tokens, by model": {"m": 2 / 3.6},
    "Cost of a million tokens, by model": {"m": 2 / 3.6 * 0.3},
    "Cost of a million tokens, by team": {"research": 2 / 3.6 * 0.3, "product": 2 / 3.6 * 0.3},
    "Cost of a day, by team": {"research": 420 * 0.024 * 0.3, "product": 140 * 0.024 * 0.3},
    "Tokens of each team": {"research": 210.0, "product": 70.0},
}


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not here (Debian's package prometheus)")
def test_prometheus_computes_energy_and_cost(tmp_path):
    panels = {panel["title"]: panel["targets"][0]["expr"] for panel in BOARDS["inference-teams.json"]["panels"]}
    cases = []
    for title, values in COSTS.items():
        query = re.sub(r"\$\w+", ".+", panels[title].replace("$tariff", "0.3"))
        label = "model" if "m" in values else "team"
        for name, value in values.items():
            # 1 where the value is right.
            one = f"round(sum by ({label}) ({query}) / {value!r}, 0.001)"
            one = f'sum({one} and on ({label}) label_replace(vector(1), "{label}", "{name}", "", ""))'
            cases.append({"expr": one, "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": 1}]})
    test = {
        "interval": "1m", "promql_expr_test": cases,
        "input_series": [{"series": key, "values": values} for key, values in SERIES.items()],
    }  # fmt: skip
    document = {"rule_files": [str(TABLE.parent / "rules/inference.yml")], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", tmp_path / "cases.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Every label that a panel or a rule reads; one of each pair is there, and all series have all of them.
LABELS = {
    "chip": "0", "class": "gold", "client": "r", "cluster": "fra1", "code": "5xx", "finished_reason": "stop",
    "gateway": "g1", "host": "a", "instance": "chat", "job": "vllm", "kind": "completion", "mode": "auto", "model": "m",
    "model_name": "m", "owner": "ops", "period": "day", "proxy": "chat", "service": "chat", "state": "DOWN",
    "team": "t", "vendor": "nvidia", "verb": "start",
}  # fmt: skip
EXPRESSIONS = [target["expr"] for board in BOARDS.values() for panel in board["panels"] for target in panel["targets"]]
METRIC = re.compile(r"\b(?:vllm:|accel_|inference_|haproxy_|vllm_|up\b)\w*")


def series_of(text):
    """Return a series with two values of the labels that come in pairs for each metric that a text names."""
    found = {}
    for name in METRIC.findall(text):
        is_counter = name.endswith(("_total", "_bucket", "_count", "_sum"))
        for pair in ({"decision": "waits", "le": "1"}, {"decision": "refused", "le": "+Inf"}):
            # The energy of a model joins series by their labels: one chip, one instance.
            more = {key: value for key, value in pair.items() if key != "le" or name.endswith("_bucket")}
            more = more if name.startswith(("vllm:", "inference_gateway_")) else {}
            more = {key: value for key, value in more.items() if key != "decision" or name.startswith("inference_")}
            labels = ",".join(f'{key}="{value}"' for key, value in {**LABELS, **more}.items())
            found[f"{name}{{{labels}}}"] = "0+60x120" if is_counter else "1x120"
    return found


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not here (Debian's package prometheus)")
def test_every_panel_shows_something_where_there_is_data(tmp_path):
    """A label that is misspelt, or a join without a partner, would be an empty panel."""
    rules = TABLE.parent / "rules/inference.yml"
    queries = [re.sub(r"\$\w+", ".+", text.replace("$tariff", "0.3")) for text in EXPRESSIONS]
    queries = [*queries, 'vllm:num_requests_running{instance="other"}']
    series = series_of("\n".join([*queries, rules.read_text()]))
    test = {
        "interval": "1m",
        "promql_expr_test": [{"expr": f"absent({query})", "eval_time": "70m", "exp_samples": []} for query in queries],
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
    }
    document = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(document))
    command = [PROMTOOL, "test", "rules", tmp_path / "cases.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    empty = re.findall(r"expr: \"absent\((.*)\)\", time", done.stdout + done.stderr)
    assert empty == [queries[-1].replace('"', '\\"')], done.stdout + done.stderr
