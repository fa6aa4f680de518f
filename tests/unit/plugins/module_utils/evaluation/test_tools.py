# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tool import Run
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tools import DEFAULT, TOOLS
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.playbook_options import CHOICES
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.files import find_tasks

QUESTION = {"id": "1", "prompt": "?", "question": "?", "choices": ["a", "b", "c", "d"], "expected": "1"}


def test_the_default_takes_every_task_and_the_others_take_bundled_ones():
    assert TOOLS[DEFAULT].tasks == () and tuple(TOOLS) == CHOICES["evaluate_tool"]
    for tool in TOOLS.values():
        assert set(tool.tasks) <= set(find_tasks([]))


@pytest.mark.parametrize("name", TOOLS)
def test_each_tool_has_what_a_run_needs(name):
    tool = TOOLS[name]
    for task in tool.tasks or ("made",):
        run = Run(task, "word", "/w/samples.jsonl", "/w", "http://127.0.0.1:8000", "m", {"max_tokens": 9}, 8, 60)
        files = tool.files(run, [QUESTION])
        assert files and all(not path.startswith("/") for path in files)
        assert any("8000" in text for text in files.values())
        assert any(argument.startswith("/w/") for argument in tool.arguments("/w")) and tool.output(task)
