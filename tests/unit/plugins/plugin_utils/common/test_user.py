# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.user import controller_user


@pytest.mark.parametrize(
    ("environment", "uid", "name"),
    [
        ({"SUDO_USER": "alice", "USER": "root"}, 0, "alice"),
        ({"USER": "", "LOGNAME": "bob"}, 0, "bob"),
        ({}, 0, "root"),
        ({}, 4_000_000, "uid-4000000"),
        ({"USER": "CORP\\carol smith"}, 0, "CORP_carol_smith"),
    ],
)
def test_whoever_runs_a_playbook_has_a_name(environment, uid, name):
    assert controller_user(environment, uid) == name
