# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping


def busy_instances(waited: Mapping[str, Any] | None) -> list[str]:
    """Return the instances that were still busy when a loop of instance_idle ended; none if the loop did not run.

    An instance that could not be asked is not among them, because its task failed.
    """
    results = (waited or {}).get("results") or []
    return [entry["item"] for entry in results if "idle" in entry and not entry["idle"]]


class FilterModule:
    """Filter of the instances that are still busy."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"busy_instances": busy_instances}
