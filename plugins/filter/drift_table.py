# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

from ansible.errors import AnsibleFilterError

from ..plugin_utils.drift import report as _drift
from ..plugin_utils.fleet import explain as _explain


def drift_table(
    settings: Iterable[Mapping[str, Any]], older: str, newer: str, what: str = "", width: int = _explain.WIDTH
) -> str:
    """Return what appears, changes or vanishes between two releases as tables of text."""
    try:
        return _drift.drift_table([dict(row) for row in settings], older, newer, what, width)
    except (KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"drift_table: expected settings as release_drift returns them: {exc!r}") from exc


class FilterModule:
    """Filters of drift reports."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"drift_table": drift_table}
