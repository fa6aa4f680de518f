# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role vllm do for instances that share chips."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml
from ansible.plugins.filter.core import dict_to_list_of_dict_key_value_elements, flatten
from ansible.plugins.filter.mathstuff import difference, intersect
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import drop_ins, resident_files

ROLE = Path(__file__).resolve().parents[4] / "roles/vllm"
PLANS = {
    "chat": {"instance": "chat", "residents": "a"},
    "coder": {"instance": "coder", "residents": "a"},
    "other": {"instance": "other", "residents": "b"},
    "alone": {"instance": "alone"},
}


def render(text, **variables):
    environment = jinja2.Environment(autoescape=False)
    items = dict_to_list_of_dict_key_value_elements
    environment.filters |= {"dict2items": items, "difference": difference, "flatten": flatten, "intersect": intersect}
    return environment.from_string(text).render(__vllm_plans=PLANS, **variables).strip()


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, []),
        ({"chat": [0]}, []),
        ({"alone": [0, 1], "chat": [0]}, [("alone", 0), ("alone", 1)]),
        ({"gone": [0]}, []),
    ],
)
def test_an_instance_with_its_own_chips_no_longer_waits_at_its_start(there, expected):
    text = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__vllm_surplus_drop_ins"]
    files = [entry for name, plan in PLANS.items() if "residents" in plan for entry in resident_files(name)]
    state = {"drop_ins": {name: [drop_ins(name)[number] for number in numbers] for name, numbers in there.items()}}
    assert render(text, vllm_host_state=state, vllm_files=files) == str(
        sorted(drop_ins(name)[i] for name, i in expected)
    )


@pytest.mark.parametrize(("name", "expected"), [("chat", "2"), ("other", "1"), ("alone", "1")])
def test_the_wait_for_an_instance_is_as_long_as_all_starts_of_its_chips(name, expected):
    tasks = yaml.safe_load((ROLE / "tasks/run.yml").read_text(encoding="utf-8"))
    texts = [task["vars"]["__vllm_starts"] for task in tasks if "__vllm_starts" in task.get("vars", {})]
    assert [render(text, item={"key": name, "value": PLANS[name]}) for text in texts] == [expected]


def test_systemd_reads_its_files_again_after_a_removal():
    (task,) = yaml.safe_load((ROLE / "tasks/drop_ins.yml").read_text(encoding="utf-8"))
    assert task["notify"] == "Reload systemd for the changed units"
