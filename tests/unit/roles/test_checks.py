# SPDX-License-Identifier: GPL-3.0-or-later
"""A check before the first change passes the options of the change, which stand in another file: YAML has no reference
to one, a variable with all of them would be templated with a warning, and `check_mode` of one task says only once what
it is for."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).resolve().parents[3]
BOOKS = ("playbooks/provision.yml", "playbooks/deprovision.yml", "playbooks/power_cycle.yml")


def options(file, module):
    """Return the options of the first task of a file with a module, whose name begins so."""
    content = yaml.safe_load((TOP / file).read_text())
    tasks = [task for entry in content for task in (entry.get("tasks") or [entry])]
    named = [(name.removeprefix("baremetal.inference."), task[name]) for task in tasks for name in task]
    return next(found for name, found in named if name.endswith(module))


@pytest.mark.parametrize(
    ("check", "change", "module", "differ"),
    [
        ("roles/weights/tasks/preflight.yml", "roles/weights/tasks/fetch.yml", "weights", set()),
        ("roles/vllm/tasks/host.yml", "roles/vllm/tasks/install.yml", "uv_venv", set()),
        # The check asks the registry for an image that the change pulls.
        ("roles/vllm/tasks/host.yml", "roles/vllm/tasks/install.yml", "container_image", {"check_registry"}),
    ],
)
def test_a_check_passes_the_options_of_the_change(check, change, module, differ):
    one, other = options(check, module), options(change, module)
    assert {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)} == differ


@pytest.mark.parametrize(("one", "other"), list(combinations(BOOKS, 2)))
def test_playbooks_of_servers_pass_the_options_of_ironic_and_bmcs_alike(one, other):
    here, there = options(one, "_hosts"), options(other, "_hosts")
    shared = here.keys() & there.keys()
    assert len(shared) > 9 and {name: here[name] for name in shared} == {name: there[name] for name in shared}
