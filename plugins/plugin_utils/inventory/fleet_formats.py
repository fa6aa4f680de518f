# SPDX-License-Identifier: GPL-3.0-or-later
"""The three formats of a fleet file, YAML, JSON and CSV, and the line of each host."""

import csv
import hashlib
import io
import json
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Mapping, NoReturn, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..common.yaml_events import DEEPEST, EventReader, EventYamlError

# Accepted titles of the column with the host names.
NAME_COLUMNS = ("name", "host", "inventory_hostname")
MOST_COLUMNS = 1000
# A table holds only text; these variables are numbers.
NUMBERS: Mapping[str, Callable[[str], Any]] = {
    "accelerator_count": int,
    "accelerator_memory_gib": float,
    "accelerator_mec_firmware": int,
    "ansible_port": int,
}


class FleetFileError(ValueError):
    """A fleet file is invalid; the message names the file and the line."""


@dataclass(frozen=True)
class FleetHost:
    """A host of a fleet file; ``where`` is its line, or a function that finds the line on demand."""

    name: str
    variables: dict[str, Any]
    file: str
    where: int | Callable[[], int]

    @property
    def line(self) -> int:
        """Return the line, counted from 1."""
        return self.where if isinstance(self.where, int) else self.where()

    def __str__(self) -> str:
        """Return the file and the line."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class FleetText:
    """The content of a file; ``digest`` changes with it."""

    path: str
    data: bytes

    @property
    def digest(self) -> str:
        """Return the BLAKE2 digest of path and content, 32 hex digits."""
        return hashlib.blake2b(
            self.path.encode("utf-8", "surrogateescape") + b"\0" + self.data, digest_size=16
        ).hexdigest()


def _decoded(text: FleetText) -> str:
    """Return a file's text without the byte order mark that spreadsheets write."""
    if text.data.startswith(b"$ANSIBLE_VAULT;"):
        raise FleetFileError(
            f"{text.path}:1: encrypted with ansible-vault, expected plain data; secrets belong into group_vars"
        )
    try:
        return text.data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = text.data.count(b"\n", 0, exc.start) + 1
        raise FleetFileError(f"{text.path}:{line}: not UTF-8; save it as UTF-8 (spreadsheets: 'CSV UTF-8')") from None


def _read_yaml(text: FleetText) -> list[FleetHost]:
    reader = EventReader()
    content = _decoded(text)
    try:
        document = reader.read(content)
    except EventYamlError as exc:
        raise FleetFileError(f"{text.path}:{exc.line}: {exc}") from None
    return _hosts_of(text, document, lambda name: reader.lines.get(name, 1))


def _read_json(text: FleetText) -> list[FleetHost]:
    content = _decoded(text)
    try:
        document = json.loads(content, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except json.JSONDecodeError as exc:
        raise FleetFileError(f"{text.path}:{exc.lineno}: {exc.msg} (column {exc.colno})") from None
    except _TwiceError:
        key, first, second = _JsonLines(content).twins()
        raise FleetFileError(f"{text.path}:{second}: {key!r} is there twice, first in line {first}") from None
    except ValueError as exc:
        raise FleetFileError(f"{text.path}:1: {exc}") from None
    except RecursionError:
        raise FleetFileError(f"{text.path}:1: nested deeper than {DEEPEST} levels") from None
    lines = _JsonLines(content)
    return _hosts_of(text, document, lines.of_host)


class _TwiceError(ValueError):
    """A JSON object has a key twice."""


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"found {name}, expected a finite number")


class _JsonLines:
    """The lines of the keys of a JSON text; the text is searched once, on the first request."""

    # A string that does not end reaches to the end, so that it is not searched again from each of its quotes.
    _TOKEN = re.compile(r'("(?:[^"\\]|\\[\s\S])*(?:"|\\?\Z))(\s*:)?|[][{}]')

    def __init__(self, content: str) -> None:
        self._content = content
        self._hosts: dict[str, int] | None = None
        self._twins: tuple[str, int, int] | None = None

    def of_host(self, name: Any) -> int:
        """Return the line of a host, counted from 1."""
        self._read()
        return (self._hosts or {}).get(name, 1)

    def twins(self) -> tuple[str, int, int]:
        """Return the first duplicate key of an object, and its two lines."""
        self._read()
        return self._twins or ("", 1, 1)

    def _read(self) -> None:
        if self._hosts is not None:
            return
        self._hosts = {}
        line, seen = 1, 0
        objects: list[dict[str, int]] = [{}]
        for token in self._TOKEN.finditer(self._content):
            key, colon = token.groups()
            if colon:
                line += self._content.count("\n", seen, token.start())
                seen = token.start()
                name = _unescaped(key)
                if name in objects[-1] and self._twins is None:
                    self._twins = name, objects[-1][name], line
                objects[-1][name] = line
                if len(objects) == 3:
                    self._hosts.setdefault(name, line)
            elif key is None and token.group() in "[{":
                objects.append({})
            elif key is None and len(objects) > 1:
                objects.pop()


def _unescaped(key: str) -> str:
    """Return a JSON key with its escapes decoded, or unchanged where that is invalid."""
    try:
        return str(json.loads(key, strict=False)) if "\\" in key else key[1:-1]
    except ValueError:
        return key[1:-1]


def _hosts_of(text: FleetText, document: Any, line_of: Callable[[Any], int]) -> list[FleetHost]:
    """Return the hosts of a YAML or JSON document."""
    if document is None or document == {}:
        return []
    if not isinstance(document, dict) or "hosts" not in document:
        keys = f" the key {show_value(next(iter(document)))}" if isinstance(document, dict) else ""
        raise FleetFileError(f"{text.path}:1: found{keys or ' no mapping'}, expected 'hosts', a mapping of names")
    for key in document:
        if key != "hosts":
            raise FleetFileError(f"{text.path}:1: unknown key {show_value(key)}; {nearest(str(key), ['hosts'])}")
    hosts = document["hosts"]
    if hosts is None:
        return []
    if not isinstance(hosts, dict):
        raise FleetFileError(f"{text.path}:1: hosts: expected a mapping of names to variables")
    found = []
    for name, variables in hosts.items():
        if not isinstance(name, str):
            raise FleetFileError(
                f"{text.path}:{line_of(name)}: found {show_value(name)} as the name of a host, expected a text; put it "
                "in quotes"
            )
        if variables is not None and not isinstance(variables, dict):
            raise FleetFileError(
                f"{text.path}:{line_of(name)}: host {name[:80]!r}: expected variables, like accelerator: h200"
            )
        found.append(FleetHost(name, variables or {}, text.path, partial(line_of, name)))
    return found


def _read_csv(text: FleetText) -> list[FleetHost]:
    """Return the hosts of a table; an empty cell sets no variable."""
    content = _decoded(text)
    header, _newline, _rest = content.partition("\n")
    # Spreadsheets in many countries use semicolons as separators.
    delimiter = max(",;\t", key=header.count)
    rows = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
    hosts: list[FleetHost] = []
    columns: list[str] = []
    try:
        for row in rows:
            line = rows.line_num
            if not any(cell.strip() for cell in row):
                continue
            if columns:
                hosts.append(_row(text, columns, row, line))
            else:
                columns = _columns(text, row, line)
    except csv.Error as exc:
        raise FleetFileError(f"{text.path}:{rows.line_num}: {exc}") from None
    return hosts


def _columns(text: FleetText, row: Sequence[str], line: int) -> list[str]:
    columns = [cell.strip() for cell in row]
    if len(columns) > MOST_COLUMNS:
        raise FleetFileError(f"{text.path}:{line}: found {len(columns)} columns, expected up to {MOST_COLUMNS}")
    names = [column for column in columns if column in NAME_COLUMNS]
    if len(names) != 1:
        shown = _join_columns(columns)
        raise FleetFileError(
            f"{text.path}:{line}: found the columns {shown}; expected one of them to be 'name', the host's"
        )
    for number, column in enumerate(columns):
        if not column or column in columns[:number]:
            what = f"the column {_join_columns([column])!r} twice" if column else "a column without a name"
            raise FleetFileError(f"{text.path}:{line}: found {what}")
    return columns


def _join_columns(columns: Sequence[str]) -> str:
    """Return column titles in one line that is safe for a terminal."""
    text = ", ".join(columns)[:200]
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _row(text: FleetText, columns: Sequence[str], row: Sequence[str], line: int) -> FleetHost:
    if len(row) != len(columns):
        raise FleetFileError(
            f"{text.path}:{line}: found {len(row)} cells, expected {len(columns)} ({_join_columns(columns)}); "
            "a cell with a separator in it needs quotes"
        )
    cells = {column: cell.strip() for column, cell in zip(columns, row)}
    name = next(cells.pop(column) for column in NAME_COLUMNS if column in cells)
    if not name:
        raise FleetFileError(f"{text.path}:{line}: no name in this row")
    variables = {column: _typed(column, cell) for column, cell in cells.items() if cell}
    return FleetHost(name, variables, text.path, line)


def _typed(column: str, cell: str) -> Any:
    """Return a cell in the type of its variable; an invalid number stays a text, and sorting reports it."""
    if column not in NUMBERS or not re.match(r"[-+0-9.]{1,15}\Z", cell):
        return cell
    try:
        return NUMBERS[column](cell)
    except ValueError:
        return cell


# By the suffix of the file name.
READERS: Mapping[str, Callable[[FleetText], list[FleetHost]]] = {
    ".yml": _read_yaml,
    ".yaml": _read_yaml,
    ".json": _read_json,
    ".csv": _read_csv,
}
