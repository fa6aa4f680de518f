# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the files of an instance on this host: its address, its models, its secrets."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any, Callable, TypeVar

from ..common.files_host import listed
from ..common.kinds import name_kind
from .config_file import (
    API_KEY,
    READY_VARIABLE,
    InstanceError,
    Listening,
    Value,
    endpoint_of,
    is_worker,
    listening_of,
    read_flat_yaml,
    read_secrets,
    start_seconds,
    url_of,
)
from .listener_host import processes_of

Read = TypeVar("Read")


class NotInstalledError(InstanceError):
    """The host has no such instance yet; the message is the whole sentence."""


def names_in(config_dir: str) -> list[str]:
    """Return the names of the instances that have a configuration, sorted."""
    return [name[: -len(".yaml")] for name in listed(config_dir) if name.endswith(".yaml")]


def listening_in(config_dir: str, instance: str) -> Listening | None:
    """Return where an instance answers, None for a worker. Raises InstanceError."""
    found = _parsed(config_dir, instance, listening_of)
    return replace(found, expected=processes_of(instance)) if found else None


def answering_in(config_dir: str, instance: str) -> Listening | None:
    """Return where an instance answers, None for a worker and where its configuration cannot be read."""
    try:
        return listening_in(config_dir, instance)
    except InstanceError:
        return None


def endpoint_in(config_dir: str, instance: str) -> tuple[str, tuple[str, ...]]:
    """Return the URL of an instance and the names of its models. Raises InstanceError."""
    return _parsed(config_dir, instance, endpoint_of)


def config_in(config_dir: str, instance: str) -> dict[str, Value]:
    """Return the arguments of an instance as texts. Raises InstanceError."""
    return _parsed(config_dir, instance, read_flat_yaml)


def is_worker_in(config_dir: str, instance: str) -> bool:
    """Return whether this host is a worker of an instance that spans several. Raises InstanceError."""
    try:
        return _parsed(config_dir, instance, is_worker)
    except NotInstalledError:
        return False


def _parsed(config_dir: str, instance: str, parse: Callable[[str], Read]) -> Read:
    """Return what a file of ``--config`` says. Raises InstanceError that names the file, NotInstalledError for none."""
    path = os.path.join(config_dir, f"{instance}.yaml")
    text = read_text(path)
    if text is None:
        raise NotInstalledError(f"instance {instance} is not installed on this host: {path} is not there")
    try:
        return parse(text)
    except InstanceError as exc:
        raise InstanceError(f"{path}: {exc}") from exc


def router_in(config_dir: str, instance: str) -> str:
    """Return the URL of the router of an instance whose prompts other hosts compute, empty without one.

    Raises InstanceError.
    """
    router = group_in(config_dir, instance).get("router")
    return url_of(str(router["host"]), str(router["port"])) if router else ""


def group_in(config_dir: str, instance: str) -> dict[str, Any]:
    """Return the group of an instance that spans hosts, empty for one on this host alone. Raises InstanceError."""
    path = os.path.join(config_dir, f"{instance}.group.json")
    try:
        found: Any = json.loads(read_text(path) or "{}")
    except ValueError as exc:
        raise InstanceError(f"{path}: is not what the role vllm writes ({exc!r})") from exc
    if not isinstance(found, dict):
        raise InstanceError(f"{path}: found {name_kind(found)}, expected the hosts of an instance")
    return found


def secrets_in(config_dir: str, instance: str) -> dict[str, str]:
    """Return names and values of an instance's secrets, none where it has none. Raises InstanceError."""
    return read_secrets(read_text(os.path.join(config_dir, f"{instance}.secrets")) or "")


def start_seconds_in(config_dir: str, instance: str) -> int:
    """Return how long a start of an instance may take at least, by its variables. Raises InstanceError."""
    lines = (read_text(os.path.join(config_dir, f"{instance}.env")) or "").splitlines()
    return start_seconds(dict(line.split("=", 1) for line in lines if line.startswith(f"{READY_VARIABLE}=")))


def worth_masking(secrets: dict[str, str]) -> list[str]:
    """Return the values that are masked in all output.

    Shorter values, such as 1 or true, are not masked: that would spoil the messages and hide nothing.
    """
    return [value for name, value in secrets.items() if name == API_KEY or len(value) > 5]


def read_text(path: str) -> str | None:
    """Return the text of a file, None where there is none. Raises InstanceError."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except PermissionError as exc:
        raise InstanceError(f"{path} is for root only; run the task with become: true") from exc
    except (OSError, ValueError) as exc:
        raise InstanceError(f"{path} cannot be read: {exc}") from exc
