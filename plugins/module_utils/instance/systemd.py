# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``systemctl show`` prints of units."""

from __future__ import annotations


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of one unit."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """Return the properties of several units by their Id, which must be among the properties."""
    units = (parse_properties(block) for block in text.split("\n\n"))
    return {unit["Id"]: unit for unit in units if "Id" in unit}
