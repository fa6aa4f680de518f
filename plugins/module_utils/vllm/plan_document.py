# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of a plan: the decisions of the controller for one instance, as hosts and plan.json get them."""

from __future__ import annotations

from typing import Any, TypedDict

# Roles of hosts whose instance computes prompts, or answers, for the other side.
PREFILL, DECODE = "prefill", "decode"
# Roles of hosts that accept no requests of clients.
INNER = ("worker", PREFILL)


class RouterDocument(TypedDict):
    """vllm-router on a decode host: it has a prefill host compute a prompt, and vLLM on this host the answer.

    ``host`` and ``port`` are where it listens, ``metrics`` is the TCP port of its own metrics on loopback, ``decode``
    the URL of this host's vLLM, ``venv`` what its virtual environment is made from.
    """

    host: str
    port: int
    metrics: int
    decode: str
    venv: dict[str, Any]


class Routed(TypedDict, total=False):
    """What only decode hosts have."""

    router: RouterDocument


class Beside(TypedDict, total=False):
    """What a group has only where its host belongs to other groups: the addresses of their hosts."""

    beside: list[str]


class GroupDocument(Routed, Beside):
    """The hosts of an instance that spans several, as one of them sees it.

    ``role`` is ``head``, ``worker`` (accepts no requests) or ``peer`` (each host has an API server); or ``prefill`` or
    ``decode``, where each host runs a whole vLLM. ``peers`` are the addresses of the others by host; with the
    ``watched`` ones this host has connections as long as the instance lives. ``port`` is the TCP port of the first host
    at which all meet, or that of the connector on each host. Only the hosts of the group may reach the TCP ports
    ``guarded``, single ones and ranges. ``prefill`` are the addresses with ports of the hosts that compute prompts.
    """

    name: str
    hosts: list[str]
    rank: int
    role: str
    address: str
    interface: str
    head_address: str
    peers: dict[str, str]
    watched: list[str]
    port: int
    guarded: list[str]
    prefill: list[str]


class Grouped(TypedDict, total=False):
    """What the plan of an instance has only where it spans hosts."""

    group: GroupDocument


class Resident(TypedDict, total=False):
    """What the plan of an instance has only where it shares its chips: the name that it has in common with others."""

    residents: str


class Preloaded(TypedDict, total=False):
    """What the plan of an instance has only where its weights stay on the chips while it restarts."""

    preload: bool


class Divided(TypedDict, total=False):
    """What the plan of an instance has only on parts of chips: their modes (CPX/NPS4) or MIG instances (7x1g.10gb)."""

    partition: str


class Numbered(TypedDict, total=False):
    """What the plan of an instance has only beside other chips of the vendor: the numbers of its own in their tools."""

    numbers: list[int]


class Scaled(TypedDict, total=False):
    """What the plan of an instance has only where its replicas follow the load: min, max, mode, and on which hosts."""

    scale: dict[str, Any]


class PlanOutline(Grouped, Resident, Preloaded, Divided, Numbered, Scaled):
    """The part of a plan that decides which files an instance has."""

    instance: str
    runtime: str


class StartDocument(TypedDict):
    """What of a plan depends on the runtime: image and container, or the virtual environment."""

    image: str | None
    container: dict[str, Any] | None
    venv: dict[str, Any] | None
    launch: list[str]
    libraries: list[str]
    devices: list[str]
    mounts: list[str]


class PlanDocument(PlanOutline, StartDocument):
    """Everything needed to install and start one instance.

    ``argv`` is the whole command, ``env`` its variables but for the secrets. A host runs ``launch`` and ``middleware``,
    followed by ``--config`` and the file of ``config``: the same words. ``args`` are the arguments but for model and
    the address.
    """

    host: str
    replica_of: str
    accelerator: str
    stack: str
    generation: str
    vllm_version: str
    release: str
    recipe: str
    variant: str
    preset: str | None
    strategy: str
    features: dict[str, str | None]
    model: str
    revision: str | None
    weights: str | None
    models: list[str]
    served_model_names: list[str]
    listen: dict[str, Any]
    env: dict[str, str]
    args: dict[str, Any]
    config: dict[str, Any]
    argv: list[str]
    middleware: list[str]
    chips: list[int]
    secrets: list[str]
    memory_required_gib: float | None
    compilers: list[str]
    known_issues: list[dict[str, str]]
    explain: list[dict[str, Any]]
    warnings: list[str]
