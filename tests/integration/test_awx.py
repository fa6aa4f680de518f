# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real modules of awx.awx apply awx/ to a stand-in for AWX; skipped where that collection is not installed."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fakes.automation_objects import load
from tests.fakes.awx import AWX, TOKEN

TOP = Path(__file__).resolve().parents[2]
PATHS = os.environ.get("ANSIBLE_COLLECTIONS_PATH", str(Path.home() / ".ansible/collections")).split(":")
FOUND = [Path(path) / "ansible_collections/awx/awx" for path in PATHS]
INSTALLED = next((path for path in FOUND if path.is_dir()), None)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        INSTALLED is None,
        reason="needs the collection awx.awx on ANSIBLE_COLLECTIONS_PATH; the Python package ansible has it",
    ),
]


def apply(awx, *words):
    command = [sys.executable, "-m", "ansible", "playbook", "awx/apply.yml", "-e", "@awx/settings.example.yml", *words]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": ":".join([str(TOP / ".collections"), *PATHS]),
        "CONTROLLER_HOST": awx.url,
        "CONTROLLER_OAUTH_TOKEN": TOKEN,
    }
    return subprocess.run(command, check=False, cwd=TOP, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture
def awx():
    with AWX() as started:
        started.add("organizations", name="Default")
        started.add("credentials", name="SSH to the inference hosts")
        yield started


def test_the_objects_are_created_once(awx):
    first = apply(awx)
    assert first.returncode == 0, first.stdout + first.stderr
    objects = load("objects.yml")
    created = awx.named("job_templates")
    assert list(created) == [template["name"] for template in objects["awx_job_templates"]]
    surveys = {template["name"]: template["survey"] for template in objects["awx_job_templates"]}
    for name, template in created.items():
        assert awx.surveys.get(template["id"], {"spec": []})["spec"] == surveys[name]
        assert awx.links["job_templates", template["id"], "credentials"] == [1, 2]
    assert json.loads(created["Inference: drain hosts"]["extra_vars"]) == {
        "drain_user": "{{ awx_user_name | default('awx') }}"
    }
    injected = awx.named("credential_types")["Controller state"]["injectors"]
    assert injected == {"env": {"BAREMETAL_STATE_DIR": "{{ directory }}"}}
    written = len(awx.writes)
    second = apply(awx)
    assert second.returncode == 0 and "changed=0" in second.stdout, second.stdout + second.stderr
    assert awx.writes[written:] == []


def test_a_misspelt_setting_is_refused_before_anything_is_created(awx):
    done = apply(awx, "-e", json.dumps({"awx_site": {"imag": "x"}}))
    assert done.returncode != 0 and "imag" in done.stdout + done.stderr
    assert awx.writes == []


def test_the_recorded_parameters_are_those_of_the_collection():
    recorded = yaml.safe_load((TOP / "tests/fixtures/awx_parameters.yml").read_text())
    for module, known in recorded.items():
        tree = ast.parse((INSTALLED / f"plugins/modules/{module}.py").read_text())
        texts = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
        options = yaml.safe_load(ast.literal_eval(texts["DOCUMENTATION"]))["options"]
        assert {name: option.get("type", "str") for name, option in options.items() if name in known} == {
            name: option["type"] for name, option in known.items()
        }, module
