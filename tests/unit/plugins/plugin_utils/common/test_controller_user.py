# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.controller_user import controller_user


@pytest.mark.parametrize(
    ("environment", "user"),
    [
        ({"SUDO_USER": "alice", "USER": "root", "LOGNAME": "root"}, "alice"),
        ({"SUDO_USER": "", "USER": "bob"}, "bob"),
        ({"LOGNAME": "carol"}, "carol"),
        ({"USER": "CORP/d. müller"}, "CORP_d._m_ller"),
    ],
)
def test_the_environment_names_the_person(environment, user):
    assert controller_user(environment) == user


def test_without_variables_the_system_is_asked():
    assert controller_user({}) == pwd.getpwuid(os.getuid()).pw_name


def test_a_user_without_a_name_is_a_number(monkeypatch):
    def unknown(_uid):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert controller_user({}) == f"uid-{os.getuid()}"
