# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rulebooks against the playbooks that they run, and against the alert that they wait for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.playbook_options import (
    check_values,
    known_options,
)

TOP = Path(__file__).resolve().parents[3]
RULEBOOKS = sorted((TOP / "extensions/eda/rulebooks").glob("*.yml"))
OWN = "baremetal.inference."
NAME = re.compile(r' is regex\("(?P<pattern>[^"]+)"\)')


def actions(path):
    """Return the rules of a rulebook with the playbooks that each runs: (rule, arguments of run_playbook)."""
    found = []
    for ruleset in yaml.safe_load(path.read_text()):
        for rule in ruleset["rules"]:
            for action in rule.get("actions") or [rule["action"]]:
                found.append((rule, action["run_playbook"]))
    return found


CASES = [(path, rule, play) for path in RULEBOOKS for rule, play in actions(path)]
IDS = [f"{path.stem}-{play['name']}" for path, rule, play in CASES]


@pytest.mark.parametrize(("path", "rule", "play"), CASES, ids=IDS)
def test_a_rule_runs_a_playbook_with_options_of_its_own(path, rule, play):
    assert play["name"].startswith(OWN)
    name = play["name"].removeprefix(OWN)
    assert (TOP / f"playbooks/{name}.yml").is_file()
    options = play["extra_vars"]
    assert set(options) - known_options() == set()
    assert {option.split("_")[0] for option in options} <= {name, name.removeprefix("un")}
    check_values(options)


@pytest.mark.parametrize(("path", "rule", "play"), CASES, ids=IDS)
def test_only_a_checked_name_of_an_event_reaches_ansible(path, rule, play):
    """Ansible evaluates templates in extra variables, so a text of an event would run on the controller."""
    used = re.findall(r"\{\{ (event[\w.]+) \}\}", str(play["extra_vars"]))
    for value in set(used):
        checked = re.search(rf"{re.escape(value)}{NAME.pattern}", rule["condition"])
        assert checked, value
        pattern = checked["pattern"]
        assert re.search(pattern, "gpu-a-01.example.com")
        for bad in ("{{ 7 }}", "a:b", "a,b", "*", "!a", "", "a b", "{% if %}"):
            assert not re.search(pattern, bad), bad
    assert len(re.findall(r"\bevent\b", str(play["extra_vars"]))) == len(used)


@pytest.mark.parametrize("path", RULEBOOKS, ids=lambda path: path.stem)
def test_a_source_listens_on_loopback_and_knows_its_sender(path):
    for ruleset in yaml.safe_load(path.read_text()):
        for source in ruleset["sources"]:
            webhook = source["eda.builtin.webhook"]
            assert "127.0.0.1" in webhook["host"]
            assert webhook.get("token") or webhook.get("hmac_secret")


def test_the_alert_exists_and_has_the_labels():
    rules = yaml.safe_load((TOP / "playbooks/files/monitoring/rules/inference.yml").read_text())
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    conditions = " ".join(rule["condition"] for rule, _play in actions(TOP / "extensions/eda/rulebooks/chips.yml"))
    named = set(re.findall(r'alertname == "(\w+)"', conditions))
    assert named == {"InstanceSick"} and named <= set(alerts)
    assert "$labels.host" in alerts["InstanceSick"]["annotations"]["summary"]


def test_the_page_describes_every_rulebook():
    page = (TOP / "docs/operate/events.md").read_text()
    for path in RULEBOOKS:
        assert f"`{OWN}{path.stem}`" in page
        for _rule, play in actions(path):
            assert f"[{play['name'].removeprefix(OWN)}.yml]" in page
        for option in re.findall(r"\{\{ (events_\w+|[A-Z_]+)\b", path.read_text()):
            assert option in page
