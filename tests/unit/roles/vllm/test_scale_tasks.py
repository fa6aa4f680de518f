# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks that install and remove the door through which gateways start and stop replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

TASKS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).resolve().parents[4] / "roles/vllm/tasks/scale.yml").read_text(encoding="utf-8")
)


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


def test_every_run_wakes_the_instances_before_the_program_goes() -> None:
    names = [task["name"] for task in TASKS]
    assert "when" not in named("Wake")
    assert names.index("scale | Stop it where no instance has scale") < names.index(named("Wake")["name"])
    assert names.index(named("Wake")["name"]) < names.index("scale | Remove its files")
