# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse a tag that no task of a playbook has: Ansible itself skips every task and reports success."""

import functools
import re
from pathlib import Path
from typing import Any, Mapping

from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.vars.manager import VariableManager

from ...module_utils.common.spelling import misspelt, nearest
from .places import COLLECTION, collection_of, collection_version

# Ansible's own; with each of RUNS some tasks run in any case.
RUNS = frozenset(("all", "always", "tagged", "untagged"))
SPECIAL = RUNS | {"never"}
OWN = "baremetal.inference."


class TagError(ValueError):
    """A run has a tag that its playbooks do not have, or playbooks of another version; the message is the sentence."""


def check_tags(arguments: Mapping[str, Any]) -> None:
    """Raise TagError for a tag of the command line that none of its playbooks has, and for those of another version.

    Playbooks of others are not judged: what they include may have any tags. A tag that is skipped may be in what a
    playbook includes, or stand in ansible.cfg for other projects, so only one that is nearly a tag of ours is refused.
    """
    paths = _playbooks(tuple(arguments.get("args") or ()))
    if any(path.parent not in (root := collection_of(path), root / "playbooks") for path in paths):
        return
    for path in paths:
        version, loaded = _version_of(collection_of(path)), _version_of(COLLECTION)
        if version != loaded:
            way_out = f"run baremetal.inference.{path.stem}, or ansible-playbook in {collection_of(path)}"
            raise TagError(
                f"{path} is of version {version}; roles and plugins are {loaded}, of {COLLECTION}: {way_out}"
            )
    asked = frozenset(arguments.get("tags") or ())
    if not asked & RUNS:
        _refuse_unknown(asked - SPECIAL, paths)
    for tag in sorted(frozenset(arguments.get("skip_tags") or ()) - SPECIAL):
        meant = misspelt(tag, every_tag())
        if meant not in (None, tag):
            raise TagError(f"--skip-tags {tag}: no task has this tag; nearest: {meant!r}")


def _version_of(root: Path) -> str:
    """Return the version of a copy of this collection; one that is not complete may have none."""
    try:
        return collection_version(root)
    except (OSError, KeyError, ValueError):
        return "unknown"


def _playbooks(names: tuple[str, ...]) -> tuple[Path, ...]:
    own = (f"{COLLECTION}/playbooks/{name.removeprefix(OWN)}.yml" if name.startswith(OWN) else name for name in names)
    return tuple(Path(name).resolve() for name in own)


@functools.lru_cache(maxsize=4)
def _refuse_unknown(asked: frozenset[str], playbooks: tuple[Path, ...]) -> None:
    known = set().union(*map(tags_of, playbooks)) if asked else asked
    for tag in sorted(asked - known):
        names = " and ".join(path.name for path in playbooks)
        raise TagError(f"--tags {tag}: no task of {names} has this tag; {nearest(tag, known)}")


@functools.lru_cache(maxsize=1)
def every_tag() -> frozenset[str]:
    """Return the tags of all roles, as their files of tasks spell them."""
    files = COLLECTION.glob("roles/*/tasks/*.yml")
    lists = (tags for file in files for tags in re.findall(r"^ +tags: \[(.+)\]$", file.read_text(), re.M))
    return frozenset(tag for tags in lists for tag in tags.split(", ")) - SPECIAL


def tags_of(playbook: Path) -> set[str]:
    """Return the tags of the tasks that Ansible reads before a run; others are skipped with what includes them."""
    loader = DataLoader()
    plays = Playbook.load(str(playbook), variable_manager=VariableManager(loader), loader=loader).get_plays()
    tasks = [task for play in plays for block in play.compile() for task in block.get_tasks()]
    return {tag for task in tasks for tag in task.tags} - SPECIAL
