# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError

from ..plugin_utils.options.arguments import env_line


def env_lines(variables: Mapping[str, Any], literal: bool = False) -> list[str]:
    """Return the lines of a file of variables, sorted by name: for systemd and shells, or literal for engines."""
    try:
        return [env_line(name, str(variables[name]), literal) for name in sorted(variables)]
    except ValueError as exc:
        raise AnsibleFilterError(str(exc)) from exc


class FilterModule:
    """Filters of environment files."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"env_lines": env_lines}
