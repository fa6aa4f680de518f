# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base class of the collection's actions that decide on the controller."""

from __future__ import annotations

from typing import Any, ClassVar, Mapping

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ControllerAction(ActionBase):
    """Validate the options, call ``decide`` and return what it found; no connection to the host is made.

    ``ERRORS`` are exceptions of ``decide`` whose text is the whole message for the user.
    """

    ARGUMENT_SPEC: ClassVar[Mapping[str, Any]] = {}
    ERRORS: ClassVar[tuple[type[Exception], ...]] = ()
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=dict(self.ARGUMENT_SPEC))
        try:
            found = self.decide(options, task_vars or {})
        except self.ERRORS as exc:
            raise AnsibleActionFail(str(exc)) from exc
        return {**result, "changed": False, **found}

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the keys of the result; ``changed`` is false unless it is among them."""
        raise NotImplementedError
