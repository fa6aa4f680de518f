# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.baremetal.inference.plugins.plugin_utils.health.program import library


class FilterModule:
    """Filter of the files of the health service."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"health_library": library}
