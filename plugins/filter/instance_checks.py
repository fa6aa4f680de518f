# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from typing import Any, Callable, Mapping


def instance_checks(instances: Mapping[str, Mapping[str, Any]] | None, name: str) -> list[str]:
    """Return the checks that an entry of vllm_instances requests, empty where the model decides.

    ``name`` may be that of a replica: those of chat are chat-2, chat-3 and so on.
    """
    entries = instances or {}
    found = entries.get(name) or entries.get(re.sub(r"-\d+\Z", "", name)) or {}
    return list(found.get("checks") or [])


class FilterModule:
    """Filter of the checks that an instance requests."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"instance_checks": instance_checks}
