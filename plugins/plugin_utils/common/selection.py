# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse a selection of no host: Ansible itself skips its plays and reports success."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

from ansible import constants
from ansible.inventory.manager import InventoryManager, split_host_pattern

from ...module_utils.common.spelling import misspelt
from .group_names import KINDS, PURPOSES, meant_group, misspelt_groups
from .inventory_files import BESIDE, SUFFIXES, passed_over
from .tables import by_name, hosts_in_words

Groups = Mapping[str, Sequence[str]]

# Groups that an error lists where no name is near.
SHOWN = 12
_GLOB = re.compile(r"[*?\[~]")


# Selections that have hosts, with the number of all hosts: plays ask again, and 10,000 hosts take a second.
_CHECKED: set[tuple[Selection, int]] = set()


class SelectionError(ValueError):
    """No host is selected, or a name in the inventory is misspelt; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Selection:
    """The pattern of a play: the ``option`` that a user sets it with ("" where there is none), and the run's limit.

    ``also`` is the pattern of other plays of the same playbook, to which the limit may lead.
    """

    pattern: str
    option: str = ""
    is_default: bool = True
    limit: str = ""
    also: str = ""

    def check(self, groups: Groups, loader: Any) -> None:
        """Raise SelectionError where no host of the inventory's ``groups`` is selected, or a name in it is unknown."""
        checked = (self, len(groups.get("all") or ()))
        if checked in _CHECKED or (not self.limit and groups.get(self.pattern)):
            return
        self._check_names(groups)
        inventory = _inventory(groups, loader)
        if not inventory.get_hosts(self.pattern):
            raise SelectionError(self._without_hosts(groups))
        inventory.subset(self.limit or None)
        if not inventory.get_hosts(self.pattern) and not (self.also and inventory.get_hosts(self.also)):
            raise SelectionError(self._outside_limit())
        _CHECKED.add(checked)

    def _check_names(self, groups: Groups) -> None:
        """Raise SelectionError for a name that is neither a group nor a host; Ansible ignores it with a warning."""
        if self.is_default:
            return
        if not self.pattern.strip():
            raise SelectionError(f"{self.option}: found an empty text, expected hosts or groups; leave it out for all")
        names = [part.lstrip("!&") for part in split_host_pattern(self.pattern)]
        known = {*groups, *(groups.get("all") or ()), *constants.LOCALHOST}
        unknown = [name for name in names if name not in known and not _GLOB.search(name)]
        if unknown:
            near = _near(unknown[0], groups)
            raise SelectionError(f"{self.option}: no host or group of the inventory is called {unknown[0]!r}; {near}")

    def _without_hosts(self, groups: Groups) -> str:
        if not groups.get("all"):
            return "the inventory has no host: name an inventory with -i, or add hosts to it"
        if self.is_default:
            other = f", or name others with -e {self.option}=PATTERN" if self.option else ""
            near = difflib.get_close_matches(self.pattern, [name for name in groups if name != self.pattern], 1, 0.8)
            hint = f"; nearest: {near[0]!r}" if near else ""
            return f"no host of the inventory is in the group {self.pattern!r}: put hosts into it{other}{hint}"
        return f"{self.option}: no host of the inventory matches {self.pattern!r}; name other hosts or groups"

    def _outside_limit(self) -> str:
        if self.pattern in constants.LOCALHOST:
            return f"-l {self.limit}: this playbook runs on the controller only; run it without -l"
        other = f"-l or -e {self.option}=PATTERN" if self.option else "-l"
        return (
            f"-l {self.limit}: none of these hosts is in {self.pattern!r}, where this playbook runs; name others with "
            f"{other}"
        )


def check_inventory(groups: Groups, sources: Sequence[str], strict: bool) -> list[str]:
    """Return warnings of groups, and of files beside the inventory's ``sources``, that nothing reads.

    With ``strict``, raises SelectionError for a group, or a file of one, whose name misspells one of the collection,
    and for the file of a host that is spelt otherwise.
    """
    wrong = [
        f"no playbook reads the group {group!r} of the inventory, with {hosts_in_words(by_name(groups[group]), 3)}; "
        f"nearest: {meant!r}"
        for group, meant in misspelt_groups(groups).items()
    ]
    warnings = []
    places = {Path(source) if Path(source).is_dir() else Path(source).parent for source in sources if "," not in source}
    hosts = {_plain(host): host for host in groups.get("all", ())}
    own = {name for place in places for path in place.glob(f"{BESIDE[1]}/*") for name in (path.stem, path.name)}
    for folder in sorted(place / beside for place in places for beside in BESIDE):
        kind = folder.name.partition("_")[0]
        known = {*groups} if kind == "group" else {*groups.get("all", ()), *constants.LOCALHOST}
        paths = sorted(path for path in folder.glob("[!.]*") if not path.name.endswith("~"))
        over = passed_over(paths, known)
        warnings += [f"{path}: {why}" for path, why in over.items()]
        left = []
        for path in paths:
            name = path.stem if path.is_file() else path.name
            # Ansible also reads a file without an ending, such as gpu-1.example.com.
            if {name, path.name} & known or path in over:
                continue
            meant = meant_group(name) if kind == "group" else None
            same = hosts.get(_plain(name)) if kind == "host" else None
            near = meant or same or misspelt(name, known)
            text = f"{path}: the inventory has no {kind} {name!r}; nearest: {near!r}"
            # With a file of the host's own, this one may be of a host in another inventory.
            if meant in PURPOSES or {same} - {None, *own}:
                wrong.append(text)
            # gpu-12 may be a host that has left, and accel_h200 one that comes.
            elif near and re.sub(r"\d+", "", near) != re.sub(r"\d+", "", name) and not name.startswith(f"{KINDS[0]}_"):
                warnings.append(f"{text}; nothing reads the file")
            elif kind == "host" and path.suffix in SUFFIXES:
                left.append(path.name)
        if left:
            listed = hosts_in_words(left, 3)
            warnings.append(f"{folder}: nothing reads {listed}: the inventory has no host of this name")
    if strict and wrong:
        raise SelectionError(wrong[0])
    return wrong + warnings


def _plain(name: str) -> str:
    """Return what GPU_A_01, gpu-a-01 and gpu-a-1 have in common."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", name.lower().replace("_", "-"))


def _near(name: str, groups: Groups) -> str:
    """Return the nearest name, else some of the groups: a list of all hosts may have thousands."""
    close = difflib.get_close_matches(name.lower(), {*groups, *(groups.get("all") or ())}, n=1)
    if close:
        return f"nearest: {close[0]!r}"
    listed = sorted(set(groups) - {"ungrouped"})
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"the groups are {', '.join(listed[:SHOWN])}{more}"


def _inventory(groups: Groups, loader: Any) -> InventoryManager:
    """Return what Ansible's own reading of patterns needs: the hosts of each group."""
    manager = InventoryManager(loader, parse=False)
    for group, hosts in groups.items():
        manager.add_group(group)
        for host in hosts:
            manager.add_host(host, group=group)
    return manager
