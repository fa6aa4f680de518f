# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code that comes with weights runs only with the site's own permission, and only as the manifest pins it."""

from __future__ import annotations

from typing import Mapping

from .choices import Chosen
from .compose import Composed
from .inputs import Manifest, PlanError

FLAG = "trust-remote-code"
_NAMED = 3


def code_of(manifest: Manifest | None) -> list[str]:
    """Return the files of a manifest that vLLM may run."""
    return sorted(name for name in (manifest or {}).get("files") or () if name.endswith(".py"))


def check_remote_code(entry: Chosen, composed: Composed, manifests: Mapping[str, Manifest | None]) -> None:
    """Raise PlanError where a recipe would run code that comes with pinned weights, unless the site permits it.

    The permission is the flag among the instance's own arguments. Weights without code are not affected: hosts have no
    hub to get other code from.
    """
    if not composed.args.get(FLAG) or (entry.requested.get("args") or {}).get(FLAG):
        return
    for model, manifest in manifests.items():
        names = code_of(manifest)
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            raise PlanError(
                f"{entry.where}: the recipe sets --{FLAG}, and the weights of {model} bring code that vLLM would run: "
                f"{', '.join(names[:_NAMED])}{more}; read these files, then allow them with {entry.where}.args: "
                f"{{{FLAG}: true}}, or remove the flag with {{{FLAG}: null}}"
            )
