# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import inspect

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.module_utils.common.module import Module


def test_ansible_s_own_module_takes_the_same_arguments():
    methods = [
        (name, method) for name, method in inspect.getmembers(Module, inspect.isfunction) if not name.startswith("_")
    ]
    assert len(methods) == 5
    for name, method in methods:
        wanted = set(inspect.signature(method).parameters)
        assert wanted - set(inspect.signature(getattr(AnsibleModule, name)).parameters) <= {"kwargs"}, name
