# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a client in a YAML file of the inventory: add and remove them, and leave everything else as it is.

People write these files, with comments and in their own style. So the text is edited, and the result is read again: it
must have the one change, and nothing else.
"""

import json
import re
from typing import Any, Callable, Mapping

import yaml

from ..common.yaml import load_yaml

VARIABLE = "gateway_clients"
# The variable in any style.
NAMED = re.compile(rf"""(?m)^[ \t]*["']?{VARIABLE}["']?[ ]*:""")
_HEAD = re.compile(rf"( *){VARIABLE}:[ ]*(?:(\{{[ ]*\}}|null|~)[ ]*)?(#.*)?$")


class NotEditableError(ValueError):
    """A file has the clients in a form that is not edited; the message gives the reason."""


class _Loader(yaml.SafeLoader):
    """Reads values of Ansible's own kinds, such as !vault, as what they are."""


_Loader.add_multi_constructor("!", lambda _loader, tag, node: (tag, str(node.value)))


def client_line(name: str, entry: Mapping[str, Any]) -> str:
    """Return a client as a line of YAML, without its indentation."""
    parts = [f"{key}: {_value(value)}" for key, value in entry.items()]
    return f"{_value(name)}: {{{', '.join(parts)}}}"


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        # A sha256 of digits only would be read as a number.
        return f"[{', '.join(json.dumps(part) for part in value)}]"
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:+-]*", value) and yaml.safe_load(f"[{value}]") == [value]
    return value if plain else json.dumps(value)


def names_in(text: str) -> list[str]:
    """Return the names of the clients in a file. Raises NotEditableError."""
    return [str(name) for name in _clients_of(_read(text))]


def with_client(text: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return a file with one more client, behind the others. Raises NotEditableError."""
    line = client_line(name, entry)
    lines = text.splitlines(keepends=True)
    head, end, indent = _block(lines)
    margin = lines[head][: len(lines[head]) - len(lines[head].lstrip(" "))]
    # Of {} in the line of the variable only the comment remains.
    found = _HEAD.match(lines[head].rstrip("\r\n"))
    comment = f"  {found[3]}" if found and found[3] else ""
    ending = "\r\n" if lines[head].endswith("\r\n") else "\n"
    lines[head] = f"{margin}{VARIABLE}:{comment}{ending}"
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += ending
    new = "".join([*lines[:end], f"{indent}{line}{ending}", *lines[end:]])
    return _checked(text, new, lambda clients: {**clients, **load_yaml(line)})


def without_client(text: str, name: str) -> str:
    """Return a file without a client. Raises NotEditableError."""
    lines = text.splitlines(keepends=True)
    head, end, indent = _block(lines)
    begins = re.compile(rf"""{indent}(["']?){re.escape(name)}\1[ ]*:""")
    starts = [number for number in range(head + 1, end) if begins.match(lines[number])]
    if len(starts) != 1:
        raise NotEditableError(f"{VARIABLE} has no line that begins with {name}")
    stop = starts[0] + 1
    while stop < end and (_is_filler(lines[stop]) or _indent(lines[stop]) > len(indent)):
        stop += 1
    while stop > starts[0] + 1 and _is_filler(lines[stop - 1]):
        stop -= 1
    kept = [*lines[: starts[0]], *lines[stop:]]
    if all(_is_filler(line) for line in kept[head + 1 : end - (stop - starts[0])]):
        kept[head] = kept[head].replace(f"{VARIABLE}:", f"{VARIABLE}: {{}}", 1)
    return _checked(text, "".join(kept), lambda clients: {key: clients[key] for key in clients if str(key) != name})


def _block(lines: list[str]) -> tuple[int, int, str]:
    """Return the line of the variable, the one behind its last client, and the indentation of clients."""
    heads = [number for number, line in enumerate(lines) if NAMED.match(line)]
    found = _HEAD.match(lines[heads[0]].rstrip("\r\n")) if len(heads) == 1 else None
    if not found:
        raise NotEditableError(f"{VARIABLE} is not a mapping with one line or more for each client")
    head = end = heads[0]
    for number in range(head + 1, len(lines)):
        if _is_filler(lines[number]):
            continue
        if _indent(lines[number]) <= len(found[1]):
            break
        end = number
    first = next((line for line in lines[head + 1 : end + 1] if not _is_filler(line)), None)
    return head, end + 1, " " * (_indent(first) if first else len(found[1]) + 2)


def _is_filler(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _checked(old: str, new: str, change: Callable[[dict[Any, Any]], dict[Any, Any]]) -> str:
    """Return ``new`` if it is ``old`` with a change of the clients and nothing else. Raises NotEditableError."""
    before = _read(old)
    requested = _replaced(before, change(dict(_clients_of(before))))
    if _read(new) != requested:
        raise NotEditableError(f"{VARIABLE} has a form that cannot be edited line by line")
    return new


def _read(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, RecursionError) as exc:
        raise NotEditableError("the file cannot be read as one document of YAML") from exc


def _clients_of(value: Any) -> Mapping[Any, Any]:
    """Return the clients in a document, which has the variable once; an empty mapping for an empty value."""
    found = [entry for mapping in _mappings(value) for key, entry in mapping.items() if key == VARIABLE]
    if len(found) != 1 or not isinstance(found[0] or {}, dict):
        raise NotEditableError(f"{VARIABLE} is not one mapping of names")
    return found[0] or {}


def _mappings(value: Any) -> list[dict[Any, Any]]:
    if isinstance(value, dict):
        return [value, *(found for entry in value.values() for found in _mappings(entry))]
    return [found for entry in value for found in _mappings(entry)] if isinstance(value, list) else []


def _replaced(value: Any, clients: dict[Any, Any]) -> Any:
    if isinstance(value, dict):
        return {key: clients if key == VARIABLE else _replaced(entry, clients) for key, entry in value.items()}
    return [_replaced(entry, clients) for entry in value] if isinstance(value, list) else value
