# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a host's variables with the argument specs of roles.

A misspelt option would silently have no effect, and the text "false" would count as true. Python would refuse a number
or a text of the wrong kind later, in its own words.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Mapping

from ansible.errors import AnsibleError
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_numbers import read_finite
from ansible_collections.baremetal.inference.plugins.module_utils.common.kinds import name_kind
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import misspelt
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.booleans import BooleanError, read_boolean
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import ROLES
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import read_yaml

# Other variables with a role's prefix: facts, declarations about a host, variables of the inventory plugin, and those
# for other roles (their READMEs: "What other roles may read and set").
FACTS = (
    "accelerator_bmc", "accelerator_bmc_password", "accelerator_bmc_username", "accelerator_cann_version",
    "accelerator_conflict", "accelerator_container_runtime", "accelerator_cuda_version", "accelerator_detected",
    "accelerator_discovered_at", "accelerator_discovery_cache", "accelerator_driver_version",
    "accelerator_firmware_version", "accelerator_mec_firmware", "accelerator_memory_gib", "accelerator_mixed",
    "accelerator_rocm_version", "accelerator_stale",
    "cann_host", "container_runtime_host", "cuda_host", "rocm_host",
    "rollout_kind", "rollout_plan", "rollout_refused", "rollout_wave_number", "rollout_wave_result",
    "vllm_all_reduce_groups", "vllm_driver_changes", "vllm_files", "vllm_group_changed", "vllm_group_network",
    "vllm_group_throughput", "vllm_host_state", "vllm_kept_slots", "vllm_plan", "vllm_restore_slots",
)  # fmt: skip
# Old names of options, which the defaults still read, and their present names.
RENAMED = {
    "gateway_backends_min": "gateway_min_available",
    "rollout_least": "rollout_min_available",
}
REMOVED_IN = "0.9.0"
# The roles that site.yml runs on a host that serves.
SERVING = ("accelerator", "cuda", "rocm", "cann", "container_runtime", "encodings", "weights", "vllm")


class RoleOptionError(ValueError):
    """A variable is a misspelt option or of the wrong kind; the message names the variable and what is expected."""


def check_role_options(
    variables: Mapping[str, Any], roles: Iterable[str], template: Callable[[Any], Any] | None = None
) -> list[str]:
    """Return the warnings of check_names_and_values with the name of the host. Raises RoleOptionError, too."""
    host = variables.get("inventory_hostname", "")
    try:
        return [f"{host}: {text}" for text in check_names_and_values(variables, tuple(roles), template)]
    except RoleOptionError as exc:
        raise RoleOptionError(f"{host}: {exc}") from exc


def check_names_and_values(
    variables: Mapping[str, Any], roles: tuple[str, ...], template: Callable[[Any], Any] | None = None
) -> list[str]:
    """Return warnings of variables with a role's prefix that no role reads, and of old names.

    Raises RoleOptionError for a name that is close to an option's, and for a value of another type than the option's.
    ``template`` renders a value; without it a template is not judged.
    """
    warnings = misspelt_options(frozenset(variables), roles)
    for role in roles:
        for name, kind in types_of(role).items():
            if name in variables:
                _check_value(name, kind, variables[name], template)
    return warnings


# Hosts of a fleet have few different sets of variables.
@functools.lru_cache(maxsize=256)
def misspelt_options(names: frozenset[str], roles: tuple[str, ...]) -> list[str]:
    """Return warnings about the names of a host's variables. Raises RoleOptionError for a misspelt option."""
    warnings: list[str] = []
    for role in roles:
        options = options_of(role)
        unknown = []
        for name in sorted(names):
            if not name.startswith(f"{role}_") or name in options or name in FACTS:
                continue
            if name in RENAMED:
                warnings.append(
                    f"{name} is now called {RENAMED[name]}; release {REMOVED_IN} no longer reads the old name"
                )
                continue
            nearest = misspelt(name, options)
            if nearest:
                raise RoleOptionError(f"{name} is not an option of the role {role}; nearest: {nearest!r}")
            unknown.append(name)
        if unknown:
            warnings.append(f"the role {role} has no option called {', '.join(unknown)}; nothing reads it")
    return warnings


def _check_value(name: str, kind: str, value: Any, template: Callable[[Any], Any] | None) -> None:
    if kind in _TEXTS:
        if isinstance(value, (Mapping, list, tuple)):
            raise RoleOptionError(f"{name}: found {name_kind(value)}, expected a text")
        return
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        if template is None:
            return
        try:
            value = template(value)
        except AnsibleError:
            return  # the task that reads the option reports it
    try:
        _READERS[kind](name, value)
    except BooleanError as exc:
        raise RoleOptionError(str(exc)) from exc


def _check_number(name: str, value: Any, expected: str, whole: bool) -> None:
    """Raise RoleOptionError for anything but a finite number or its text, which -e makes of every number."""
    number = None
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        number = read_finite(str(value)) if "_" not in str(value) else None
    if value is not None and (number is None or (whole and not number.is_integer())):
        found = name_kind(value) if isinstance(value, (Mapping, list, tuple)) else repr(value)[:80]
        raise RoleOptionError(f"{name}: found {found}, expected {expected}")


def _check_list(name: str, value: Any) -> None:
    """Raise RoleOptionError for a mapping or a number; a text is a list of one."""
    if value is not None and not isinstance(value, (list, tuple, str)):
        raise RoleOptionError(f"{name}: found {name_kind(value)}, expected a list of texts")


_TEXTS = ("str", "path")
# A list whose entries are texts.
_LIST = "list of texts"
_READERS: Mapping[str, Callable[[str, Any], object]] = {
    "bool": read_boolean,
    "int": functools.partial(_check_number, expected="a whole number", whole=True),
    "float": functools.partial(_check_number, expected="a number", whole=False),
    _LIST: _check_list,
}


@functools.lru_cache(maxsize=None)
def options_of(role: str) -> frozenset[str]:
    """Return the names of the options of all entry points of a role."""
    specs = read_yaml(ROLES / role / "meta" / "argument_specs.yml")["argument_specs"]
    return frozenset(name for entry in specs.values() for name in entry.get("options") or {})


@functools.lru_cache(maxsize=None)
def types_of(role: str) -> Mapping[str, str]:
    """Return the types of the options of a role that are checked here: booleans, numbers, texts and lists of texts."""
    specs = read_yaml(ROLES / role / "meta" / "argument_specs.yml")["argument_specs"]
    options = {name: option for entry in specs.values() for name, option in (entry.get("options") or {}).items()}
    kinds = {name: option.get("type", "str") for name, option in options.items()}
    kinds.update((name, _LIST) for name, option in options.items() if option.get("elements") in _TEXTS)
    return {name: kinds[name] for name in sorted(kinds) if kinds[name] in _READERS or kinds[name] in _TEXTS}


def booleans_of(role: str) -> tuple[str, ...]:
    """Return the names of the boolean options of a role, sorted."""
    return tuple(name for name, kind in types_of(role).items() if kind == "bool")
