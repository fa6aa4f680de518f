# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role vllm do for instances that share chips."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml
from ansible.plugins.filter.mathstuff import difference, intersect
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import residents_path

ROLE = Path(__file__).resolve().parents[4] / "roles/vllm"
PLANS = {
    "chat": {"instance": "chat", "residents": "a"},
    "coder": {"instance": "coder", "residents": "a"},
    "other": {"instance": "other", "residents": "b"},
    "alone": {"instance": "alone"},
}


def render(text, **variables):
    environment = jinja2.Environment(autoescape=False)
    environment.filters |= {"difference": difference, "intersect": intersect}
    return environment.from_string(text).render(__vllm_plans=PLANS, **variables).strip()


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [([], "[]"), (["chat", "coder"], "[]"), (["alone", "chat"], "['alone']"), (["removed"], "[]")],
)
def test_an_instance_with_its_own_chips_no_longer_waits_at_its_start(sharing, expected):
    text = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__vllm_unshared"]
    assert render(text, vllm_host_state={"sharing": sharing}) == expected


@pytest.mark.parametrize(("name", "expected"), [("chat", "2"), ("other", "1"), ("alone", "1")])
def test_the_wait_for_an_instance_is_as_long_as_all_starts_of_its_chips(name, expected):
    tasks = yaml.safe_load((ROLE / "tasks/run.yml").read_text(encoding="utf-8"))
    texts = [task["vars"]["__vllm_starts"] for task in tasks if "__vllm_starts" in task.get("vars", {})]
    assert [render(text, item={"key": name, "value": PLANS[name]}) for text in texts] == [expected]


def test_what_unshare_removes_is_what_the_role_writes():
    (task,) = yaml.safe_load((ROLE / "tasks/unshare.yml").read_text(encoding="utf-8"))
    path = task["ansible.builtin.file"]["path"]
    assert render(path, __vllm_name="chat") == residents_path("chat") and task["notify"]
