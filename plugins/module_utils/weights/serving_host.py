# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the instances that run from a damaged model, and stop them while its files are replaced."""

from __future__ import annotations

import contextlib
import os
from typing import Callable, Iterator, Sequence

from .files_host import ModelState
from .manifest import WeightsError

# What happens to a model whose files must be fetched again while an instance uses it.
REFUSE, REPORT, REPAIR = "refuse", "report", "repair"


def find_serving(state: ModelState, state_dir: str, is_active: Callable[[str], bool]) -> list[str]:
    """Return the units that run from a model with missing files; those whose symlink ``model`` leads to it."""
    if not state.missing or not os.path.isdir(state.directory) or not os.path.isdir(state_dir):
        return []
    wanted = os.path.realpath(state.directory)
    names = sorted(os.listdir(state_dir))
    found = [name for name in names if os.path.realpath(os.path.join(state_dir, name, "model")) == wanted]
    return [f"vllm@{name}.service" for name in found if is_active(f"vllm@{name}.service")]


def describe_serving(state: ModelState, units: Sequence[str]) -> str:
    """Return a sentence on the fault of a model that units use, and what to do."""
    files, run = ", ".join(file.name for file in state.missing), "runs" if len(units) == 1 else "run"
    return (
        f"{state.directory}: {files} must be fetched again, but {' and '.join(units)} {run} from this directory; "
        "run again with -e weights_repair=true, which fetches the files, then stops the instance and starts it again"
    )


@contextlib.contextmanager
def stopped(units: Sequence[str], systemctl: Callable[[str, str], str]) -> Iterator[None]:
    """Stop units, which lets their requests finish, and start them again at the end. Raises WeightsError.

    ``systemctl`` runs a verb on a unit and returns its error output, an empty string for success.
    """
    try:
        for unit in units:
            fault = systemctl("stop", unit)
            if fault:
                raise WeightsError(f"{unit} cannot be stopped to replace its weights: {fault}")
        yield
    finally:
        faults = [fault for fault in (systemctl("start", unit) for unit in units) if fault]
    if faults:
        raise WeightsError(f"the weights are replaced, but the instance cannot be started: {'; '.join(faults)}")
