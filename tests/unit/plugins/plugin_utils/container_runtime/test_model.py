# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import fields

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.run_file import Installer
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.model import EnginePlan, PlanPart

FILE = Installer("x.run", "https://site/x.run", "/var/lib/x.run", "ab" * 32, ("/var/lib/x.run",), "the runtime")


def test_the_steps_of_two_parts_keep_their_order():
    both = PlanPart(packages=("a",), notes=("one",)) + PlanPart(packages=("b",), units=("c",))
    assert both == PlanPart(packages=("a", "b"), notes=("one",), units=("c",))


@pytest.mark.parametrize(
    ("part", "installs", "changes"),
    [
        ({}, False, False), ({"notes": ("kept",)}, False, False), ({"enable": ("docker-ce-stable",)}, False, False),
        ({"packages": ("docker-ce",)}, True, True), ({"remove": ("docker.io",)}, True, True),
        ({"toolkit": ("nvidia-container-toolkit",)}, True, True), ({"recover": True}, True, True),
        ({"installers": (FILE,)}, False, True), ({"hold": ("docker-ce",)}, False, True),
        ({"absent": ("/etc/cdi/nvidia.yaml",)}, False, True), ({"files": ({"path": "/x"},)}, False, True),
        ({"settings_files": ({"path": "/x"},)}, False, True), ({"units": ("docker.service",)}, False, True),
        ({"commands": (("amd-ctk",),)}, False, True), ({"restart": ("it is old",)}, False, True),
        ({"reload": ("a mirror",)}, False, True), ({"repositories": ({"name": "docker"},)}, False, True),
    ],
)  # fmt: skip
def test_a_plan_says_whether_packages_or_anything_else_change(part, installs, changes):
    plan = EnginePlan(engine="docker", unit="docker.service", **part)
    assert (plan.installs, plan.changes) == (installs, changes)


def test_tasks_get_plain_data_with_a_key_for_each_step():
    plain = EnginePlan(engine="docker", installers=(FILE,), commands=(("a", "b"),), mend=({"argv": ["c"]},)).as_dict()
    assert set(plain) == {field.name for field in fields(EnginePlan)}
    assert plain["commands"] == [["a", "b"]] and plain["installers"][0]["argv"] == ["/var/lib/x.run"]
