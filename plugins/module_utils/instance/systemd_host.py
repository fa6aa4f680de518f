# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask systemd about the units of instances."""

from __future__ import annotations

import subprocess
from typing import Sequence

from .marks import unit_of
from .systemd import UNIT_PROPERTIES, Unit, parse_unit, parse_units

_TIMEOUT = 30.0


def show_instances(names: Sequence[str], properties: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return properties of the units of instances by their names. Raises OSError where systemd does not answer.

    An unknown unit has properties too: systemd calls it inactive.
    """
    if not names:
        return {}
    words = ["systemctl", "show", f"--property={','.join(('Id', *properties))}", "--", *map(unit_of, names)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=_TIMEOUT)
    except subprocess.SubprocessError as exc:
        raise OSError(f"systemd does not answer: {exc}") from exc
    found = parse_units(done.stdout)
    missing = [name for name in names if unit_of(name) not in found]
    if missing:
        raise OSError(f"systemd does not describe {', '.join(map(unit_of, missing))}")
    return {name: found[unit_of(name)] for name in names}


def read_units(names: Sequence[str]) -> dict[str, Unit]:
    """Return the state of the units of instances. Raises OSError where systemd does not answer."""
    # Nothing but the whole answer: an unknown instance would count as one without memory.
    return {name: parse_unit(found) for name, found in show_instances(names, UNIT_PROPERTIES).items()}
