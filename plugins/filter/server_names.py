# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Iterable

from ..module_utils.gateway.servers import server_name


def server_names(instances: Iterable[str], host: str) -> list[str]:
    """Return the names that gateways have for instances of a host."""
    return [server_name(host, instance) for instance in instances]


class FilterModule:
    """Filter of the names of servers."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"server_names": server_names}
