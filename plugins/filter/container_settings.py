# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable

from ..module_utils.containers.run_command import container_settings


class FilterModule:
    """Filter of the host's container engine."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"container_settings": container_settings}
