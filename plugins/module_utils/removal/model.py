# SPDX-License-Identifier: GPL-3.0-or-later
"""A request to remove something, what a host has, and the plan that follows from both."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Mapping

INSTANCE, MODEL, ENVIRONMENT, IMAGE, EVERYTHING = "instance", "model", "environment", "image", "everything"
# Kinds of items besides these.
SERVICE, ENCODINGS, BASE, USER, PACKAGES = "service", "encodings", "shared files", "user", "packages"
# What is removed with everything only if the user requests it too.
DRIVER, CONTAINER_ENGINE = "driver", "container_engine"


class RemovalError(ValueError):
    """Something must stay; the message lacks only the host."""


@dataclass(frozen=True)
class Site:
    """The directories of the roles' options, and the user of vLLM."""

    weights_root: str = "/srv/models"
    venv_root: str = "/opt/vllm"
    encodings_dir: str = "/srv/encodings"
    user: str = "vllm"


# The options of both modules; plugins/doc_fragments/removal.py documents them.
SITE_ARGUMENTS: dict[str, dict[str, Any]] = {
    "weights_root": {"type": "path", "default": Site.weights_root},
    "venv_root": {"type": "path", "default": Site.venv_root},
    "encodings_dir": {"type": "path", "default": Site.encodings_dir},
    "user": {"type": "str", "default": Site.user},
    "root": {"type": "path", "default": "/"},
}


def site_of(options: Mapping[str, Any]) -> Site:
    """Return the directories from the options of a module."""
    return Site(**{name: options[name] for name in ("weights_root", "venv_root", "encodings_dir", "user")})


@dataclass(frozen=True)
class Request:
    """What to remove: the kind and its names, none of them for everything.

    ``declared`` are the instances of the inventory, ``planned`` what their plans need. ``shared`` is whether
    other hosts use the directory of the models (None: the file system decides). ``also`` are SWITCHES.
    """

    kind: str
    names: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    planned: tuple[Use, ...] = ()
    groups: tuple[str, ...] = ()
    shared: bool | None = None
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Use:
    """A user of a directory of weights, an environment or an image; ``instance`` is empty if it is not an instance."""

    by: str
    instance: str = ""
    model: str = ""
    venv: str = ""
    image: str = ""


@dataclass(frozen=True)
class Directory:
    """A directory that can go: a revision of a model, an environment, or the remains of either.

    ``state`` is ``complete``, ``abandoned`` (a killed run left it) or ``foreign`` (the collection did not publish it).
    ``stays`` is why root does not remove it, empty where it may.
    """

    name: str
    path: str
    size: int = 0
    state: str = "complete"
    stays: str = ""


@dataclass(frozen=True)
class Model:
    """A model of the host: ``organisation/name``, its directory and what is in it."""

    name: str
    path: str
    revisions: tuple[Directory, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class StoredImage:
    """An image in the store of an engine: its names, its id, its bytes, and the containers that use it."""

    engine: str
    id: str
    names: tuple[str, ...] = ()
    size: int = 0
    containers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """What a host has of the collection, with bytes; ``instances`` are all names with a trace, ``services`` are roles.

    ``rollout`` is a sentence about a running rollout, ``trouble`` clauses about engines that do not answer.
    By switch: ``packages`` that are installed, ``settings`` (files), and the ``busy`` users of what they provide.
    """

    instances: Mapping[str, int] = field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    models: tuple[Model, ...] = ()
    environments: tuple[Directory, ...] = ()
    images: tuple[StoredImage, ...] = ()
    services: Mapping[str, int] = field(default_factory=dict)
    encodings: Mapping[str, int] = field(default_factory=dict)
    base: Mapping[str, int] = field(default_factory=dict)
    users: tuple[str, ...] = ()
    rollout: str = ""
    trouble: tuple[str, ...] = ()
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    busy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One thing to remove: its kind, the name that people know, its path or reference, and its bytes."""

    kind: str
    name: str
    target: str
    size: int = 0
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for a module's result."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """The items to remove, in order; ``kept`` are sentences on what stays and why, ``absent`` on what is not there.

    ``mistaken`` are the absent instances that look like a misspelt one of the host.
    """

    items: tuple[Item, ...] = ()
    kept: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    mistaken: tuple[str, ...] = ()


def describe(item: Item) -> str:
    """Return a line about an item for people."""
    target = f" {item.target}" if item.target != item.name else ""
    return f"{item.kind} {item.name}{target} ({format_bytes(item.size)}){f', {item.detail}' if item.detail else ''}"


def format_bytes(count: int) -> str:
    """Return a number of bytes for people, such as ``1.5 GiB``."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
