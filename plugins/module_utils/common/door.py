# SPDX-License-Identifier: GPL-3.0-or-later
"""How a module begins and ends: the only file that makes an AnsibleModule, so that none lacks what all need."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from .documented import documented_arguments
from .module import guard

__all__ = ["AnsibleModule", "Result", "door", "start_module"]

Result = Mapping[str, Any]
# How the names of this collection's modules begin.
_OWN = __name__.partition(".module_utils.")[0]


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
    # What a command says is read, and is quoted where it fails.
    module.run_command_environ_update = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    return module


def door(
    documentation: str, *errors: type[Exception], **more: Any
) -> Callable[[Callable[[AnsibleModule], Result]], Callable[[], None]]:
    """Return what makes the ``main`` of a module of a function that returns its result; ``more`` is for start_module.

    ``changed`` is false unless it is in the result. The text of an exception of this collection, or of ``errors``, is
    the whole message for the user, as for ControllerAction.
    """

    def decorate(work: Callable[[AnsibleModule], Result]) -> Callable[[], None]:
        def main() -> None:
            module = start_module(documentation, **more)
            try:
                result = work(module)
            except Exception as exc:
                # Ansible runs a module as __main__.
                if not isinstance(exc, errors) and not type(exc).__module__.startswith((_OWN, "__main__")):
                    raise
                module.fail_json(msg=str(exc))
            module.exit_json(**{"changed": False, **result})

        return main

    return decorate
