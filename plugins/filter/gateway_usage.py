# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError

from ..plugin_utils.gateway import usage as _usage


def gateway_usage(results: Mapping[str, Mapping[str, Any]], form: str = "table", width: int = _usage.WIDTH) -> str:
    """Return the tokens that all gateways counted, as a table, CSV or JSON."""
    try:
        return _usage.usage_text(dict(results), form, width)
    except (AttributeError, KeyError, TypeError) as exc:
        raise AnsibleFilterError(f"gateway_usage: expected results of gateway_usage_info by gateway: {exc!r}") from exc
    except ValueError as exc:
        raise AnsibleFilterError(f"gateway_usage: {exc}") from exc


class FilterModule:
    """Filters for results of gateway_usage_info."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gateway_usage": gateway_usage}
