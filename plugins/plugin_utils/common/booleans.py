# SPDX-License-Identifier: GPL-3.0-or-later
"""Booleans of the command line: ``-e site_drivers=false`` is a text, and a text that is not empty counts as true."""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean

from ...module_utils.common.kinds import show_value


class BooleanError(ValueError):
    """A value is not a boolean; the message names the variable and the value."""


def read_boolean(name: str, value: Any) -> bool:
    """Return a boolean or its text (true, yes, on, 1, false, no, off, 0). Raises BooleanError for anything else."""
    try:
        return bool(boolean(value))
    except TypeError:
        shown = show_value(str(value) if isinstance(value, str) else value)
        raise BooleanError(f"{name}: found {shown[:80]}, expected true or false") from None


def strict_bool(value: Any, name: str) -> bool:
    """Return read_boolean as a filter of Ansible. Raises AnsibleFilterError."""
    try:
        return read_boolean(name, value)
    except BooleanError as exc:
        raise AnsibleFilterError(str(exc)) from exc
