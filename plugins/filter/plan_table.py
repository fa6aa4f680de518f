# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

from ansible.errors import AnsibleFilterError

from ..plugin_utils.fleet import explain as _explain


def plan_table(plans: Iterable[Mapping[str, Any]], width: int = _explain.WIDTH) -> str:
    """Return what each distinct plan sets, from which layer and why, as a table of text."""
    try:
        return _explain.plan_table(list(plans), width)
    except (KeyError, TypeError, AttributeError) as exc:
        raise AnsibleFilterError(f"plan_table: expected a list of plans as render.yml writes them: {exc!r}") from exc


class FilterModule:
    """Filters of plans."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plan_table": plan_table}
