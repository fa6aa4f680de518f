# SPDX-License-Identifier: GPL-3.0-or-later
"""The origin of each argument and variable of a plan."""

from typing import Any, Mapping

from .compose import Composed

# The layer of what the collection itself sets.
COLLECTION = "collection"


def explain(composed: Composed, args: Mapping[str, Any], env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return for every argument and variable its value, the layer that set it, and the values that it overrode.

    A key that a layer removed is included with the value None.
    """
    rows = []
    values = {**args, **{f"env.{key}": value for key, value in env.items()}}
    values.update({key: None for key in composed.history if key not in values})
    for key, value in values.items():
        steps = composed.history.get(key) or []
        last = steps[-1] if steps else None
        rows.append(
            {
                "key": key,
                "value": value,
                "layer": last.layer if last else COLLECTION,
                "because": last.because if last else "the instance's own place on this host",
                "overrides": [{"layer": step.layer, "value": step.value} for step in steps[:-1]],
            }
        )
    return rows
