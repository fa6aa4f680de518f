# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import sys
from types import SimpleNamespace

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


def test_what_ansible_has_kept_from_its_first_play_changes_too(monkeypatch):
    """As ansible-core 2.20 reads it once, when a play begins that may not be one of the collection."""
    kept = SimpleNamespace(_INJECT_FACTS=True)
    monkeypatch.setitem(sys.modules, "ansible.executor.task_executor", kept)
    monkeypatch.setattr(constants, "INJECT_FACTS_AS_VARS", False, raising=False)
    keep_facts_apart()
    assert kept._INJECT_FACTS is False
