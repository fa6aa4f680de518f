# SPDX-License-Identifier: GPL-3.0-or-later
"""What rooms use of an AnsibleModule: a module hands it on, and only door.py makes one."""

from __future__ import annotations

from typing import Any, Callable, Protocol

from .foreign_text import escape_diff, escape_lines


class Module(Protocol):
    """The options of a task, and the ways to run commands and to report."""

    params: dict[str, Any]
    check_mode: bool
    tmpdir: str
    no_log_values: set[str]

    def run_command(self, args: Any, check_rc: bool = ..., encoding: str | None = ...) -> Any:
        """Return status, output and error output of a command."""

    def get_bin_path(self, arg: str, required: bool = ..., opt_dirs: Any = ...) -> str | None:
        """Return the path of a program, None where the host has none."""

    def warn(self, warning: str) -> None:
        """Show a warning with the result."""

    def log(self, msg: str) -> None:
        """Write to the system's log."""

    def fail_json(self, msg: str, **kwargs: Any) -> None:
        """End with an error."""


def guard(module: Any) -> None:
    """Make the messages, warnings and diffs of an AnsibleModule harmless: a terminal must not obey a text from outside.

    Names of processes and files, answers of servers and the output of programs are in them, and Ansible prints them as
    they are.
    """
    for name in ("fail_json", "warn"):
        setattr(module, name, _escaping(getattr(module, name)))
    end = module.exit_json
    module.exit_json = lambda **result: end(
        **{key: escape_diff(value) if key == "diff" else value for key, value in result.items()}
    )


def _escaping(method: Callable[..., Any]) -> Callable[..., Any]:
    def escaping(msg: Any, **more: Any) -> Any:
        return method(escape_lines(str(msg)), **more)

    return escaping
