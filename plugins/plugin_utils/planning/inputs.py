# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of a plan besides instances and hardware: the site's settings, and the source of files."""

from dataclasses import dataclass, field, fields
from typing import Any, Callable, Collection, Mapping, Protocol, Sequence

from ..options.restricted import Restrictions
from ..options.table import Foreign, OptionTable
from .hardware import Accelerator

Manifest = Mapping[str, Any]


class PlanError(ValueError):
    """The requested instances cannot be served; the message is the whole sentence for the user."""


class PermissionNeededError(PlanError):
    """A recipe sets what its instance has to allow; ``settings`` are the ``args`` and ``env`` that do so."""

    def __init__(self, message: str, settings: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(message)
        self.settings = settings


class UnknownNameError(PlanError):
    """No directory has a file of the name; the message lacks the key that holds the name, which the caller knows."""


class Serves(Protocol):
    """Tells whether an instance can be planned, alone, with other keys, on other chips or on several hosts.

    Advice is asked about before it is given, because several rules may refuse an instance, and each knows its own only.
    """

    def __call__(self, *, chip: Accelerator | None = None, hosts: int = 1, **keys: Any) -> bool: ...


def always(*, chip: Accelerator | None = None, hosts: int = 1, **keys: Any) -> bool:  # noqa: ARG001
    """Return True: where advice itself is tried, nobody reads further advice."""
    return True


def how_to_pin(model: str) -> str:
    """Return the command that makes the manifest of a model, also of NAME@REVISION, as a clause of a message."""
    name, _at, revision = model.partition("@")
    beside = f"-e pin_revision={revision} -e pin_beside=true " if revision else ""
    return (
        f"make a manifest: ansible-playbook playbooks/pin_weights.yml -e pin_model={name} {beside}-e pin_dest=DIR, and "
        "set weights_manifest_path: [DIR]"
    )


@dataclass(frozen=True)
class SiteSettings:
    """The site's settings for all instances of a host (paths on the host, times in seconds).

    ``release`` is empty where the stack decides, ``runtime``, ``image`` and ``registry`` where the release does.
    ``secrets`` holds the names, never the values, of each instance's secrets. ``strict`` False permits names that the
    release's table does not have, and what a recipe does not list. ``python`` is the requested Python of virtual
    environments, empty for the host's. ``members`` holds address and interface of each host that is named in ``nodes``
    of an instance, ``fabric`` the RDMA devices between them.
    """

    release: str
    weights_root: str
    encodings_dir: str
    cache_root: str
    venv_root: str
    drain_timeout: int
    config_dir: str = "/etc/vllm"
    runtime: str = ""
    image: str = ""
    registry: str = ""
    python: str = ""
    strict: bool = True
    secrets: Mapping[str, Collection[str]] = field(default_factory=dict)
    members: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fabric: Mapping[str, Any] = field(default_factory=dict)


# The names of all settings.
SETTINGS = tuple(entry.name for entry in fields(SiteSettings))


@dataclass(frozen=True)
class Library:
    """The source of recipes, releases, manifests of weights and option tables; each method may raise PlanError.

    ``manifest`` takes the name of a model, also with @ and a revision, and returns None where none pins it. ``others``
    returns the tables of the other releases, ``notes`` the warnings about a file by its kind (recipes, releases,
    weights) and name, ``chips`` so many of each chip of the catalogue as it is asked for, where a host can have them.
    ``families`` holds the guards and known issues of families of models, ``restrictions`` what a recipe cannot set
    alone, ``router`` returns the lock of vllm-router.
    """

    recipe: Callable[[str], Mapping[str, Any]]
    release: Callable[[str], Mapping[str, Any]]
    manifest: Callable[[str], Manifest | None]
    table: Callable[[str, bool], OptionTable]
    others: Callable[[str], Sequence[OptionTable]]
    foreign: Callable[[str], Foreign]
    replaced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    exclusive: Sequence[Mapping[str, Any]] = ()
    families: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    restrictions: Restrictions = field(default_factory=Restrictions)
    notes: Callable[[str, str], Sequence[str]] = lambda _kind, _name: ()
    chips: Callable[[int], Sequence[Accelerator]] = lambda _count: ()
    router: Callable[[], Mapping[str, Any]] = dict
