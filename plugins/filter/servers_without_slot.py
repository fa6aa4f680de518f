# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ..module_utils.gateway.servers import server_name
from ..module_utils.slots.state import GOOD


def servers_without_slot(servers: Sequence[str], slots: Mapping[str, Mapping[str, Any]], host: str) -> list[str]:
    """Return the servers (``HOST--INSTANCE``) of a host's installed instances without a kept state."""
    names = {server_name(host, name) for name, slot in slots.items() if not slot.get(GOOD)}
    return [server for server in servers if server in names]


class FilterModule:
    """Filter of the servers that cannot be restored."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"servers_without_slot": servers_without_slot}
