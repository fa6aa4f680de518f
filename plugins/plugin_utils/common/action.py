# SPDX-License-Identifier: GPL-3.0-or-later
"""Base class of the collection's actions that decide on the controller."""

from functools import partial
from typing import Any, Callable, ClassVar, Mapping

from ansible.errors import AnsibleActionFail, AnsibleError, AnsibleUndefinedVariable
from ansible.plugins.action import ActionBase

from ...module_utils.common.foreign_text import escape_diff, escape_lines
from .documented_options import documented_options
from .injected_facts import injected_facts_warnings
from .output import escaped, warn
from .playbook_options import PlaybookOptionError, check_playbook_options
from .preload import load_jinja_plugins, preload
from .role_options import RoleOptionError, check_names_and_values, check_role_options


def is_own(exc: Exception) -> bool:
    """Return whether the class of an exception is one of this collection."""
    return type(exc).__module__.startswith(__name__.partition(".plugin_utils.")[0])


class ControllerAction(ActionBase):
    """Validate the options, call ``decide`` and return its result, without a connection to the host.

    The options are those that the module of the same name documents.
    The text of an exception of this collection is the whole message for the user, and so is that of the others in
    ``ERRORS``. ``ROLES`` are roles that call the action before any other: a misspelt option of theirs is an error here.
    """

    ARGUMENT_SPEC: ClassVar[Mapping[str, Any]] = {}
    ERRORS: ClassVar[tuple[type[Exception], ...]] = ()
    ROLES: ClassVar[tuple[str, ...]] = ()
    _requires_connection = False

    def __init_subclass__(cls) -> None:
        folder, _dot, name = cls.__module__.rpartition(".")
        if folder.endswith(".action"):  # not for a base class of actions
            cls.ARGUMENT_SPEC = documented_options(name)
        preload(partial(check_names_and_values, {}, cls.ROLES))

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        check_options(self.roles(), task_vars, self._templar, self._task)
        _validated, options = self.validate_argument_spec(argument_spec=dict(self.ARGUMENT_SPEC))
        try:
            found = self.decide(options, task_vars or {})
        except AnsibleActionFail as exc:
            raise AnsibleActionFail(escape_lines(exc.message)) from None
        except Exception as exc:
            if not isinstance(exc, self.ERRORS) and not is_own(exc):
                raise
            # ansible-core 2.18 prints the original exception as well.
            exc.args = (escape_lines(str(exc)),)
            # With a cause, Ansible would append its message and print the same sentence twice.
            raise AnsibleActionFail(exc.args[0]) from None
        if "warnings" in found:
            found = {**found, "warnings": escaped(found["warnings"])}
        if "diff" in found:
            found = {**found, "diff": escape_diff(found["diff"])}
        return {**result, "changed": False, **found}

    def roles(self) -> tuple[str, ...]:
        """Return the roles whose options are checked."""
        return self.ROLES

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the keys of the result; ``changed`` is false unless it is among them."""
        raise NotImplementedError


class CheckedModule(ActionBase):
    """Check the names of the role's options, then run the module of the action's name on the host."""

    ROLES: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        preload(partial(check_names_and_values, {}, cls.ROLES))

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        check_options(self.ROLES, task_vars, self._templar, self._task)
        return {**result, **self._execute_module(task_vars=task_vars)}


def check_options(roles: tuple[str, ...], variables: Mapping[str, Any] | None, templar: Any, task: Any = None) -> None:
    """Show the warnings of misspelt options of roles and playbooks, even if the task fails later.

    Raises AnsibleActionFail.
    """
    template = templar.template if templar else None
    # A plan that reads no keys is made where they are not, such as in a fresh checkout.
    if template and task and str(task.args.get("read_keys")) == "False":
        template = partial(_if_there, template)
    try:
        warnings = injected_facts_warnings() + check_playbook_options(task.get_path() if task else None)
        warnings += check_role_options(variables or {}, roles, template)
    except (PlaybookOptionError, RoleOptionError) as exc:
        # With a cause, Ansible would print the sentence again without its place.
        raise AnsibleActionFail(str(exc)) from None
    for text in warnings:
        warn(text)


def _if_there(template: Callable[[Any], Any], value: Any) -> Any:
    """Return the result of a template. Raises AnsibleUndefinedVariable for what a lookup does not find, too."""
    try:
        return template(value)
    except AnsibleError as exc:
        raise AnsibleUndefinedVariable(str(exc)) from exc


preload(load_jinja_plugins)
