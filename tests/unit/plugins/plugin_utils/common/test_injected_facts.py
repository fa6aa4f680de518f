# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest
from ansible import constants
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.injected_facts import (
    VARIABLE,
    injected_facts_warnings,
    keep_facts_apart,
)


@pytest.mark.parametrize("path", ["/etc/ansible/ansible.cfg", None])
def test_ansible_must_keep_facts_apart(monkeypatch, path):
    monkeypatch.setattr(constants, "CONFIG_FILE", path)
    monkeypatch.setattr(constants, "INJECT_FACTS_AS_VARS", True, raising=False)
    monkeypatch.setenv(VARIABLE, "true")
    (text,) = injected_facts_warnings()
    assert text.startswith(f"inject_facts_as_vars: found true ({path or 'no ansible.cfg is in use'}), expected false: ")
    keep_facts_apart()
    assert injected_facts_warnings() == [] and os.environ[VARIABLE] == "false"


def test_a_release_without_the_setting_keeps_them_apart(monkeypatch):
    monkeypatch.setattr(constants, "INJECT_FACTS_AS_VARS", False, raising=False)
    assert injected_facts_warnings() == []
    monkeypatch.delattr(constants, "INJECT_FACTS_AS_VARS")
    keep_facts_apart()
    assert injected_facts_warnings() == [] and not hasattr(constants, "INJECT_FACTS_AS_VARS")
