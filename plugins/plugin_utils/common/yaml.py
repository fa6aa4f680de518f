# SPDX-License-Identifier: GPL-3.0-or-later
"""Read YAML written by users: plain values only, and no duplicate keys. Write it as linters expect it."""

from pathlib import Path
from typing import Any, Mapping

import yaml

from .yaml_events import EventReader, EventYamlError

# A file of a user; the largest of the collection has 0.07 MB.
MOST_BYTES = 8_000_000


class _Dumper(yaml.SafeDumper):
    """Indents lists inside mappings, as yamllint and ansible-lint expect it."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  PyYAML's signature
        super().increase_indent(flow, False)


class _Literal(str):
    """A text that Ansible evaluates nothing in."""

    __slots__ = ()


_Dumper.add_representer(_Literal, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text)))


class UnreadableError(ValueError):
    """A file cannot be read as YAML; the message names the file and is the whole sentence for the user."""


def read_yaml(path: Path) -> Any:
    """Return the plain values in a file. Raises UnreadableError."""
    try:
        # A pipe or a device would not end.
        if path.exists() and not path.is_file():
            raise UnreadableError(f"{path}: cannot be read: it is not a file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UnreadableError(f"{path}: cannot be read: it has more than {MOST_BYTES:,} bytes")
        return load_yaml(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise UnreadableError(f"{path}: cannot be read: {exc}") from exc
    except EventYamlError as exc:
        raise UnreadableError(f"{path}: cannot be read: {exc.with_place()}") from exc


def load_yaml(text: str) -> Any:
    """Return the plain values of a document; a date stays a text. Raises EventYamlError, also for a duplicate key."""
    return EventReader().read(text)


def literal(value: Any) -> Any:
    """Return plain values of somebody else for a file of Ansible: what would be a template there gets !unsafe."""
    if isinstance(value, Mapping):
        return {key: literal(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [literal(entry) for entry in value]
    return _Literal(value) if isinstance(value, str) and is_template(value) else value


def is_template(text: str) -> bool:
    """Return whether Ansible would evaluate something in a text."""
    return any(mark in text for mark in ("{{", "{%", "{#"))


def dump_yaml(value: Any) -> str:
    """Return plain values as a YAML document in block style; keys keep their order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return text
