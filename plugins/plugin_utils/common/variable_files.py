# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what is wrong with a file of variables where Ansible's own error has neither the line nor the key."""

import contextlib
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

import yaml

from ...module_utils.common.kinds import name_kind, show_value

# Levels of lists and mappings in a variable; Python follows a few hundred.
DEEPEST = 100
TOO_DEEP = f"found more than {DEEPEST} levels of lists and mappings, expected fewer"
# Of a value in a message.
_SHOWN = 80
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What YAML takes a value without quotes for.
_READ_AS = {"timestamp": "a date", "int": "a number", "float": "a number"}


class Fault(NamedTuple):
    """A mistake in a file, with its place where it has one; lines and columns count from 1."""

    text: str
    line: int = 1
    column: int = 1


def doubled_key(text: str) -> Fault | None:
    """Return a key that stands twice in a mapping, None where there is none or PyYAML cannot read the file.

    Ansible's own check also takes a key for doubled that overrides one of an anchor (``<<``).
    """
    waiting: list[yaml.Node | None] = []
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        waiting.append(yaml.compose(text, _LOADER))
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        keys: set[tuple[str, str]] = set()
        for entry in node.value:
            name, value = entry if isinstance(entry, tuple) else (None, entry)
            waiting.append(value)
            if isinstance(name, yaml.ScalarNode) and not name.tag.endswith(":merge"):
                if (name.tag, name.value) in keys:
                    return Fault(
                        f"found the key {show_value(name.value[:_SHOWN])} twice, expected it once", *_place(name)
                    )
                keys.add((name.tag, name.value))
    return None


def fault_of(text: str) -> Fault | None:
    """Return what PyYAML cannot read, or Ansible cannot use, in a file of variables; None where nothing is found."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except RecursionError:
        return Fault(TOO_DEEP)
    except yaml.YAMLError:
        return None  # Ansible names its place
    if not isinstance(root, (yaml.MappingNode, type(None))):
        is_list = isinstance(root, yaml.SequenceNode)
        return Fault(f"found {name_kind([] if is_list else '')}, expected a mapping of variables", *_place(root))
    return next(_unreadable(root), None)


def deep_variable(variables: Mapping[str, Any]) -> str | None:
    """Return the name of a variable with more than DEEPEST levels, None without one."""
    for name, value in variables.items():
        level = [value]
        for _number in range(DEEPEST):
            # Once each, because an alias repeats a value without end.
            children = (child for each in level for child in _children(each) if isinstance(child, (dict, list)))
            level = list({id(child): child for child in children}.values())
            if not level:
                break
        if level:
            return name
    return None


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _unreadable(root: yaml.Node | None) -> Iterator[Fault]:
    """Yield a fault for each date or number that is none, such as 2027-02-30."""
    constructor = yaml.SafeLoader("")
    waiting: list[tuple[yaml.Node, str]] = [(root, "")] if root else []
    seen: set[int] = set()
    while waiting:
        node, key = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            try:
                constructor.construct_object(node)
            except yaml.YAMLError:
                continue  # a tag of Ansible's, such as !vault
            except ValueError:
                kind = _READ_AS.get(node.tag.rpartition(":")[2], "what its tag says")
                found = f"{key}: found {show_value(node.value[:_SHOWN])}, which cannot be read as {kind}"
                yield Fault(f"{found}; correct it, or put it in quotes", *_place(node))
        elif id(node) not in seen:
            seen.add(id(node))
            waiting += reversed(list(_entries(node, key)))


def _entries(node: yaml.Node, key: str) -> Iterator[tuple[yaml.Node, str]]:
    """Yield the values in a list or a mapping, each with its place as messages name it."""
    if isinstance(node, yaml.SequenceNode):
        for number, entry in enumerate(node.value):
            yield entry, f"{key}[{number}]"
    elif isinstance(node, yaml.MappingNode):
        for name, entry in node.value:
            yield name, f"{key}: a key" if key else "a key"
            yield entry, f"{key}.{name.value}" if key else str(name.value)


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
