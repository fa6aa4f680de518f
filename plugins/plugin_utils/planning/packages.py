# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that the code of a model imports: a lock of wheels that lacks them is refused, and nothing is installed."""

import re
from typing import Any, Mapping, Sequence

from ...module_utils.endpoint.model_kind import kind_of
from .choices import Chosen
from .inputs import Manifest, PlanError

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def check_packages(entry: Chosen, manifest: Manifest | None, packages: Sequence[Mapping[str, Any]]) -> None:
    """Raise PlanError where the lock of an instance in a virtual environment lacks what its pinned model imports.

    ``packages`` are those of the families. Images have what vLLM's own builds have.
    """
    text = entry.stack.get("requirements_text") if entry.runtime == "venv" else None
    names = ((manifest or {}).get("config") or {}).get("architectures") or []
    if not text or not names:
        return
    pinned = {name.lower().replace("_", "-") for name in _PIN.findall(text)}
    kinds = {kind_of(name) for name in names}
    for needed in packages:
        concerned = {*(needed.get("architectures") or [])} & {*names} or {*(needed.get("kinds") or [])} & kinds
        if concerned and not pinned & {*needed["any_of"]}:
            raise PlanError(
                f"{entry.where}.recipe: {entry.model} needs {_or(needed['any_of'])}, which the lock "
                f"{entry.stack['requirements']} lacks; set {entry.where}.runtime: container with an image that has it, "
                "or make a lock with it (playbooks/lock_release.yml, lock_requirements)"
            )


def _or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
