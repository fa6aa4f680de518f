# SPDX-License-Identifier: GPL-3.0-or-later
"""Lay a site's own file over the bundled one."""

from typing import Any, Mapping


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return base merged with top: mappings key by key, anything else is replaced."""
    result = dict(base)
    for key, value in top.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        result[key] = overlay(base[key], value) if both else value
    return result
