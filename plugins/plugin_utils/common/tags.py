# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse a tag that no task of a playbook has: Ansible itself skips every task and reports success."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Mapping

from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.vars.manager import VariableManager

from ...module_utils.common.spelling import nearest
from .places import COLLECTION

# Ansible's own.
SPECIAL = frozenset(("all", "always", "never", "tagged", "untagged"))
OWN = "baremetal.inference."


class TagError(ValueError):
    """A run is limited by a tag that its playbooks do not have; the message is the whole sentence for the user."""


def check_tags(arguments: Mapping[str, Any]) -> None:
    """Raise TagError for a tag of the command line that is in none of its playbooks.

    Playbooks of others are not judged: what they include may have any tags. With `always` the run is not empty.
    """
    for option in ("tags", "skip_tags"):
        asked = frozenset(arguments.get(option) or ()) - SPECIAL
        if asked and "always" not in arguments[option]:
            _refuse_unknown(f"--{option.replace('_', '-')}", asked, tuple(arguments.get("args") or ()))


@functools.lru_cache(maxsize=4)
def _refuse_unknown(option: str, asked: frozenset[str], playbooks: tuple[str, ...]) -> None:
    files = [
        f"{COLLECTION}/playbooks/{name.removeprefix(OWN)}.yml" if name.startswith(OWN) else name for name in playbooks
    ]
    paths = [Path(name).resolve() for name in files]
    if not {path.parent for path in paths} <= {COLLECTION, COLLECTION / "playbooks"}:
        return
    known = set().union(*map(tags_of, paths))
    for tag in sorted(asked - known):
        names = " and ".join(path.name for path in paths)
        raise TagError(f"{option} {tag}: no task of {names} has this tag; {nearest(tag, known)}")


def tags_of(playbook: Path) -> set[str]:
    """Return the tags of the tasks that Ansible reads before a run; others are skipped with what includes them."""
    loader = DataLoader()
    plays = Playbook.load(str(playbook), variable_manager=VariableManager(loader), loader=loader).get_plays()
    tasks = [task for play in plays for block in play.compile() for task in block.get_tasks()]
    return {tag for task in tasks for tag in task.tags} - SPECIAL
