# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError

from ..module_utils.common.kinds import name_kind
from ..plugin_utils.planning.instances import secret_problem


def secret_names(secrets: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the names of each instance's secrets with what is wrong with their values."""
    for instance, entries in secrets.items():
        if not isinstance(entries, Mapping):
            raise AnsibleFilterError(
                f"vllm_secrets.{instance}: found {name_kind(entries)}, expected a mapping of environment variables"
            )
    return {
        instance: {name: secret_problem(value) for name, value in entries.items()}
        for instance, entries in secrets.items()
    }


class FilterModule:
    """The filter of the secrets' names."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"secret_names": secret_names}
