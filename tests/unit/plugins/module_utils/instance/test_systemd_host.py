# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd_host import show_instances


def test_the_properties_of_several_units(program):
    program("systemctl", r"printf 'Id=vllm@b.service\nActiveState=inactive\n\nId=vllm@a.service\nActiveState=active\n'")
    found = show_instances(["a", "b"], ["ActiveState"])
    assert {name: unit["ActiveState"] for name, unit in found.items()} == {"a": "active", "b": "inactive"}


@pytest.mark.parametrize("script", ["exit 1", "exit 0", "echo Id=vllm@b.service"])
def test_no_answer_is_no_inactive_unit(program, script):
    program("systemctl", script)
    with pytest.raises(OSError, match="systemd does not"):
        show_instances(["a"], ["ActiveState"])


def test_nothing_is_asked_for_no_instance(program):
    program("systemctl", "exit 1")
    assert show_instances([], ["ActiveState"]) == {}
