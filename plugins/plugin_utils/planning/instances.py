# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of ``vllm_instances``, and the checks that need nothing else."""

import re
from typing import Any, Mapping, Sequence

from ...module_utils.common.ip_addresses import read_ip
from ...module_utils.common.kinds import name_kind, show_value
from ...module_utils.common.spelling import nearest, not_a_number
from ...module_utils.endpoint.questions import CHECKS
from ...module_utils.usage.record import PROOF_VARIABLE
from ..common.addresses import is_host
from ..options.arguments import line_problem, name_problem
from ..options.secret_names import is_secret
from .disaggregation import check_sides
from .inputs import PlanError
from .scale import check_scale

INSTANCE_KEYS = (
    "args", "checks", "chips", "decode", "env", "feature_modes", "features", "group_port", "host", "kv_cache",
    "node_address", "nodes", "port", "prefill", "preload", "preset", "recipe", "release", "replicas", "residents",
    "revision", "router_port", "runtime", "scale", "served_model_names", "strategy", "variant",
)  # fmt: skip
# What other tools call a key, where spelling would lead elsewhere: the nearest to model is nodes.
OTHER_NAMES = {
    "address": "host",
    "devices": "chips",
    "environment": "env",
    "extra_args": "args",
    "flags": "args",
    "gpus": "chips",
    "model": "recipe",
    "model_id": "recipe",
    "replica_count": "replicas",
    "served_model_name": "served_model_names",
    "version": "release",
    "vllm_release": "release",
}
# No host has as much memory.
MOST_GIB = 1 << 20
RUNTIMES = ("container", "venv")

# Arguments that follow from another key; setting both could contradict.
OWNED_ARGS = {
    "model": "recipe",
    "revision": "revision, which a manifest of the weights pins",
    "host": "host",
    "port": "port",
    "served-model-name": "served_model_names",
    "device-ids": "chips",
    "shutdown-timeout": "the role variable vllm_drain_timeout",
    "api-key": "the role variable vllm_secrets",
    "hf-token": "the role variable vllm_secrets, as HF_TOKEN",
    "config": "args",
}
API_KEY = "VLLM_API_KEY"
SECRET_ENV = (API_KEY, "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "EXA_API_KEY")

# The name of an instance becomes the name of a unit, a container and several directories.
# It is part of a unit's name and of file names, with a number and an ending.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,99}\Z")
_REVISION = re.compile(r"[0-9a-f]{40}\Z", re.ASCII)
_LINES = re.compile(r"[\n\r\0]")


def check_instances(instances: Any) -> None:
    """Raise PlanError for malformed instances, before any file of the catalogue is read."""
    if not isinstance(instances, Mapping):
        raise PlanError(
            f"vllm_instances: found {_kind(instances)}, expected a mapping of names to instances, as in "
            "{chat: {recipe: openai/gpt-oss-20b}}"
        )
    for name, requested in instances.items():
        check_instance(name, requested)


def check_instance(name: str, requested: Any) -> None:
    """Raise PlanError for a malformed instance."""
    where = f"vllm_instances.{name}"
    if not isinstance(name, str) or not _NAME.match(name):
        raise PlanError(f"{where}: found the name {name!r}, expected a text of letters, digits, '-', '_' and '.'")
    if not isinstance(requested, Mapping):
        raise PlanError(f"{where}: found {_kind(requested)}, expected a mapping with the key 'recipe'")
    for key in requested:
        if key not in INSTANCE_KEYS:
            use = f"use {OTHER_NAMES[key]!r}" if key in OTHER_NAMES else nearest(str(key), INSTANCE_KEYS)
            raise PlanError(f"{where}: unknown key {show_value(key)}; {use}")
    if not requested.get("recipe"):
        raise PlanError(f"{where}: 'recipe' is missing; expected the <org>/<model> of a recipe in the catalogue")
    _check_numbers(where, requested)
    _check_texts(where, requested)
    _check_residents(where, requested)
    if not requested.get("nodes"):
        check_sides(requested, where)
    check_scale(where, requested)
    if not isinstance(requested.get("preload", False), bool):
        raise PlanError(f"{where}.preload: found {show_value(requested['preload'])}, expected true or false")
    if "kv_cache" in requested:
        _check_kv_cache(f"{where}.kv_cache", requested["kv_cache"])
    _check_args(where, requested.get("args") or {})
    _check_env(where, name, requested.get("env") or {})


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    return f"the text {value!r}" if isinstance(value, str) else show_value(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_numbers(where: str, requested: Mapping[str, Any]) -> None:
    for key in ("port", "group_port", "router_port"):
        port = requested.get(key, 8000)
        if not _is_count(port) or port > 65535:
            raise PlanError(f"{where}.{key}: {not_a_number(port, 'a whole number from 1 to 65535')}")
    replicas = requested.get("replicas")
    if replicas is not None and not _is_count(replicas):
        problem = not_a_number(replicas, "a whole number from 1")
        raise PlanError(f"{where}.replicas: {problem}; leave replicas out to fill the host")
    if replicas not in (None, 1) and requested.get("nodes"):
        raise PlanError(
            f"{where}.replicas: found {show_value(replicas)} together with nodes; an instance that spans hosts has one "
            "replica, so remove one of the two"
        )
    chips = requested.get("chips")
    if chips is None:
        return
    if not isinstance(chips, list) or not chips or not all(_is_index(chip) for chip in chips):
        raise PlanError(
            f"{where}.chips: found {show_value(chips)}, expected a list of the chips' numbers without quotes, like [0, "
            "1]"
        )
    if len(set(chips)) != len(chips):
        raise PlanError(f"{where}.chips: found {show_value(chips)}, expected each number once, like [0, 1]")
    if replicas not in (None, 1):
        raise PlanError(
            f"{where}.replicas: found {show_value(replicas)} together with chips; an instance that names its chips has "
            "one replica, so remove one of the two"
        )


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_texts(where: str, requested: Mapping[str, Any]) -> None:
    for key in ("recipe", "variant", "preset", "strategy", "release", "host", "node_address"):
        if key in requested and not isinstance(requested[key], str):
            way_out = ", quoted" if isinstance(requested[key], float) else ""
            raise PlanError(f"{where}.{key}: found {show_value(requested[key])}, expected a text{way_out}")
    revision = requested.get("revision", "0" * 40)
    if not isinstance(revision, str) or not _REVISION.match(revision):
        raise PlanError(
            f"{where}.revision: found {show_value(revision)}, expected the commit of a manifest, 40 hexadecimal digits "
            "in quotes"
        )
    for key in ("host", "node_address"):
        # vLLM would listen on every address of an empty host.
        found = requested.get(key, "")
        if not (found == "" or is_host(found)) or (key == "host" and requested.get(key) == ""):
            raise PlanError(
                f"{where}.{key}: found {show_value(requested[key])}, expected an IP address such as 10.0.0.5, 0.0.0.0 "
                "or ::, or the name of a host"
            )
    if "runtime" in requested and requested["runtime"] not in RUNTIMES:
        found = requested["runtime"]
        raise PlanError(f"{where}.runtime: found {show_value(found)}; {nearest(str(found), RUNTIMES)}")
    nodes = requested.get("nodes")
    if isinstance(nodes, list) and len(set(map(str, nodes))) < len(nodes):
        raise PlanError(f"{where}.nodes: found {show_value(nodes)}, expected each host once")
    for key in ("checks", "features", "nodes", "served_model_names"):
        value = requested.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise PlanError(f"{where}.{key}: found {show_value(value)}, expected a list of names")
    _check_served(f"{where}.served_model_names", requested.get("served_model_names", []))
    for name in requested.get("checks", []):
        if name not in CHECKS:
            raise PlanError(f"{where}.checks: unknown check {name!r}; {nearest(name, CHECKS)}")
    for key in ("args", "env", "feature_modes"):
        if not isinstance(requested.get(key), (Mapping, type(None))):
            raise PlanError(f"{where}.{key}: found {show_value(requested[key])}, expected a mapping of names to values")
        for name in requested.get(key) or {}:
            if not isinstance(name, str):
                raise PlanError(f"{where}.{key}: found the key {show_value(name)}, expected a text; put it in quotes")
    for name, mode in (requested.get("feature_modes") or {}).items():
        if not isinstance(mode, str):
            raise PlanError(
                f"{where}.feature_modes.{name}: found {show_value(mode)}, expected the name of a mode, in quotes"
            )


def _check_served(where: str, names: Sequence[str]) -> None:
    """Raise PlanError for a name that no request could have, or that is there twice."""
    for name in names:
        found = show_value(name)
        if not name.strip() or name != name.strip() or not name.isprintable():
            raise PlanError(f"{where}: found {found}, expected a name without spaces around it and without line breaks")
        if names.count(name) > 1:
            raise PlanError(f"{where}: found {found} twice, expected each name once")


def _check_residents(where: str, requested: Mapping[str, Any]) -> None:
    """Raise PlanError for an invalid name, or for what cannot share its chips: several hosts, several replicas."""
    if "residents" not in requested:
        return
    found = requested["residents"]
    if not isinstance(found, str) or not _NAME.match(found):
        raise PlanError(
            f"{where}.residents: found {show_value(found)}, expected a name for the instances that share chips, a text "
            "of letters, digits, '-', '_' and '.'"
        )
    for key in ("nodes", "prefill", "decode"):
        if requested.get(key):
            raise PlanError(
                f"{where}.residents: found {show_value(found)} together with {key}; an instance that shares its chips "
                f"is on one host, so remove residents or {key}"
            )
    if requested.get("replicas") not in (None, 1):
        raise PlanError(
            f"{where}.replicas: found {show_value(requested['replicas'])} together with residents; an instance that "
            "shares its chips has one replica, so remove residents or replicas"
        )


def _check_kv_cache(where: str, requested: Any) -> None:
    """Raise PlanError for a malformed ``kv_cache``."""
    if not isinstance(requested, Mapping):
        raise PlanError(f"{where}: found {show_value(requested)}, expected a mapping such as {{host_gib: auto}}")
    for key in requested:
        if key != "host_gib":
            raise PlanError(f"{where}: unknown key {show_value(key)}; {nearest(str(key), ['host_gib'])}")
    found = requested.get("host_gib")
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool) and 0 < found < MOST_GIB
    if found != "auto" and not is_number:
        raise PlanError(f"{where}.host_gib: found {show_value(found)}, expected auto or a number of GiB above 0")


def with_dashes(instances: Mapping[str, Any]) -> dict[str, Any]:
    """Return instances whose arguments have dashes where vLLM takes underscores too (max_model_len)."""
    return {
        name: {**asked, "args": {_dashed(key): value for key, value in (asked.get("args") or {}).items()}}
        for name, asked in instances.items()
    }


def _dashed(key: Any) -> str:
    head, dot, rest = str(key).partition(".")
    return head.replace("_", "-") + dot + rest


def _check_args(where: str, args: Mapping[str, Any]) -> None:
    for key, value in args.items():
        name = _dashed(key)
        if name in OWNED_ARGS:
            raise PlanError(f"{where}.args.{key}: cannot be set here; its value comes from {OWNED_ARGS[name]}")
        if str(key).startswith("-"):
            wanted = _dashed(str(key).lstrip("-"))
            raise PlanError(f"{where}.args: {key!r} is not how vLLM's --config file names a flag; expected {wanted!r}")
        first = next(other for other in args if _dashed(other) == name)
        if first != key:
            raise PlanError(f"{where}.args: {first!r} and {key!r} are the same flag of vLLM; keep one of them")
        problem = _no_word(value)
        if problem:
            raise PlanError(
                f"{where}.args.{key}: {problem}, which a command line cannot pass; expected text of one line, a "
                "number, true or false, or a list or mapping of these"
            )


def _no_word(value: Any) -> str | None:
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            return f"found a mapping with the key {show_value(odd[0])} ({name_kind(odd[0])}), not a text"
        return next(filter(None, map(_no_word, value.values())), None)
    if isinstance(value, list):
        return next(filter(None, map(_no_word, value)), None)
    if isinstance(value, str) and _LINES.search(value):
        return f"found a text of several lines ({value.splitlines()[0]!r}...)"
    if value is None or isinstance(value, (str, int, float, bool)):
        return None
    return f"found {show_value(value)} ({name_kind(value)})"


def _check_env(where: str, name: str, env: Mapping[str, Any]) -> None:
    for key, value in env.items():
        if name_problem(key):
            raise PlanError(f"{where}.env: {name_problem(key)}")
        if is_secret(str(key), value) and key != PROOF_VARIABLE and value is not None:
            raise PlanError(f"{where}.env.{key}: a secret does not belong here; put it into vllm_secrets.{name}.{key}")
        if isinstance(value, (Mapping, list)):
            raise PlanError(
                f"{where}.env.{key}: found {show_value(value)}, expected one value; write JSON as a text in quotes"
            )
        # The value may be confidential, so the message omits it.
        problem = line_problem(value) if isinstance(value, str) else ""
        if problem:
            raise PlanError(
                f"{where}.env.{key}: found {problem}, expected one line, because a systemd unit passes no more"
            )
        if isinstance(value, bool):
            # YAML's true would become True, which vLLM cannot read as a number, and other libraries not as a boolean.
            raise PlanError(f'{where}.env.{key}: found {show_value(value)}, expected a text in quotes, such as "1"')
        if value is not None and not isinstance(value, (str, int, float)):
            raise PlanError(
                f"{where}.env.{key}: found {show_value(value)} ({name_kind(value)}), expected a text in quotes"
            )


def secret_problem(value: Any) -> str:
    """Return what is wrong with the value of a secret, empty where nothing is; never the value.

    vLLM serves everybody where its key is empty.
    """
    if value is None or isinstance(value, (bool, Mapping, list)):
        return f"found {name_kind(value)}"
    if isinstance(value, str) and not value.strip():
        return "found an empty text"
    problem = line_problem(value) if isinstance(value, str) else ""
    return f"found {problem}" if problem else ""


def exposure(where: str, name: str, host: str, secrets: Sequence[str]) -> list[str]:
    """Return a warning where an instance listens beyond loopback without an API key."""
    try:
        loopback = read_ip(host.strip("[]")).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if loopback or API_KEY in secrets:
        return []
    return [
        f"{where}.host: listens on {host} without an API key, so everybody who reaches the port can use it; behind a "
        f"gateway, let only gateways reach it; otherwise set vllm_secrets.{name}.{API_KEY}, or leave host out to "
        "listen on 127.0.0.1"
    ]


def without_effect(where: str, requested: Mapping[str, Any]) -> list[str]:
    """Return a warning for each key that only an instance over several hosts reads, where it is on one."""
    needs = {"group_port": ("nodes", "prefill"), "node_address": ("nodes", "prefill"), "router_port": ("prefill",)}
    return [
        f"{where}.{key}: has no effect without {' or '.join(others)}; remove it"
        for key, others in needs.items()
        if key in requested and not any(requested.get(other) for other in others)
    ]


def replica_name(name: str, number: int) -> str:
    """Return the name of the first, second ... replica of ``name``: chat, chat-2, chat-3."""
    return name if number == 1 else f"{name}-{number}"


def check_ports(ports: Mapping[str, tuple[str, int]], own: Mapping[int, str] | None = None) -> None:
    """Raise PlanError when two instances of one host use the same port, or one that is not for instances.

    ``ports`` holds for each name, replicas included, its instance and the port; ``own`` what else listens on a port.
    """
    taken: dict[int, tuple[str, str]] = {}
    for name, (origin, port) in ports.items():
        where = f"vllm_instances.{origin}.port"
        if port > 65535:
            raise PlanError(f"{where}: the replica {name} would get {port}, beyond 65535")
        if port in (own or {}):
            raise PlanError(port_taken(where, port, of_replica(name, origin), (own or {})[port]))
        if port in taken:
            raise PlanError(
                f"{where}: {port}{of_replica(name, origin)} is the port of "
                f"vllm_instances.{taken[port][1]}{of_replica(*taken[port])} too; give one of them another"
            )
        taken[port] = (name, origin)


def port_taken(where: str, port: int, replica: str, other: str) -> str:
    """Return the sentence on the port of an instance, or of one of its replicas, that something else has."""
    return f"{where}: {port}{replica} is the port of {other} too; give the instance another"


def of_replica(name: str, origin: str) -> str:
    """Return which replica of an instance a message is about; empty for the instance itself."""
    return "" if name == origin else f" (of the replica {name})"
