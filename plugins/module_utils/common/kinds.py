# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds of values in plain words, for messages about what a user wrote or a server sent."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

# A boolean is also an int.
_KINDS = (
    (bool, "true or false"),
    (str, "a text"),
    ((int, float), "a number"),
    (Mapping, "a mapping"),
    ((list, tuple), "a list"),
    ((set, frozenset), "a set"),
    (datetime.date, "a date"),
    (bytes, "binary data"),
)


def name_kind(value: object) -> str:
    """Return the kind of a value in plain words.

    The name of its class would not help a user: Ansible's values have derived classes like _AnsibleTaggedStr.
    """
    if value is None:
        return "nothing"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "a value of another kind")


def show_value(value: object) -> str:
    """Return a value as a message shows it: ``nothing`` for YAML's null, which Python calls None."""
    return "nothing" if value is None else repr(value)
