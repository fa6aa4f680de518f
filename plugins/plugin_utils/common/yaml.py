# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read YAML written by users: plain values only, and no duplicate keys. Write it as linters expect it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Hashable

import yaml

from ...module_utils.common.kinds import show_value

# The C parser is ten times as fast.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Refuses a duplicate key, because plain YAML would silently drop the first one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _value in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"found {show_value(key)} as a key, expected a text; put a value with braces in quotes",
                    key_node.start_mark,
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {show_value(key)} is there twice", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


class _Dumper(yaml.SafeDumper):
    """Indents lists inside mappings, as yamllint and ansible-lint expect it."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  PyYAML's signature
        super().increase_indent(flow, False)


class UnreadableError(ValueError):
    """A file cannot be read as YAML; the message names the file and is the whole sentence for the user."""


def read_yaml(path: Path) -> Any:
    """Return the plain values in a file. Raises UnreadableError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UnreadableError(f"{path}: cannot be read: {exc}") from exc
    try:
        return load_yaml(text)
    except yaml.YAMLError as exc:
        raise UnreadableError(f"{path}: cannot be read: {yaml_problem(exc, text)}") from exc


def load_yaml(text: str) -> Any:
    """Return the plain values of a document. Raises yaml.YAMLError, also for a duplicate key."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)


def dump_yaml(value: Any) -> str:
    """Return plain values as a YAML document in block style; keys keep their order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return text


def yaml_problem(exc: yaml.YAMLError, text: str) -> str:
    """Return the fault of a document and its place, in one line; ``text`` is the document."""
    mark = getattr(exc, "problem_mark", None)
    if mark is None:
        return " ".join(str(exc).split())
    line = text.splitlines()[mark.line : mark.line + 1]
    tab = bool(line) and "\t" in line[0][: mark.column + 1]
    problem = "found a tab, YAML is indented with spaces" if tab else getattr(exc, "problem", None)
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})"
