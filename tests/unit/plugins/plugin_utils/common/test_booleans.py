# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.booleans import (
    BooleanError,
    read_boolean,
    strict_bool,
)


@pytest.mark.parametrize("value", [False, 0, "false", "False", " no ", "off", "0", "n"])
def test_false_is_written_in_many_ways(value):
    assert read_boolean("site_drivers", value) is False


@pytest.mark.parametrize("value", [True, 1, "true", "TRUE", "yes", "on", "1"])
def test_true_is_written_in_many_ways(value):
    assert read_boolean("site_drivers", value) is True


@pytest.mark.parametrize(
    ("value", "shown"),
    [("maybe", "'maybe'"), ("", "''"), (2, "2"), (None, "nothing"), ([], "[]"), ({"a": 1}, "{'a': 1}")],
)
def test_anything_else_is_refused_with_the_name_of_the_variable(value, shown):
    with pytest.raises(BooleanError) as caught:
        read_boolean("site_drivers", value)
    assert str(caught.value) == f"site_drivers: found {shown}, expected true or false"


def test_the_filter_raises_an_error_of_ansible():
    assert strict_bool("no", "drain_force") is False
    with pytest.raises(AnsibleFilterError, match=r"drain_force: found 'maybe', expected true or false"):
        strict_bool("maybe", "drain_force")
