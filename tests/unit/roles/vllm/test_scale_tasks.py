# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks that install and remove the door through which gateways start and stop replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible.plugins.test.core import search as regex_search

ROLES = Path(__file__).resolve().parents[4] / "roles"
TASKS: list[dict[str, Any]] = yaml.safe_load((ROLES / "vllm/tasks/scale.yml").read_text(encoding="utf-8"))


def named(text: str) -> dict[str, Any]:
    (task,) = [task for task in TASKS if text in task["name"]]
    return task


def test_a_removal_that_was_interrupted_anywhere_is_finished_by_the_next_run() -> None:
    removed = named("Remove its files")["loop"]
    # The preflight recognises the door by its file, and the program cannot run without its modules.
    assert removed[-1] == "{{ __vllm_config_dir }}/scale.json"
    assert removed.index("/usr/local/lib/vllm-scale.py") < removed.index("/usr/local/lib/vllm-scale")
    assert "__vllm_scale_there.stat.exists" in named("Stop it")["when"]
    assert named("Wake")["ansible.builtin.command"]["removes"] == "/usr/local/lib/vllm-scale.py"


@pytest.mark.parametrize(
    "file", ["vllm/tasks/scale.yml", "rollout/tasks/return_to_service.yml", "rollout/tasks/start_replicas.yml"]
)
def test_a_run_says_that_it_changed_something_only_where_an_instance_slept(file: str) -> None:
    (task,) = [
        task for task in yaml.safe_load((ROLES / file).read_text(encoding="utf-8")) if " | Wake " in task["name"]
    ]
    environment = jinja2.Environment(autoescape=False)
    environment.tests["search"] = regex_search
    changed = environment.compile_expression(task["changed_when"])
    woken = task["register"]
    # What the module itself says where the program is missing, or in check mode.
    for stdout, expected in (("woke chat\nwoke small", True), ("", False), ("skipped, since it does not exist", False)):
        assert changed(**{woken: {"stdout": stdout}}) is expected
    assert changed(**{woken: {}}) is False


def test_every_run_wakes_the_instances_before_the_program_goes() -> None:
    names = [task["name"] for task in TASKS]
    assert "when" not in named("Wake")
    assert names.index("scale | Stop it where no instance has scale") < names.index(named("Wake")["name"])
    assert names.index(named("Wake")["name"]) < names.index("scale | Remove its files")
