# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of an instance on its host, and the template of the role vllm that writes each.

The role and playbooks/render.yml write the same files, so both use this module.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ..instance.config_file import start_seconds
from ..instance.marks import CONFIG_DIR, RUN_DIR, STATE_DIR
from .adapters import KEY, AdapterError, adapters_of, has_guard
from .plan_document import DECODE, PREFILL, GroupDocument, PlanOutline

UNIT_DIR = "/etc/systemd/system"
QUADLET_DIR = "/etc/containers/systemd"
# The directory of the modules that vLLM imports. A change there does not affect a running instance.
LIBRARY = "/usr/local/lib/vllm"
# The middleware as vLLM imports it, and as kept states name it: of every instance, and of hosts that compute prompts or
# answers for others.
AVAILABILITY, ROUTED = "availability.Availability", "routed.Routed"

# Files of vLLM 0.33.0 that upstream's recipes name (their licence: tool_chat_templates.LICENSE). Only vLLM's images for
# CUDA and for processors have them.
CHAT_TEMPLATES = tuple(
    f"tool_chat_template_{name}.jinja" for name in ("deepseekr1", "deepseekv3", "deepseekv31", "gemma4")
)

# The kinds of units of an instance: the unit that all venv instances share, a separate unit that runs the engine's
# command, or a quadlet, from which podman generates the unit.
TEMPLATE, UNIT, QUADLET = "template", "unit", "quadlet"


class Middleware(NamedTuple):
    """The arguments of vLLM for this collection's middleware, and the variables that it reads."""

    words: Sequence[str]
    env: Mapping[str, str]


def middleware_of(name: str, group: GroupDocument | None) -> Middleware:
    """Return the middleware of an instance, which answers gateways while its unit starts and stops.

    vLLM calls the last one first: on hosts that compute for others the router's word about a KV cache is judged first.
    """
    env = {"AVAILABILITY_DIRECTORY": f"{RUN_DIR}/{name}"}
    if group is None or group["role"] not in (DECODE, PREFILL):
        return Middleware(("--middleware", AVAILABILITY), env)
    # Only the router may say where the KV cache of a prompt is: on one of these hosts.
    addresses = [each.rpartition(":")[0].strip("[]") for each in group["prefill"]] if group["role"] == DECODE else []
    words = ("--middleware", AVAILABILITY, "--middleware", ROUTED)
    return Middleware(words, {**env, "PREFILL_HOSTS": " ".join(addresses)})


def metadata_path(name: str) -> str:
    """Return the directory where Python finds a distribution called vllm, for a build that has another name."""
    return f"{STATE_DIR}/{name}/metadata"


def unit_kind(plan: PlanOutline, settings: Mapping[str, Any]) -> str:
    """Return the kind of the instance's unit: ``template``, ``unit`` or ``quadlet``."""
    if plan["runtime"] != "container":
        return TEMPLATE
    # If the host was not inspected, a current podman is assumed, which has quadlet.
    able = settings.get("engine") == "podman" and settings.get("quadlet", True)
    return QUADLET if able else UNIT


def instance_files(plan: PlanOutline, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files of one instance in the order in which they are written, the unit last.

    ``settings`` is the role's ``__vllm_container``: ``user`` (the system user of vLLM), ``engine`` (``docker``
    or ``podman``; docker unless given) and ``quadlet`` (whether podman has it). Each file is a mapping of ``path``,
    ``template`` (of roles/vllm/templates), ``owner``, ``group``, ``mode``, ``secret`` (it holds secrets), ``unit``
    (systemd or podman reads it) and ``shared`` (several instances use the same file). Units have ``start_seconds``, how
    long a start may take at least.
    """
    venv: Mapping[str, Any] = dict(plan).get("venv") or {}  # type: ignore[assignment]
    shared = metadata_files(plan["instance"]) if "distribution" in venv else []
    shared += group_files(plan["instance"], settings["user"]) if "group" in plan else []
    if "router" in plan.get("group", {}):
        # Static, and shared by all instances with a router, so that it is not a part of what is kept of one.
        shared.append(
            _file(f"{UNIT_DIR}/vllm-router@.service", "vllm-router@.service.j2", "root", "0644", unit=True, shared=True)
        )
    if "residents" in plan:
        shared += resident_files(plan["instance"])
    if "preload" in plan:
        whole: Mapping[str, Any] = {"env": {}, **plan}
        shared += preload_files(plan["instance"], whole["env"])
    return [*shared, *_own_files(plan, settings)]


def _own_files(plan: PlanOutline, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files of an instance that its kind of unit needs."""
    name, user, kind = plan["instance"], settings["user"], unit_kind(plan, settings)
    files = [
        _file(env_path(name), "instance.env.j2", user, "0640"),
        {**_file(f"{CONFIG_DIR}/{name}.yaml", "instance.yaml.j2", user, "0640"), "live_keys": live_keys(plan)},
        _file(f"{CONFIG_DIR}/{name}.secrets", "instance.secrets.j2", "root", "0600", secret=True),
    ]
    whole: Mapping[str, Any] = {"env": {}, **plan}
    seconds = {"start_seconds": start_seconds(whole["env"])}
    if kind == QUADLET:
        return [*files, {**_file(quadlet_path(name), "instance.container.j2", "root", "0644", unit=True), **seconds}]
    serve = f"{STATE_DIR}/{name}/serve"
    if kind == UNIT:
        own = _file(unit_path(name), "instance.service.j2", "root", "0644", unit=True)
        return [*files, _file(serve, "serve-container.j2", "root", "0755"), {**own, **seconds}]
    unit = _file(f"{UNIT_DIR}/vllm@.service", "vllm@.service.j2", "root", "0644", unit=True, shared=True)
    return [*files, _file(serve, "serve.j2", "root", "0755"), {**unit, **seconds}]


def longest_start(entries: Iterable[Mapping[str, Any]]) -> int:
    """Return ``start_seconds`` of the unit that the instances of a host share, from all their files."""
    return max((entry["start_seconds"] for entry in entries if entry["shared"] and "start_seconds" in entry), default=0)


def chat_templates(plan: PlanOutline) -> list[dict[str, Any]]:
    """Return the chat template of this collection that an instance uses."""
    whole: Mapping[str, Any] = {"args": {}, **plan}
    path = whole["args"].get("chat-template")
    return [
        {"path": path, "src": name, "mode": "0644", "unit": False, "restarts": ()}
        for name in CHAT_TEMPLATES
        if path == f"{LIBRARY}/{name}"
    ]


def live_keys(plan: PlanOutline) -> list[str]:
    """Return the arguments of which a running instance takes over a change, so that it need not be restarted."""
    whole: Mapping[str, Any] = {"args": {}, "env": {}, **plan}
    try:
        adapters_of(whole["args"].get(KEY))
    except AdapterError:
        return []
    return [KEY] if has_guard(whole["env"]) else []


def metadata_files(name: str) -> list[dict[str, Any]]:
    """Return what an instance has besides whose environment has vLLM under another name: the version of vLLM."""
    return [_file(f"{metadata_path(name)}/vllm.dist-info/METADATA", "instance.metadata.j2", "root", "0644")]


def group_files(name: str, user: str) -> list[dict[str, Any]]:
    """Return what an instance that spans hosts has besides: its group, the firewall, the watchdog."""
    return [
        _file(group_path(name), "instance.group.json.j2", user, "0640"),
        _file(firewall_path(name), "group.nft.j2", "root", "0644"),
        _file(f"{UNIT_DIR}/vllm-group@.service", "vllm-group@.service.j2", "root", "0644", unit=True, shared=True),
        _file(f"{UNIT_DIR}/vllm@{name}.service.d/group.conf", "group.conf.j2", "root", "0644", unit=True),
    ]


def resident_files(name: str) -> list[dict[str, Any]]:
    """Return what an instance that shares its chips has besides: their service, and what its start waits for."""
    service = f"{UNIT_DIR}/vllm-residents@.service"
    return [
        _file(service, "vllm-residents@.service.j2", "root", "0644", unit=True, shared=True),
        _file(residents_path(name), "residents.conf.j2", "root", "0644", unit=True),
    ]


def preload_files(name: str, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return what an instance whose weights stay on the chips has besides: their service, what its start waits for."""
    path = f"{UNIT_DIR}/vllm-preload@.service"
    service = _file(path, "vllm-preload@.service.j2", "root", "0644", unit=True, shared=True)
    return [
        {**service, "start_seconds": start_seconds(env or {})},
        _file(preload_path(name), "preload.conf.j2", "root", "0644", unit=True),
    ]


def extra_files(name: str) -> list[dict[str, Any]]:
    """Return the files that only some instances have."""
    return [*group_files(name, ""), *metadata_files(name), *resident_files(name), *preload_files(name)]


def drop_ins(name: str) -> tuple[str, ...]:
    """Return the places of the files that change the start of some instances."""
    return residents_path(name), preload_path(name)


def preload_path(name: str) -> str:
    """Return the place of the file that only an instance has whose weights stay on the chips."""
    return f"{UNIT_DIR}/vllm@{name}.service.d/preload.conf"


def residents_path(name: str) -> str:
    """Return the place of the file that only an instance that shares its chips has."""
    return f"{UNIT_DIR}/vllm@{name}.service.d/residents.conf"


def group_path(name: str) -> str:
    """Return the place of the file that only an instance that spans hosts has."""
    return f"{CONFIG_DIR}/{name}.group.json"


def firewall_path(name: str) -> str:
    """Return the place of the firewall of an instance that spans hosts."""
    return f"{CONFIG_DIR}/{name}.nft"


def firewall_tables(name: str) -> tuple[str, str]:
    """Return the name of the table that it loads, and the one of older releases, which several names may share."""
    return f"vllm-group-{name}", "vllm_group_" + re.sub(r"[^A-Za-z0-9_]", "_", name)


def directory(path: str) -> dict[str, Any]:
    """Return the entry of a directory that everybody may read."""
    return {"path": path, "state": "directory", "mode": "0755", "unit": False, "restarts": ()}


def weights_link(name: str, weights: str | None) -> dict[str, Any]:
    """Return the entry of the link from an instance to its weights, which may not exist yet in check mode."""
    path = f"{STATE_DIR}/{name}/model"
    return {"path": path, "state": "link", "target": weights or "", "unit": False, "restarts": (name,)}


def env_path(name: str) -> str:
    """Return the place of an instance's variables, but for the secrets: a shell or the container engine reads them."""
    return f"{CONFIG_DIR}/{name}.env"


def unit_path(name: str) -> str:
    """Return the path of an instance's own unit, which takes precedence over the shared one."""
    return f"{UNIT_DIR}/vllm@{name}.service"


def quadlet_path(name: str) -> str:
    """Return the path of an instance's quadlet, from which podman generates vllm@NAME.service."""
    return f"{QUADLET_DIR}/vllm@{name}.container"


def _file(path: str, template: str, group: str, mode: str, **flags: bool) -> dict[str, Any]:
    return {
        "path": path,
        "template": template,
        "owner": "root",
        "group": group,
        "mode": mode,
        **{name: flags.get(name, False) for name in ("secret", "unit", "shared")},
    }
