# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import types

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.kinds import name_kind, show_value

VALUES = [
    ({}, "a mapping"),
    (types.MappingProxyType({}), "a mapping"),
    ([], "a list"),
    ((), "a list"),
    (set(), "a set"),
    ("", "a text"),
    (2, "a number"),
    (0.5, "a number"),
    (True, "true or false"),
    (datetime.date(2026, 1, 2), "a date"),
    (datetime.datetime(2026, 1, 2), "a date"),
    (None, "nothing"),
    (b"", "binary data"),
    (object(), "a value of another kind"),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=[type(value).__name__ for value, _kind in VALUES])
def test_a_kind_is_named_in_plain_words(value, kind):
    assert name_kind(value) == kind


@pytest.mark.parametrize("kind", [dict, list, str, int, float])
def test_a_derived_class_has_the_name_of_its_kind(kind):
    derived = type("_AnsibleTagged", (kind,), {})
    assert name_kind(derived()) == name_kind(kind())


def test_null_is_shown_as_nothing():
    assert [show_value(value) for value in (None, "", 0, [None])] == ["nothing", "''", "0", "[None]"]
