# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of an answer; whole answers come from a server in test_client.py."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.answers import BadAnswerError, value_at


def test_a_bool_is_no_number():
    with pytest.raises(BadAnswerError, match=r"^n is true, expected a number$"):
        value_at({"n": True}, "n", kind=int)
    with pytest.raises(BadAnswerError, match=r"n is 1000.*, expected a number"):
        value_at({"n": 10**400}, "n", kind=int)
