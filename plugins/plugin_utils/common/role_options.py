# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a host's variables with the argument specs of roles.

A misspelt option would silently have no effect, and the text "false" would count as true. Python would refuse a number
or a text of the wrong kind later, in its own words.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
from typing import Any, Callable, Iterable, Mapping

from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

from ...module_utils.common.foreign_numbers import read_finite
from ...module_utils.common.kinds import name_kind, show_value
from ...module_utils.common.spelling import misspelt, nearest
from .booleans import BooleanError, read_boolean
from .group_names import PURPOSES
from .option_contents import CHECKS, ContentError, check_contents
from .option_ranges import RANGES, Range
from .origins import with_origin
from .places import ROLES
from .yaml import read_yaml

# Other variables with a role's prefix: facts, declarations about a host, variables of the inventory plugin, options of
# playbooks, and those for other roles (their READMEs: "What other roles may read and set").
FACTS = (
    "accelerator_bmc", "accelerator_bmc_password", "accelerator_bmc_username", "accelerator_cann_version",
    "accelerator_conflict", "accelerator_container_runtime", "accelerator_detected", "accelerator_discovered_at",
    "accelerator_discovery_cache", "accelerator_firmware_version", "accelerator_mixed", "accelerator_rocm_version",
    "accelerator_stale",
    "gateway_keys_concurrent", "gateway_keys_end", "gateway_keys_expires", "gateway_keys_make",
    "gateway_keys_models", "gateway_keys_rate", "gateway_keys_sha256", "gateway_keys_team",
    "gateway_keys_tokens_per_day", "gateway_keys_tokens_per_minute", "gateway_keys_tokens_per_month", "gateway_served",
    "cann_host", "container_runtime_host", "cuda_host", "rocm_host", "mirror_site", "mirror_to_install",
    "monitoring_dir",
    "rollout_kind", "rollout_plan", "rollout_refused", "rollout_wave_number", "rollout_wave_result",
    "vllm_all_reduce_groups", "vllm_driver_changes", "vllm_files", "vllm_group_changed", "vllm_group_network",
    "vllm_group_throughput", "vllm_host_state", "vllm_kept_slots", "vllm_plan", "vllm_restore_slots",
)  # fmt: skip
# The roles that site.yml runs on a host that serves.
SERVING = (
    "accelerator",
    "cuda",
    "rocm",
    "cann",
    "container_runtime",
    "host_tuning",
    "monitoring",
    "encodings",
    "weights",
    "vllm",
    "health",
)
# Options of the role gateway that are set for a server, where gateways or the role vllm read them.
OF_SERVERS = ("gateway_host_address", "gateway_secret")
# Switches of site.yml, set in an inventory; a site may have other variables that begin so.
SWITCHES = ("site_container_runtime", "site_drivers", "site_health", "site_host_tuning", "site_monitoring")

# Large variables of Ansible's own.
_OF_ANSIBLE = ("ansible_facts", "groups", "hostvars", "vars")

# Of a message about a template, which may quote a file.
_LONGEST = 400

# Other variables, or what they begin with, that resemble a role.
OTHERS = ("accelerators", "provision")
# Directories of the system, whose owner and mode no role may change.
_SYSTEM = re.compile(
    r"/|/(bin|boot|dev|etc|lib\w*|proc|sbin|sys)(/.*)?|/(home|root|run|tmp)"
    r"|/(usr|var)(/(bin|cache|games|include|lib\w*|local|log|mail|opt|run|sbin|share|spool|src|tmp))?"
)
# Places of the kernel's, in which roles only read.
_ONLY_READ = ("_proc_root", "_sysfs_root")
# Paths on the controller, where ~ is the home of the person who runs Ansible.
ON_CONTROLLER = (
    "gateway_ca_dir", "gateway_certificate", "gateway_certificate_key", "mirror_keyring", "rollout_state_dir",
    "vllm_caches_dir",
)  # fmt: skip


# Files and directories on the controller, and what is wrong where they are missing.
FILES: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "gateway_certificate": (os.path.isfile, "file on this controller, so the gateway would get no certificate"),
    "gateway_certificate_key": (os.path.isfile, "file on this controller, so the gateway would get no certificate"),
    "health_fault_path": (os.path.isdir, "directory on this controller, so no fault of it counts"),
    "rollout_check_tasks": (os.path.isfile, "file on this controller, so the rollout would fail"),
    "rollout_gate_tasks": (os.path.isfile, "file on this controller, so the rollout would fail"),
    "vllm_caches_dir": (os.path.isdir, "directory on this controller, so no instance gets caches"),
}


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
        raise RoleOptionError(f"{host}: {with_origin(str(exc), variables)}") from exc


def check_names_and_values(
    variables: Mapping[str, Any], roles: tuple[str, ...], template: Callable[[Any], Any] | None = None
) -> list[str]:
    """Return warnings of variables with a role's prefix that no role reads.

    Raises RoleOptionError for a name that is close to an option's, and for a value of another type than the option's.
    ``template`` renders a value; without it a template is not judged.
    """
    warnings = [*misspelt_options(frozenset(variables), roles), *_check_spelling(variables, roles)]
    specs: dict[str, Spec] = {name: {"type": "bool"} for name in SWITCHES if name in variables}
    if "vllm" in roles:
        specs |= {name: specs_of("gateway")[name] for name in OF_SERVERS if name in variables}
    specs |= {name: specs_of(role)[name] for role, name in _set_options(frozenset(variables), roles)}
    for name, spec in specs.items():
        value = _rendered(name, variables[name], template)
        _check_nothing(name, spec, value)
        _check_value(name, spec, value)
        _check_contents(name, value)
        warnings += _missing_here(name, value)
    return warnings


def _missing_here(name: str, value: Any) -> list[str]:
    """Return a warning for each file of the controller that is not there; a plan may be made on another controller."""
    is_there, what = FILES.get(name, (None, ""))
    given = (value if isinstance(value, (list, tuple)) else [value]) if is_there and value else ()
    lost = [each for each in given if each and not is_template(each)]
    return [
        f"{name}: {_show(each)} is not a {what}"
        for each in lost
        if is_there and not is_there(os.path.expanduser(str(each)))
    ]


def is_used(name: str, variables: Mapping[str, Any]) -> bool:
    """Return whether a template of another variable has the name."""
    values = [value for key, value in variables.items() if key not in _OF_ANSIBLE]
    return any(name in str(value) for value in values if isinstance(value, (str, list, dict)) and has_template(value))


# Hosts of a fleet have few different sets of variables.
@functools.lru_cache(maxsize=256)
def _set_options(names: frozenset[str], roles: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the roles' options that are among ``names``, each with its role."""
    return [(role, name) for role in roles for name in specs_of(role) if name in names]


@functools.lru_cache(maxsize=256)
def misspelt_options(names: frozenset[str], roles: tuple[str, ...]) -> list[str]:
    """Return warnings about the names of a host's variables. Raises RoleOptionError for a misspelt option."""
    warnings: list[str] = []
    for name in sorted(names - {*SWITCHES}):
        near = misspelt(name, SWITCHES) if name.startswith("site_") else _meant(name, "site", SWITCHES)
        if near:
            raise RoleOptionError(f"{name} is not a switch of site.yml; nearest: {near!r}")
        # A separate variable that no role has.
        if misspelt(name, ("provision",)) and not name.startswith("provision"):
            raise RoleOptionError(f"no playbook reads {name}; nearest: 'provision'")
    for role in roles:
        options = options_of(role) | {name for name in FACTS if name.startswith(f"{role}_")}
        unknown = []
        for name in sorted(names):
            if not name.startswith(f"{role}_") or name in options:
                continue
            near = misspelt(name, options)
            if near:
                raise RoleOptionError(f"{name} is not an option of the role {role}; nearest: {near!r}")
            unknown.append(name)
        if unknown:
            warnings.append(f"the role {role} has no option called {', '.join(unknown)}; nothing reads it")
        for name in sorted(name for name in names if name[0] != "_"):
            if near := _meant(name, role, options):
                raise RoleOptionError(f"no role has an option {name}; nearest: {near!r}")
    return warnings


def _check_spelling(variables: Mapping[str, Any], roles: tuple[str, ...]) -> list[str]:
    """Return warnings of names that differ from an option's in capitals, - and _ only.

    Raises RoleOptionError where the option is meant. Names such as GATEWAY_PORT and cudaVersion may be the site's own,
    and so is any name that another variable uses.
    """
    groups = variables.get("group_names") or PURPOSES
    # A gateway may have a variable for the options of the hosts that serve.
    roles = tuple(role for role in roles if role not in SERVING or PURPOSES[0] in groups)
    warnings = []
    for name, option in _spelt_otherwise(frozenset(variables), roles):
        if is_used(name, variables):
            continue
        text = f"no role has an option {name}; nearest: {option!r}"
        is_meant = option.startswith("vllm_") or is_slip(name, option)
        if is_meant and (option not in variables or name in load_extra_vars(DataLoader())):
            raise RoleOptionError(text)
        warnings.append(text)
    return warnings


@functools.lru_cache(maxsize=256)
def _spelt_otherwise(names: frozenset[str], roles: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the names that are an option's but for capitals, - and _, each with the option."""
    options = {option for role in roles for option in (*options_of(role), *FACTS) if option.startswith(role)}
    options |= {*SWITCHES}
    known = {_plain(option): option for option in options}
    return [
        (name, known[_plain(name)])
        for name in sorted(names - options)
        if not name.startswith("_") and _plain(name) in known
    ]


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def is_slip(name: str, option: str) -> bool:
    """Return whether a name is an option's with some capitals, or with - for _. A name in capitals may be another."""
    return name != option and name.replace("-", "_").lower() == option and (not name.isupper() or "-" in name)


def _meant(name: str, role: str, options: Iterable[str]) -> str | None:
    """Return the option that a name is but for its beginning, the misspelt name of the role: vlm_runtime; else None."""
    for option in options:
        rest = option.removeprefix(role)
        begin = name.removesuffix(rest)
        # Such as gateway1_address, gateways_port and weight_root: a site's own names for several, or for one.
        own = re.sub(r"\d", "", begin).rstrip("s") == role.rstrip("s")
        if (begin != name or not rest) and begin not in OTHERS and not own and misspelt(begin, [role]):
            return option
    return None


def _check_nothing(name: str, spec: Spec, value: Any) -> None:
    """Raise RoleOptionError for a key without a value, as ``vllm_user:``, which would replace the role's default."""
    kind = spec.get("type", "str")
    if value is None and kind in _EXPECTED and spec.get("default") not in (None, ""):
        raise RoleOptionError(f"{name}: found nothing, expected {_EXPECTED[kind]}; remove the key to use the default")


def _check_value(name: str, spec: Spec, value: Any) -> None:
    kind = spec.get("type", "str")
    if value is None or kind in ("raw", "json", "jsonarg"):
        return
    if kind in _TEXTS:
        listed = [str(choice) for choice in spec.get("choices") or ()]
        choices = [choice for choice in listed if choice]
        is_switch = isinstance(value, bool) and not choices and name not in CHECKS
        if isinstance(value, (Mapping, list, tuple)) or is_switch:
            raise RoleOptionError(f"{name}: found {_show(value)}, expected a text")
        if choices and str(value) not in listed and not is_template(value):
            # YAML reads off, no, on and yes without quotes as false and true.
            quotes = ", in quotes" if isinstance(value, bool) else ""
            raise RoleOptionError(f"{name}: found {_show(value)}, expected {' or '.join(choices)}{quotes}")
        if kind == "path":
            _check_path(name, spec, value)
        return
    if is_template(value):
        return  # the task that reads the option reports it
    if kind == "bool":
        try:
            read_boolean(name, value)
        except BooleanError as exc:
            raise RoleOptionError(str(exc)) from exc
    elif kind in ("int", "float"):
        check_number(name, value, RANGES.get(name), whole=kind == "int")
    elif kind == "list":
        _check_list(name, spec, value)
    else:
        _check_mapping(name, spec, value)


def _check_path(name: str, spec: Spec, value: Any) -> None:
    """Raise RoleOptionError for a relative path, and for no directory where the role needs one.

    Each program on the host would take another directory for a relative one.
    """
    text = str(value)
    # Directories in which the controller searches may be relative to where Ansible runs.
    option = name.partition("[")[0]
    needed = option.endswith(("_root", "_dir")) and str(spec.get("default")).startswith("/")
    if needed and not option.endswith(_ONLY_READ) and _is_of_system(text, spec["default"]):
        raise RoleOptionError(f"{name}: found {_show(value)}, expected a separate directory, such as {spec['default']}")
    if (not text and not needed) or text.startswith("/") or is_template(text) or option.endswith("_path"):
        return
    if option in ON_CONTROLLER and text.startswith("~"):
        return
    home = ", or one from ~" if option in ON_CONTROLLER else ""
    raise RoleOptionError(f"{name}: found {_show(value)}, expected an absolute path{home}")


def _is_of_system(text: str, default: str) -> bool:
    path = "/" + posixpath.normpath(text).lstrip("/")
    # A role's own configuration lies in /etc.
    beside = path.startswith("/etc/") and default.startswith("/etc/")
    return path != default and text.startswith("/") and not beside and bool(_SYSTEM.fullmatch(path))


def _check_contents(name: str, value: Any) -> None:
    """Raise RoleOptionError for contents that no host could use."""
    # A plan is made without the password of ansible-vault: what is encrypted is no text there.
    if name not in CHECKS or not isinstance(value, _READABLE) or has_template(value):
        return
    try:
        check_contents(name, value)
    except ContentError as exc:
        raise RoleOptionError(str(exc)) from exc


def _rendered(name: str, value: Any, template: Callable[[Any], Any] | None) -> Any:
    """Return a value as the role gets it, its template where that needs what is not there yet.

    Raises RoleOptionError for any other fault, such as a lookup's: Ansible's own check would print the whole spec.
    """
    if template is None or not has_template(value):
        return value
    try:
        return template(value)
    except AnsibleUndefinedVariable:
        return value
    except AnsibleError as exc:
        raise RoleOptionError(f"{name}: {' '.join(str(exc).split())[:_LONGEST]}") from exc


def has_template(value: Any) -> bool:
    """Return whether a value holds a text that Ansible renders first."""
    if isinstance(value, Mapping):
        return any(has_template(entry) for entry in value.values())
    return any(map(has_template, value)) if isinstance(value, (list, tuple)) else is_template(value)


def is_template(value: Any) -> bool:
    """Return whether a value is a text that Ansible renders first."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def check_number(name: str, value: Any, limits: Range | None, whole: bool) -> None:
    """Raise RoleOptionError for anything but a number within its range, or the text of one, which -e makes of it."""
    number = None
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        number = read_finite(str(value))
    if number is None or (whole and not number.is_integer()):
        expected = "a whole number" if whole else "a number"
        raise RoleOptionError(f"{name}: found {_show(value)}, expected {expected}")
    # systemd ignores a time that has more microseconds than 64 bits can hold.
    if abs(number) > LARGEST:
        raise RoleOptionError(f"{name}: found {_show(value)}, expected a number up to {LARGEST}")
    if limits and not limits.least <= number <= limits.most:
        raise RoleOptionError(
            f"{name}: found {_show(value)}, expected {'a whole number' if whole else 'a number'} {limits.describe()}"
        )


def _check_list(name: str, spec: Spec, value: Any) -> None:
    """Raise RoleOptionError for anything but a list, or a text, which counts as a list of one."""
    element = spec.get("elements", "raw")
    texts = element in (*_TEXTS, "raw")
    expected = "a list of texts" if element in _TEXTS else "a list of mappings" if element == "dict" else "a list"
    if not isinstance(value, (list, tuple)) and not (texts and isinstance(value, str)):
        raise RoleOptionError(f"{name}: found {name_kind(value)}, expected {expected}")
    for number, entry in enumerate(value if isinstance(value, (list, tuple)) else ()):
        _check_value(f"{name}[{number}]", {**spec, "type": element}, entry)


def _check_mapping(name: str, spec: Spec, value: Any) -> None:
    """Raise RoleOptionError for anything but a mapping, for a key that it does not have, and for a value of a key."""
    if not isinstance(value, Mapping):
        raise RoleOptionError(f"{name}: found {name_kind(value)}, expected a mapping")
    keys = spec.get("options") or {}
    for key, entry in value.items() if keys else ():
        if key not in keys:
            raise RoleOptionError(f"{name}: unknown key {show_value(key)[:80]}; {nearest(str(key), keys)}")
        _check_value(f"{name}.{key}", keys[key], entry)


def _show(value: Any) -> str:
    return name_kind(value) if isinstance(value, (Mapping, list, tuple)) else show_value(value)[:80]


LARGEST = 10**12
Spec = Mapping[str, Any]
_TEXTS = ("str", "path")
_READABLE = (str, int, float, Mapping, list, tuple)
_EXPECTED = {
    "bool": "true or false", "float": "a number", "int": "a whole number", "path": "a path", "str": "a text",
}  # fmt: skip


@functools.lru_cache(maxsize=None)
def options_of(role: str) -> frozenset[str]:
    """Return the names of the options of all entry points of a role."""
    return frozenset(specs_of(role))


@functools.lru_cache(maxsize=None)
def specs_of(role: str) -> Mapping[str, Spec]:
    """Return the specs of the options of all entry points of a role, sorted by name."""
    specs = read_yaml(ROLES / role / "meta" / "argument_specs.yml")["argument_specs"]
    options = {name: option for entry in specs.values() for name, option in (entry.get("options") or {}).items()}
    return {name: options[name] for name in sorted(options)}
