# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible import constants
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.injected_facts import (
    InjectedFactsError,
    refuse_injected_facts,
)


@pytest.mark.parametrize("path", ["/etc/ansible/ansible.cfg", None])
def test_ansible_must_keep_facts_apart(monkeypatch, path):
    monkeypatch.setattr(constants, "CONFIG_FILE", path)
    monkeypatch.setattr(constants, "INJECT_FACTS_AS_VARS", True, raising=False)
    where = path or "no ansible.cfg is in use"
    with pytest.raises(InjectedFactsError, match=rf"inject_facts_as_vars: found true \({where}\), expected false: .*"):
        refuse_injected_facts()


def test_a_release_without_the_setting_keeps_them_apart(monkeypatch):
    monkeypatch.setattr(constants, "INJECT_FACTS_AS_VARS", False, raising=False)
    refuse_injected_facts()
    monkeypatch.delattr(constants, "INJECT_FACTS_AS_VARS")
    refuse_injected_facts()
