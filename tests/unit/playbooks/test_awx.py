# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""awx/ against the playbooks that it starts, the modules of awx.awx, and what AWX accepts as a survey."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.playbook_options import (
    check_values,
    known_options,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.role_options import options_of

from tests.fakes.automation_objects import PROJECT, SITE, load, semaphore_template
from tests.fakes.awx import survey_problem

TOP = Path(__file__).resolve().parents[3]
OBJECTS = load("objects.yml")
TEMPLATES = OBJECTS["awx_job_templates"]
PARAMETERS = yaml.safe_load((TOP / "tests/fixtures/awx_parameters.yml").read_text())
TASKS = [task for play in load("apply.yml") for task in play["tasks"]]
KINDS = {"str": str, "bool": bool, "int": int, "dict": dict, "list": list}


def template_ids(template):
    return template["name"]


ALL_OPTIONS = known_options() | set(options_of("rollout")) | {"rollout_hosts"}


def hosts_options(playbook):
    """Return the options that name the hosts of a playbook, as its plays read them."""
    text = (TOP / playbook).read_text()
    return set(re.findall(r"^  hosts: \"\{\{ (\w+) \| default", text, re.M)) - {"status_gateways"}


@pytest.mark.parametrize("template", TEMPLATES, ids=template_ids)
def test_a_template_starts_a_playbook_with_options_that_exist(template):
    assert (TOP / template["playbook"]).is_file()
    names = {question["variable"] for question in template["survey"]} | set(template.get("extra_vars", {}))
    assert names - ALL_OPTIONS == set()
    room = template["playbook"].removeprefix("playbooks/").removesuffix(".yml")
    prefix = {"rollback": "rollout", "undrain": "drain"}.get(room, room)
    assert [name for name in names if not name.startswith((f"{prefix}_", f"{room}_"))] == []


@pytest.mark.parametrize("template", TEMPLATES, ids=template_ids)
def test_the_playbook_accepts_each_default_and_each_choice(template):
    for question in template["survey"]:
        values = question.get("choices", []) + ([question["default"]] if "default" in question else [])
        for value in values:
            check_values({question["variable"]: value})
    check_values(template.get("extra_vars", {}))


@pytest.mark.parametrize("template", TEMPLATES, ids=template_ids)
def test_no_template_needs_a_limit(template):
    asked = {question["variable"] for question in template["survey"] if question["required"]}
    options = hosts_options(template["playbook"])
    if template.get("extra_vars", {}).get("rollout_undo"):
        options = set()
    assert options <= asked


@pytest.mark.parametrize("template", TEMPLATES, ids=template_ids)
def test_awx_accepts_the_survey(template):
    if template["survey"]:
        assert survey_problem({"name": "", "description": "", "spec": template["survey"]}) == ""
    # An empty answer would override the inventory with nothing.
    assert all(question["required"] for question in template["survey"])
    assert all(question.get("min", 1) >= 1 for question in template["survey"] if question["type"] == "text")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "bool"}, "'bool' in survey question 0 is not an allowed question type"),
        ({"default": 3}, "Default value 3 in survey question 0 expected to be text"),
        ({"min": "1"}, "The limits in survey question 0 expected to be integer"),
        ({"required": "yes"}, "'required' missing from survey question 0"),
    ],
)
def test_a_wrong_survey_is_found(change, problem):
    question = {**TEMPLATES[0]["survey"][0], **change}
    assert survey_problem({"name": "", "description": "", "spec": [question]}) == problem


def module_of(task):
    return next(((name, arguments) for name, arguments in task.items() if name.startswith("awx.awx.")), None)


def test_every_parameter_is_one_of_its_module():
    used = [found for task in TASKS if (found := module_of(task))]
    assert len(used) == len(PARAMETERS)
    for name, arguments in used:
        known = PARAMETERS[name.removeprefix("awx.awx.")]
        assert set(arguments) - set(known) == set(), name
        for parameter, value in arguments.items():
            if not isinstance(value, str) or "{{" not in value:
                assert isinstance(value, KINDS[known[parameter]["type"]]), (name, parameter)
                assert value in known[parameter].get("choices", [value]), (name, parameter)


def test_every_field_of_an_object_reaches_its_module_with_the_right_kind():
    for task in TASKS:
        found = module_of(task)
        if not found:
            continue
        name, arguments = found
        read = set(re.findall(r"\bitem\.(\w+)", json.dumps(arguments)))
        known = {**PARAMETERS[name.removeprefix("awx.awx.")], "survey": {"type": "list"}}
        for item in OBJECTS[re.fullmatch(r"\{\{ (\w+) \}\}", task["loop"])[1]]:
            assert set(item) - read == set(), item["name"]
            for field, value in item.items():
                assert isinstance(value, KINDS[known[field]["type"]]), (item["name"], field)
                assert value in known[field].get("choices", [value]), (item["name"], field)


def test_names_are_unique_and_refer_to_each_other():
    for kind, objects in OBJECTS.items():
        names = [item["name"] for item in objects] if isinstance(objects, list) else []
        assert len(names) == len(set(names)), kind
    (source,) = OBJECTS["awx_inventory_sources"]
    assert source["inventory"] == OBJECTS["awx_inventories"][0]["name"]
    assert source["source_project"] == OBJECTS["awx_projects"][1]["name"]
    types = {item["name"] for item in OBJECTS["awx_credential_types"]}
    assert {item["credential_type"] for item in OBJECTS["awx_credentials"]} <= types


def test_the_example_of_settings_names_every_setting():
    text = (TOP / "awx/settings.example.yml").read_text()
    (check,) = [task for task in TASKS if "ansible.builtin.validate_argument_spec" in task]
    options = check["ansible.builtin.validate_argument_spec"]["argument_spec"]["awx_site"]["options"]
    assert set(re.findall(r"^  (?:# )?([a-z_]+):", text, re.M)) == set(options)
    given = yaml.safe_load(text)["awx_site"]
    assert {name for name, option in options.items() if option.get("required")} == set(given)
    sources = "".join((TOP / "awx" / name).read_text() for name in ("objects.yml", "apply.yml"))
    assert set(re.findall(r"awx_site\.(\w+)", sources)) == set(options)


def test_semaphore_has_the_same_templates():
    project = json.loads((TOP / "awx/semaphore.json").read_text())
    assert project["templates"] == [semaphore_template(template) for template in TEMPLATES]
    assert [repository["name"] for repository in project["repositories"]] == [PROJECT]
    assert [inventory["name"] for inventory in project["inventories"]] == [SITE]
    keys = {key["name"] for key in project["keys"]}
    assert {entry["ssh_key"] for entry in project["repositories"] + project["inventories"]} <= keys


def test_the_page_names_every_template():
    page = (TOP / "docs/operate/awx.md").read_text()
    names = [template["name"].removeprefix("Inference: ") for template in TEMPLATES]
    assert [name for name in names if f"`{name}`" not in page] == []
