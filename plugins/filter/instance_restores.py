# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping

from ..module_utils.slots.state import GOOD


def instance_restores(
    slots: Mapping[str, Mapping[str, Any]], to: str = GOOD, states: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the state to restore for each instance: a digest, ``good`` or ``previous``.

    Every instance with a kept state is restored ``to`` it. With ``states``, only the instances named there are, each to
    its own state; an instance without a kept state that should return to ``good`` is not changed.
    """
    kept = [name for name, slot in slots.items() if slot.get(GOOD)]
    if states is None:
        return dict.fromkeys(kept, to)
    return {name: state for name, state in states.items() if state != GOOD or name in kept}


class FilterModule:
    """Filter of the states that instances are restored to."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"instance_restores": instance_restores}
