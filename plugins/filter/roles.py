# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Callable, Iterable, Mapping

from ansible.errors import AnsibleFilterError

from ..module_utils.common.kinds import name_kind
from ..plugin_utils.common.booleans import strict_bool
from ..plugin_utils.common.host_library import program_files
from ..plugin_utils.container_runtime.messages import describe_packages
from ..plugin_utils.fleet import explain as _explain
from ..plugin_utils.options.arguments import env_line
from ..plugin_utils.planning.instances import secret_problem
from ..plugin_utils.provisioning import images
from ..plugin_utils.provisioning.entry import ProvisionError
from ..plugin_utils.vendor_stack.messages import describe_commands, describe_failures


def env_lines(variables: Mapping[str, Any], literal: bool = False) -> list[str]:
    """Return the lines of a file of variables, sorted by name: for systemd and shells, or literal for engines."""
    try:
        return [env_line(name, str(variables[name]), literal) for name in sorted(variables)]
    except ValueError as exc:
        raise AnsibleFilterError(str(exc)) from exc


def plan_table(plans: Iterable[Mapping[str, Any]], width: int = _explain.WIDTH) -> str:
    """Return what each distinct plan sets, from which layer and why, as a table of text."""
    try:
        return _explain.plan_table(list(plans), width)
    except (KeyError, TypeError, AttributeError) as exc:
        raise AnsibleFilterError(f"plan_table: expected a list of plans as render.yml writes them: {exc!r}") from exc


def made_images(text: str) -> Mapping[str, Any]:
    """Return the images that the programs of the role provisioner have made, by name."""
    try:
        return images.made_images(text)
    except ProvisionError as exc:
        raise AnsibleFilterError(str(exc)) from exc


def secret_names(secrets: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the names of each instance's secrets with what is wrong with their values."""
    for instance, entries in secrets.items():
        if not isinstance(entries, Mapping):
            raise AnsibleFilterError(
                f"vllm_secrets.{instance}: found {name_kind(entries)}, expected a mapping of environment variables"
            )
    return {
        instance: {name: secret_problem(value) for name, value in entries.items()}
        for instance, entries in secrets.items()
    }


class FilterModule:
    """Filters of all roles and playbooks: booleans, variables, programs of hosts, plans, messages about failures."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "command_errors": describe_commands,
            "env_lines": env_lines,
            "failure_text": describe_failures,
            "host_program": program_files,
            "made_images": made_images,
            "package_errors": describe_packages,
            "plan_table": plan_table,
            "secret_names": secret_names,
            "strict_bool": strict_bool,
        }
