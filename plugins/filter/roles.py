# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable

from ..plugin_utils.common.booleans import strict_bool
from ..plugin_utils.common.host_library import program_files
from ..plugin_utils.container_runtime.messages import describe_packages
from ..plugin_utils.vendor_stack.messages import describe_commands, describe_failures


class FilterModule:
    """Filters of all roles and playbooks: booleans, programs of hosts, and messages about what failed."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "command_errors": describe_commands,
            "failure_text": describe_failures,
            "host_program": program_files,
            "package_errors": describe_packages,
            "strict_bool": strict_bool,
        }
