# SPDX-License-Identifier: GPL-3.0-or-later
"""How a module begins and ends: the only file that makes an AnsibleModule, so that none lacks what all need."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from .documented import documented_arguments
from .module import guard

__all__ = ["AnsibleModule", "run_module", "start_module"]


def start_module(
    documentation: str, secret: Sequence[str] = (), others: Mapping[str, Any] | None = None, **more: Any
) -> AnsibleModule:
    """Return the module of this process, whose messages a terminal can print.

    It takes the options that it documents, of which those in ``secret`` are masked, and ``others``, which a fragment of
    its documentation describes. ``more`` is as AnsibleModule takes it.
    """
    arguments = {**documented_arguments(documentation, secret), **(others or {})}
    module = AnsibleModule(argument_spec=arguments, **{"supports_check_mode": True, **more})
    guard(module)
    return module


def run_module(
    work: Callable[[AnsibleModule], Mapping[str, Any]],
    documentation: str,
    *errors: type[Exception],
    **more: Any,
) -> None:
    """End with what ``work`` returns for the module of this process; the text of one of its errors is the message."""
    module = start_module(documentation, **more)
    try:
        result = work(module)
    except errors as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**result)
