# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of playbooks that a user sets with -e: Ansible ignores a misspelt one, and the default takes effect.

A value of another kind is refused here under the option's own name; later a module would name its own option.

Only extra variables are judged: in an inventory a site may have variables of its own with the same beginning.
"""

import functools
import os
import re
from pathlib import Path
from typing import Any, Iterable, Mapping

from ansible import constants, context
from ansible.inventory.manager import split_host_pattern
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

from ...module_utils.common.foreign_numbers import read_count, read_finite
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import misspelt, slip
from .booleans import BooleanError, read_boolean
from .places import COLLECTION, ROLES, collection_of
from .role_options import is_slip, is_used, options_of

PLAYBOOKS = COLLECTION / "playbooks"
# What the names of their options begin with.
PREFIXES = (
    "accept", "adopt", "bench", "bundle", "caches", "check", "deprovision", "discover", "drain", "drift", "evaluate",
    "explain", "fetch", "fit", "fleet", "gateway_keys", "gateway_status", "gateway_usage", "import", "lock",
    "monitoring", "pin", "power_cycle", "provision", "remove", "render", "site", "status", "target", "tune", "undrain",
    "verify",
)  # fmt: skip
# The smallest values of whole numbers.
WHOLE_NUMBERS = {
    "accept_port": 1024,
    "accept_storage_bytes": 1,
    "bench_repeats": 1,
    "bench_requests_min": 1,
    "bench_requests_per_stream": 1,
    "bench_seed": 0,
    "bundle_bandwidth": 0,
    "bundle_connections": 1,
    "discover_timeout": 0,
    "drain_min_available": 0,
    "evaluate_concurrency": 1,
    "evaluate_request_timeout": 1,
    "evaluate_samples": 0,
    "evaluate_timeout": 1,
    "gateway_keys_concurrent": 1,
    "gateway_keys_rate": 1,
    "gateway_keys_tokens_per_day": 1,
    "gateway_keys_tokens_per_minute": 1,
    "gateway_keys_tokens_per_month": 1,
    "tune_requests_min": 1,
    "tune_requests_per_stream": 1,
    "tune_rounds": 1,
}
# Seconds and figures from 0 on, which may have fractions.
NUMBERS = (
    "accept_bench_tokens_per_s", "accept_minutes", "accept_network_gbit_per_s", "accept_storage_gb_per_s",
    "bench_timeout", "drain_timeout", "tune_drop_percent", "tune_timeout", "undrain_timeout", "verify_ready_timeout",
    "verify_request_timeout",
)  # fmt: skip
CHOICES = {
    "drift_format": ("table", "json"),
    "explain_format": ("table", "short", "json"),
    "bundle_check": ("stamp", "full"),
    "evaluate_tool": ("lm-eval", "gpt-oss", "aisbench"),
}
# What they write on the controller.
WRITTEN = (
    "accept_dir", "bench_dir", "bundle_dir", "caches_dir", "evaluate_dir", "fleet_page", "gateway_usage_file",
    "monitoring_dir", "render_dir", "status_page", "tune_dir",
)  # fmt: skip
_BOOLEAN = re.compile(r"strict_bool\('(\w+)'\)")
# Neither a module (baremetal.inference.provision_hosts) nor a file (provision_next.yml).
_NAME = re.compile(rf"(?<!\binference\.)\b(?:{'|'.join(PREFIXES)})_[a-z0-9_]+\b(?!\.yml\b)")
_WORD = re.compile(r"\w+")
# Until 0.10 each playbook had its own name for target_hosts. Unread, it would leave a run without its limit.
HOSTS = "target_hosts"
_LIMITS = ("limit", "hosts")
_FORMER = re.compile(rf"(?!{HOSTS})(?:{'|'.join(PREFIXES)}|rollout)_hosts?")


class PlaybookOptionError(ValueError):
    """An extra variable is a misspelt option of a playbook, or its value is of another kind; the message names it."""


def check_playbook_options(task_path: str | None) -> list[str]:
    """Return warnings of extra variables that look like options of a playbook and are none.

    ``task_path`` is Ansible's ``FILE:LINE`` of the task; nothing is checked in playbooks of others. Raises
    PlaybookOptionError for a misspelt option and for a value of another kind.
    """
    path = Path((task_path or "/").rpartition(":")[0]).resolve()
    if collection_of(path) / "playbooks" not in path.parents:
        return []
    extra = load_extra_vars(DataLoader())
    check_values(extra)
    check_places(extra, context.CLIARGS.get("inventory") or ())
    names = frozenset(str(name) for name in extra)
    return [*unknown_options(names), *unread_options(names, path)]


def check_values(extra: Mapping[str, Any]) -> None:
    """Raise PlaybookOptionError for a value that is not of the option's kind; templates are not judged."""
    for name, value in extra.items():
        if isinstance(value, str) and ("{{" in value or "{%" in value):
            continue
        if name in CHOICES and value not in CHOICES[name]:
            raise PlaybookOptionError(f"{name}: found {show_value(value)}, expected {' or '.join(CHOICES[name])}")
        if name in WHOLE_NUMBERS:
            count = read_count(value)
            if count is None or count < WHOLE_NUMBERS[name]:
                expected = f"a whole number from {WHOLE_NUMBERS[name]} on"
                raise PlaybookOptionError(f"{name}: found {show_value(value)[:80]}, expected {expected}")
        number = read_finite(str(value)) if name in NUMBERS else 0
        if number is None or number < 0:
            raise PlaybookOptionError(f"{name}: found {show_value(value)[:80]}, expected a number from 0 on")
        if _NAME.fullmatch(str(name)) and name in _booleans():
            try:
                read_boolean(name, value)
            except BooleanError as exc:
                raise PlaybookOptionError(str(exc)) from exc


def check_places(extra: Mapping[str, Any], inventories: Iterable[str]) -> None:
    """Raise PlaybookOptionError for what is written into an inventory directory, where Ansible reads nearly any file.

    It passes over hidden files and those with endings such as .txt.
    """
    for site in (Path(each).resolve() for each in inventories if Path(each).is_dir()):
        for name in WRITTEN:
            given = str(extra.get(name) or site)
            path = site if "{{" in given else Path(os.path.expanduser(given)).resolve()
            inside = path.relative_to(site).parts if site in path.parents else ()
            if inside and inside[0][0] != "." and not inside[0].endswith(tuple(constants.INVENTORY_IGNORE_EXTS)):
                why = "Ansible would read what is written there as hosts"
                raise PlaybookOptionError(
                    f"{name}: {path} is in the inventory directory {site}, and {why}; name another"
                )


def refuse_other_names(names: Iterable[str]) -> None:
    """Raise PlaybookOptionError for a misspelt target_hosts, and for what once named the hosts of one playbook."""
    for name in sorted({*names} - {HOSTS}):
        if _FORMER.fullmatch(name) or slip(name.lower(), [HOSTS]):
            raise PlaybookOptionError(f"-e {name}: no playbook has this option; nearest: {HOSTS!r}")


def refuse_misspelt(variables: Mapping[str, Any], prefix: str) -> None:
    """Raise PlaybookOptionError for a variable of the inventory that misspells an option with the same beginning.

    A name that differs by more than two letters may be the site's own, and so is one that another variable uses.
    """
    options = {option for option in known_options() if option.startswith(prefix)}
    for name in sorted(name for name in variables.keys() - options if name.startswith(prefix)):
        near = slip(name, options)
        if near and not is_used(name, variables):
            raise PlaybookOptionError(f"{name}: no playbook reads it; nearest: {near!r}")


def refuse_a_limit(variables: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise PlaybookOptionError for a variable ``limit`` or ``hosts`` whose value is one of the inventory's ``names``.

    A site may have variables of its own that are called so: another value passes, and any value beside target_hosts.
    """
    known = {*names}
    for name, value in variables.items() if HOSTS not in variables else ():
        is_limit = name.lower() in _LIMITS and isinstance(value, str)
        if is_limit and known.issuperset(split_host_pattern(value)):
            raise PlaybookOptionError(f"-e {name}: no playbook has this option; use -l {value}, or -e {HOSTS}={value}")


@functools.lru_cache(maxsize=16)
def unknown_options(names: Iterable[str]) -> list[str]:
    """Return a warning for each name that begins as options do and is none. Raises PlaybookOptionError."""
    refuse_other_names(names)
    for name in sorted(names):
        option = name.replace("-", "_").lower()
        if option != name and option not in names and option in known_options() and is_slip(name, option):
            raise PlaybookOptionError(f"-e {name}: no playbook has this option; nearest: {option!r}")
    unknown = [name for name in sorted(names) if _NAME.fullmatch(name)]
    unknown = [name for name in unknown if name not in known_options()] if unknown else []
    for name in unknown:
        nearest = misspelt(name, known_options())
        if nearest:
            raise PlaybookOptionError(f"-e {name}: no playbook has this option; nearest: {nearest!r}")
    return [f"-e {name}: no playbook has this option; nothing reads it" for name in unknown]


@functools.lru_cache(maxsize=16)
def unread_options(names: Iterable[str], playbook: Path) -> list[str]:
    """Return a warning for each option of other playbooks, or of roles, that a playbook does not read.

    Raises PlaybookOptionError for hosts that it does not select.
    """
    text = playbook.read_text(encoding="utf-8")
    if (
        playbook.parent != collection_of(playbook) / "playbooks"
        or "import_playbook" in text
        or "selected_hosts" not in text
    ):
        return []
    if HOSTS in names and HOSTS not in text:
        raise PlaybookOptionError(f"-e {HOSTS}: {playbook.name} reads no hosts; run it without this option")
    # A task file may be of several playbooks, and the targets of monitoring follow from the plans of hosts.
    read = {*_WORD.findall(text), *_WORD.findall(_text("tasks/*.yml")), *_WORD.findall(_text("vars/*.yml"))}
    others = known_options() | (_role_options() if HOSTS not in text and playbook.stem != "monitoring" else frozenset())
    return [f"-e {name}: {playbook.name} does not read this option" for name in sorted({*names} & others - read)]


@functools.lru_cache(maxsize=1)
def _role_options() -> frozenset[str]:
    return frozenset().union(*(options_of(path.name) for path in ROLES.iterdir()))


@functools.lru_cache(maxsize=1)
def known_options() -> frozenset[str]:
    """Return the names with these beginnings in the playbooks, their task files and variables; one role shares one."""
    return frozenset(_NAME.findall(_text())) | options_of("monitoring")


@functools.lru_cache(maxsize=1)
def _booleans() -> frozenset[str]:
    return frozenset(_BOOLEAN.findall(_text()))


@functools.lru_cache(maxsize=3)
def _text(files: str = "**/*.yml") -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(PLAYBOOKS.glob(files)))
