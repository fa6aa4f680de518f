# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable

from ..plugin_utils.common.host_library import library


class FilterModule:
    """Filter of the files that a program of a host imports."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"host_library": library}
