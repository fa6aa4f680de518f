# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what the collection has installed on this host, and what uses it; change nothing."""

from __future__ import annotations

import functools
import glob
import os
import pwd
import re
from dataclasses import replace
from typing import Callable, Iterable

from ..common.files_host import listed, target_of
from ..common.foreign_trees_host import walk_tree
from ..common.mounts_host import mount_within
from ..encodings.files import ENCODINGS
from ..instance.marks import CACHE_DIR, CONFIG_DIR, STATE_DIR
from ..slots.host import Slots
from ..slots.installed_host import Host, turn_of
from ..slots.state import NAME
from ..vllm.files import QUADLET_DIR, UNIT_DIR, quadlet_path, unit_path
from ..weights.owners_host import Owners
from ..weights.plan import STAMP_NAME
from ..weights.retention_host import ROOTS_ALONE, is_shared
from . import places
from .engine_host import CommandResult, Engines
from .model import (
    CONTAINER_ENGINE,
    DRIVER,
    ENVIRONMENT,
    EVERYTHING,
    IMAGE,
    INSTANCE,
    MODEL,
    Contents,
    Directory,
    Model,
    Site,
    Use,
)
from .packages import packages_of
from .packages_host import Packages, chip_users
from .places import SERVICES, fixed_paths, settings_of
from .processes_host import UsingProcess, read_processes

LOCKS_DIR = "/var/lib/baremetal-rollout"
SETTINGS = {DRIVER: places.DRIVER, CONTAINER_ENGINE: places.ENGINE}
COMPLETE, ABANDONED, FOREIGN = "complete", "abandoned", "foreign"

_REVISION = re.compile(r"[0-9a-f]{40}", re.ASCII)
_LEFT = re.compile(r"\.[0-9a-f]{40}\.(partial|old|removed)", re.ASCII)
_ENVIRONMENT = re.compile(r"(?P<dot>\.?)(?P<name>.+-[0-9a-f]{12})(?P<left>\.partial|\.cache|\.removed)?", re.ASCII)
# The files of an instance that carry its name in a directory of many.
_TRACES = (
    (CONFIG_DIR, re.compile(r"(?P<name>.+)\.(env|secrets|yaml)")),
    (UNIT_DIR, re.compile(r"vllm@(?P<name>.+)\.service(\.d)?")),
    (f"{UNIT_DIR}/multi-user.target.wants", re.compile(r"vllm@(?P<name>.+)\.service")),
    (QUADLET_DIR, re.compile(r"vllm@(?P<name>.+)\.container(\.d)?")),
)


class Inspection:
    """The host below ``root``, as a request of one kind needs it."""

    def __init__(self, root: str, site: Site, run: Callable[..., CommandResult], proc: str = "/proc") -> None:
        self.root, self.site, self.proc = root.rstrip("/"), site, proc
        self.engines, self._run = Engines(run), run
        self.host = Host(root, lambda _engine, _ref: "")

    def read(self, kind: str, also: Iterable[str] = ()) -> Contents:
        """Return the contents of the host that a request of this kind, with these switches, needs."""
        names = [name for name in instance_names(self.host) if not any(map(self.holds_data, instance_paths(name)))]
        sizes = {name: sum(disk_usage(self.host.at(path)) for path in instance_paths(name)) for name in names}
        rollout = self.rollout()
        if kind == INSTANCE:
            return Contents(sizes, rollout=rollout)
        everything = kind == EVERYTHING
        switches = list(also) if everything else []
        models = self.models() if kind in (MODEL, EVERYTHING) else []
        environments = self.environments() if kind in (ENVIRONMENT, EVERYTHING) else []
        return Contents(
            sizes,
            (*self._installed_uses(names), *self._kept_uses(names), *self._process_uses(models, environments)),
            tuple(models),
            tuple(environments),
            tuple(self.engines.images() if kind in (IMAGE, EVERYTHING) else ()),
            self.services() if everything else {},
            self._sizes(self._encoding_paths() if everything else ()),
            self._sizes(self.base_paths() if everything else ()),
            tuple(self.users() if everything else ()),
            rollout,
            tuple(self.engines.trouble.values()),
            {switch: packages_of(switch, self.packages.installed) for switch in switches},
            {switch: tuple(self.settings(switch)) for switch in switches},
            {switch: tuple(self.users_of(switch, names)) for switch in switches},
        )

    @functools.cached_property
    def packages(self) -> Packages:
        """The packages of the host."""
        return Packages(self._run)

    def models(self) -> list[Model]:
        """Return the models below the root of the weights; symlinks were not made by the role and are left out."""
        found = []
        owners = Owners(self.at(self.site.weights_root))
        for directory in sorted(glob.glob(f"{glob.escape(self.at(self.site.weights_root))}/*/*/")):
            path = directory.rstrip("/")
            revisions = () if os.path.islink(path) else tuple(self._revisions(path))
            if not revisions and listed(path) == [".lock"]:
                revisions = (Directory("", self._named(path), 0, ABANDONED),)
            if not revisions:
                continue
            exposure = owners.exposure(path)
            if exposure:
                stays = f"another user can change it ({exposure}); {ROOTS_ALONE}"
                revisions = tuple(each if each.stays else replace(each, stays=stays) for each in revisions)
            organisation, name = path.split("/")[-2:]
            found.append(Model(f"{organisation}/{name}", self._named(path), revisions, is_shared(path, self.proc)))
        return found

    def environments(self) -> list[Directory]:
        """Return the virtual environments, and what killed runs have left of them."""
        found = []
        top = self.at(self.site.venv_root)
        for name in listed(top):
            match = _ENVIRONMENT.fullmatch(name)
            path = os.path.join(top, name)
            if (
                match is None
                or bool(match["dot"]) != bool(match["left"])
                or os.path.islink(path)
                or not os.path.isdir(path)
            ):
                continue
            state = ABANDONED if match["left"] else COMPLETE
            found.append(Directory(match["name"], self._named(path), disk_usage(path), state, self._mounted(path)))
        return found

    def settings(self, switch: str) -> list[str]:
        """Return the files of a driver or an engine that the collection wrote."""
        return [path for path in settings_of(SETTINGS[switch]) if os.path.lexists(self.at(path))]

    def users_of(self, switch: str, instances: Iterable[str]) -> list[str]:
        """Return what else uses a driver or an engine beside these instances, including packages that need them."""
        found = chip_users(instances, self.proc) if switch == DRIVER else self.engines.other_containers()
        names = packages_of(switch, self.packages.installed)
        refusal = self.packages.refusal(names) if names else ""
        return [*found, refusal] if refusal else found

    def services(self) -> dict[str, int]:
        """Return the roles with units of their own on this host, with the bytes of their paths."""
        roles = [service.role for service in SERVICES if os.path.lexists(self.at(service.marker))]
        return {role: sum(self._sizes(fixed_paths(role)).values()) for role in roles}

    def base_paths(self) -> list[str]:
        """Return the files and directories that belong to no instance, in the order of removal."""
        paths = [path for path in fixed_paths("vllm") if path not in (STATE_DIR, CACHE_DIR, CONFIG_DIR)]
        tools = [
            f"{self.site.venv_root}/{name}"
            for name in listed(self.at(self.site.venv_root))
            if name.startswith(("uv-", ".uv-"))
        ]
        # The home of the user, with the marks of a rollout in it, is removed last.
        own = [*tools, *paths, *fixed_paths("rollout"), CACHE_DIR, CONFIG_DIR, STATE_DIR]
        return [path for path in dict.fromkeys(own) if os.path.lexists(self.at(path)) and not self.holds_data(path)]

    def holds_data(self, path: str) -> bool:
        """Return whether the site keeps models, environments or encodings at a path or below it."""
        roots = (self.site.weights_root, self.site.venv_root, self.site.encodings_dir)
        return any((root.rstrip("/") + "/").startswith(path.rstrip("/") + "/") for root in roots)

    def users(self) -> list[str]:
        """Return the user of vLLM if the role made it: a system user whose home is that of the role."""
        try:
            entry = pwd.getpwnam(self.site.user)
        except KeyError:
            return []
        return [entry.pw_name] if entry.pw_dir == STATE_DIR and 0 < entry.pw_uid < 1000 else []

    def processes(self) -> list[UsingProcess]:
        """Return the processes of this host that use weights or environments."""
        tops = (self.site.weights_root, self.site.venv_root)
        return read_processes(map(self.at, tops), self.engines.containers(), self.proc)

    def at(self, path: str) -> str:
        """Return the real path of a path of the host."""
        return self.root + path

    def _installed_uses(self, names: Iterable[str]) -> list[Use]:
        found = []
        for name in names:
            state = self.host.state(name)
            image = state.image.ref if state.image else ""
            found.append(Use(f"instance {name}", name, state.model, state.venv, image))
        return found

    def _kept_uses(self, names: Iterable[str]) -> list[Use]:
        found = []
        for name in names:
            slots = Slots(self.host, name)
            for digest in listed(slots.directory):
                # Even a damaged or unfinished slot has its link to the weights.
                by, model = f"the kept state {digest} of {name}", target_of(f"{slots.directory}/{digest}/model")
                found += [Use(by, name, model=model)] if model else []
            for digest, slot, _damage in slots.all():
                by = f"the kept state {digest} of {name}"
                if slot:
                    image = slot.state.image
                    found.append(Use(by, name, "", slot.state.venv, image.ref if image else ""))
                    found += [Use(by, name, image=image.id)] if image and image.id else []
        return found

    def _process_uses(self, models: Iterable[Model], environments: Iterable[Directory]) -> list[Use]:
        revisions = [each for model in models for each in model.revisions]
        found = []
        for process in self.processes() if revisions or environments else ():
            by, instance = process.description, process.instance
            found += [Use(by, instance, model=each.path) for each in revisions if process.uses(self.at(each.path))]
            found += [Use(by, instance, venv=each.path) for each in environments if process.uses(self.at(each.path))]
        return found

    def _revisions(self, directory: str) -> Iterable[Directory]:
        for name in listed(directory):
            path = os.path.join(directory, name)
            if os.path.islink(path) or not os.path.isdir(path):
                continue
            if _REVISION.fullmatch(name):
                state = COMPLETE if os.path.exists(os.path.join(path, STAMP_NAME)) else FOREIGN
            elif _LEFT.fullmatch(name):
                state = ABANDONED
            else:
                continue
            stays = "the role weights did not publish it" if state == FOREIGN else self._mounted(path)
            yield Directory(name, self._named(path), disk_usage(path), state, stays)

    def _encoding_paths(self) -> list[str]:
        directory = self.site.encodings_dir
        if not os.path.isdir(self.at(directory)) or is_shared(self.at(directory), self.proc):
            return []
        return [
            f"{directory}/{name}"
            for name in listed(self.at(directory))
            if name.lstrip(".").startswith(tuple(ENCODINGS))
        ]

    def rollout(self) -> str:
        """Return a sentence about a rollout that is working on this host, empty without one."""
        turn = turn_of(self.host)
        if turn is not None:
            return f"a rollout is updating this host ({STATE_DIR}/rollout.json)"
        locks = [name for name in listed(self.at(LOCKS_DIR)) if name.endswith(".json")]
        return f"a rollout holds the lock {LOCKS_DIR}/{locks[0]}" if locks else ""

    def _sizes(self, paths: Iterable[str]) -> dict[str, int]:
        return {path: disk_usage(self.at(path)) for path in paths}

    def _mounted(self, path: str) -> str:
        """Return why a directory stays in which something is mounted, empty for none."""
        mount = mount_within(path, self.proc)
        return f"{self._named(mount)} is mounted there" if mount else ""

    def _named(self, path: str) -> str:
        return path[len(self.root) :]


def instance_names(host: Host) -> list[str]:
    """Return the instances with any trace on the host, including remains of a killed removal; sorted."""
    found = set(host.names())
    for directory, pattern in _TRACES:
        found |= {match["name"] for match in map(pattern.fullmatch, listed(host.at(directory))) if match}
    for directory in (STATE_DIR, CACHE_DIR):
        found |= {name for name in listed(host.at(directory)) if os.path.isdir(host.at(f"{directory}/{name}"))}
    return sorted(name for name in found if NAME.match(name))


def instance_paths(name: str) -> list[str]:
    """Return every path of an instance in the order of removal: the role recognises an instance by the last one."""
    return [
        unit_path(name),
        f"{unit_path(name)}.d",
        f"{UNIT_DIR}/multi-user.target.wants/vllm@{name}.service",
        quadlet_path(name),
        f"{quadlet_path(name)}.d",
        f"{CACHE_DIR}/{name}",
        f"{STATE_DIR}/{name}",
        f"{CONFIG_DIR}/{name}.env",
        f"{CONFIG_DIR}/{name}.secrets",
        f"{CONFIG_DIR}/{name}.yaml",
    ]


def disk_usage(path: str) -> int:
    """Return the bytes on disk of a file or directory that have no second name elsewhere; 0 for a missing one."""
    total = _blocks(path)
    for parent, directories, names in walk_tree(path):
        total += sum(_blocks(os.path.join(parent, name)) for name in (*names, *directories))
    return total


def _blocks(path: str) -> int:
    try:
        seen = os.lstat(path)
    except OSError:
        return 0
    return seen.st_blocks * 512 if seen.st_nlink == 1 or os.path.isdir(path) else 0
