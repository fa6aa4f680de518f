# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds what names a file of the controller, or a host, in roles and playbooks, and the answers of hosts in it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import yaml

TOP = Path(__file__).resolve().parents[2]
BLOCKS = ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")
# What reads a file of the controller, and with which keys; the empty one is a text in place of the options.
PATHS = {
    "assemble": ("src",), "copy": ("src",), "fetch": ("dest",), "import_playbook": ("",), "script": ("", "cmd"),
    "import_role": ("name", "tasks_from"), "import_tasks": ("", "file"), "include_tasks": ("", "file"),
    "include_role": ("name", "tasks_from", "vars_from", "defaults_from", "handlers_from"),
    "include_vars": ("", "file", "dir"), "template": ("src",), "unarchive": ("src",),
}  # fmt: skip
_LOOKUP = re.compile(
    r"\b(?:lookup|query|q)\(\s*'(?:ansible\.builtin\.)?(?:file|fileglob|first_found|lines|pipe|template|unvault|url|vars)'"
)
_NAME = re.compile(r"\b[a-z_]\w*\b")
# What a host answers without being asked by name.
OF_HOSTS = {"ansible_facts", "ansible_local", "hostvars"}


class Loader(yaml.SafeLoader):
    """Reads a task file; a value with a tag, such as a secret, names no path."""


Loader.add_multi_constructor("!", lambda _loader, _tag, _node: "")


class Use(NamedTuple):
    """What names a file of the controller or a host: the task's file, the key, and the text with that of its loop."""

    file: str
    key: str
    text: str


def files() -> list[Path]:
    return sorted([*TOP.glob("roles/*/*/**/*.yml"), *TOP.glob("playbooks/**/*.yml"), TOP / "site.yml"])


@lru_cache(maxsize=None)
def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader)


def tasks_of(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the tasks, blocks and plays of a document."""
    for entry in node if isinstance(node, list) else []:
        if isinstance(entry, dict):
            yield entry
            for key in BLOCKS:
                yield from tasks_of(entry.get(key))


def texts_of(node: Any) -> Iterator[str]:
    """Yield the texts of a value."""
    if isinstance(node, dict):
        for value in node.values():
            yield from texts_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts_of(value)
    elif isinstance(node, str):
        yield node


def uses() -> Iterator[Use]:
    """Yield each template that names a file of the controller or the host of a task."""
    for path in files():
        name = path.relative_to(TOP).as_posix()
        document = read(path)
        if isinstance(document, dict):
            yield from (Use(name, "lookup", text) for text in texts_of(document) if _LOOKUP.search(text))
        for task in tasks_of(document):
            loop = f" of {task['loop']}" if "loop" in task else ""
            yield from (Use(name, key, text + loop) for key, text in _named(task) if "{{" in text)


def _named(task: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a task names, with the keys."""
    for key, value in task.items():
        kind = key.rpartition(".")[2]
        given = value if isinstance(value, dict) else {"": value}
        if kind in PATHS and not given.get("remote_src"):
            yield from ((kind, str(given[option])) for option in PATHS[kind] if option in given)
        if key in ("delegate_to", "vars_files"):
            yield from ((key, text) for text in texts_of(value))
        if key not in BLOCKS:
            yield from (("lookup", text) for text in texts_of(value) if _LOOKUP.search(text))


def is_of_controller(module: str) -> bool:
    """Return whether a module of the collection only decides on the controller."""
    path = TOP / "plugins/action" / f"{module.rpartition('.')[2]}.py"
    is_own = module.startswith("baremetal.inference.") and path.exists()
    return (
        is_own
        and "_execute_module" not in (source := path.read_text(encoding="utf-8"))
        and "CheckedModule" not in source
    )


@lru_cache(maxsize=None)
def answered() -> frozenset[str]:
    """Return the names that tasks register from answers of hosts."""
    found = set()
    for task in (task for path in files() for task in tasks_of(read(path)) if "register" in task):
        modules = [key for key in task if "." in key]
        if task.get("delegate_to") != "localhost" and not all(map(is_of_controller, modules)):
            found.add(task["register"])
    return frozenset(found)


@lru_cache(maxsize=None)
def variables() -> dict[str, set[str]]:
    """Return the names in the templates of each variable of roles, playbooks and tasks."""
    found: dict[str, set[str]] = {}
    for path in files():
        document = read(path)
        given = [document] if isinstance(document, dict) else [task.get("vars") or {} for task in tasks_of(document)]
        for name, value in ((name, value) for each in given for name, value in each.items()):
            found.setdefault(str(name), set()).update(*(names_in(text) for text in texts_of(value)))
    return found


def names_in(text: str) -> set[str]:
    """Return the words in the templates of a text, without those in quotes."""
    inside = " ".join(re.findall(r"\{\{.*?\}\}|\{%.*?%\}|(?<= of ).*", text, re.DOTALL))
    return set(_NAME.findall(re.sub(r"'[^']*'|\"[^\"]*\"", "", inside)))


def from_hosts(text: str) -> set[str]:
    """Return which answers of hosts are a part of a text, through the variables that it names."""
    seen: set[str] = set()
    todo = names_in(text)
    while todo:
        seen |= todo
        todo = set().union(*(variables().get(name, set()) for name in todo)) - seen
    return seen & (answered() | OF_HOSTS)
