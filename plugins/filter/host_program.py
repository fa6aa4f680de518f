# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable

from ..plugin_utils.common.host_library import program_files


class FilterModule:
    """Filter of the files of a program that runs on hosts."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"host_program": program_files}
