# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible's main process has read before it forks for each host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.preload import preload

TOP = Path(__file__).resolve().parents[5]
# As Ansible's strategy looks at the action of a task, before it forks.
MAIN_PROCESS = """
import json, sys
from ansible.plugins.loader import action_loader, init_plugin_loader
init_plugin_loader([])
action_loader.get("baremetal.inference.serve_plan", class_only=True)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog import accelerators
from ansible_collections.baremetal.inference.plugins.plugin_utils.common import role_options
print(json.dumps({
    "filters": [name.rpartition(".")[2] for name in sys.modules if ".inference.plugins.filter." in name],
    "roles": role_options.options_of.cache_info().currsize,
    "catalogues": accelerators._load.cache_info().currsize,
    # With a number before or after the name.
    "tests": any(name.startswith("ansible.plugins.test.") and "core" in name for name in sys.modules),
}))
"""


def test_an_error_is_left_to_the_task_and_the_rest_is_read():
    read = []
    preload(lambda: 1 / 0, lambda: read.append("second"))
    assert read == ["second"]


@pytest.mark.slow
def test_the_main_process_has_read_what_each_host_needs():
    done = subprocess.run(
        [sys.executable, "-c", MAIN_PROCESS], cwd=TOP, capture_output=True, text=True, check=True, timeout=60
    )
    found = json.loads(done.stdout)
    filters = {path.stem for path in (TOP / "plugins/filter").glob("*.py")}
    assert filters - set(found["filters"]) == set()
    assert (found["roles"], found["catalogues"], found["tests"]) == (11, 1, True)
