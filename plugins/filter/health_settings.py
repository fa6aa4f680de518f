# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import FaultsError
from ansible_collections.baremetal.inference.plugins.plugin_utils.health.settings import settings_of


def health_settings(
    accelerator: Mapping[str, Any], host: str, plans: Mapping[str, Mapping[str, Any]], fault_path: Sequence[str]
) -> dict[str, Any]:
    """Return the configuration of the health service."""
    try:
        return settings_of(accelerator, host, plans, fault_path)
    except FaultsError as exc:
        raise AnsibleFilterError(str(exc)) from exc


class FilterModule:
    """Filter of the configuration of the health service."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"health_settings": health_settings}
