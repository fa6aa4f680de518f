# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read fleet files: the lists of hosts that people keep, as YAML, JSON or CSV. Nobody vouches for what is in them."""

from __future__ import annotations

import csv
import glob
import hashlib
import io
import ipaddress
import json
import keyword
import math
import os
import re
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Mapping, NoReturn, Sequence

from ansible import constants, context
from ansible.inventory.manager import IGNORED
from ansible_collections.baremetal.inference.plugins.module_utils._names import misspelt, nearest
from ansible_collections.baremetal.inference.plugins.plugin_utils._event_yaml import (
    DEEPEST,
    LARGEST_NUMBER,
    LONG_TEXT,
    EventReader,
    EventYamlError,
)

# 100,000 hosts with ten variables each are 20 MB.
LARGEST = 64 * 1024 * 1024
LONGEST_TEXT = 64 * 1024
# Values of one host, with what aliases stand for. Ansible copies and prints them all, again and again.
MOST_VALUES = 10_000

# How the column with the hosts' names may be called.
NAME_COLUMNS = ("name", "host", "inventory_hostname")
# A table holds nothing but texts: these variables are numbers.
NUMBERS: Mapping[str, Callable[[str], Any]] = {
    "accelerator_count": int,
    "accelerator_memory_gib": float,
    "accelerator_mec_firmware": int,
    "ansible_port": int,
}
# Variables that the plugin reads, and what they are misspelt from.
KNOWN = (
    "accelerator", "accelerator_bmc", "accelerator_count", "accelerator_cuda_version", "accelerator_driver_version",
    "accelerator_mec_firmware", "accelerator_memory_gib", "accelerators", "cluster", "site",
)  # fmt: skip
# Variables that the plugin sets, and secrets, which would be in every cache and listing.
REFUSED = {
    "accelerator_conflict": "the plugin sets it",
    "accelerator_detected": "the plugin sets it",
    "accelerator_discovered_at": "the plugin sets it",
    "accelerator_mixed": "the plugin sets it",
    "accelerator_stale": "the plugin sets it",
    "accelerator_bmc_password": "a password belongs into a vaulted file of group_vars or host_vars",
}

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\Z")
_GROUPS = ("all", "ungrouped")


class FleetFileError(ValueError):
    """A fleet file cannot be used; the message names the file and the line."""


@dataclass(frozen=True)
class FleetHost:
    """A host of a fleet file; ``where`` is its line, or finds that when somebody asks."""

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
    """What a file holds; ``digest`` tells whether it has changed."""

    path: str
    data: bytes

    @property
    def digest(self) -> str:
        """Return the BLAKE2 digest of path and content, 32 hex digits."""
        return hashlib.blake2b(
            self.path.encode("utf-8", "surrogateescape") + b"\0" + self.data, digest_size=16
        ).hexdigest()


def find_files(patterns: Sequence[str], directory: str) -> tuple[list[str], list[str]]:
    """Return the files for names and globs relative to ``directory``, in order and each once, and warnings.

    A glob that matches nothing is a warning; a plain name is kept as it is, so that reading it says what is wrong.
    """
    files: list[str] = []
    warnings = []
    for pattern in patterns:
        if "\0" in pattern:
            raise FleetFileError(f"fleet_files: found {pattern!r}, which cannot be the name of a file")
        path = os.path.normpath(os.path.join(directory, os.path.expanduser(pattern)))
        found = sorted(glob.glob(path, recursive=True)) if glob.has_magic(pattern) else [path]
        if not found:
            warnings.append(f"fleet_files: no file matches {path}")
        files += [name for name in found if name not in files]
    return files, warnings


def load_text(path: str) -> FleetText:
    """Return a file's content. Raises FleetFileError for what is no file, cannot be read or is far too large."""
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if not stat.S_ISREG(mode):
                kind = "directory" if stat.S_ISDIR(mode) else "device, pipe or socket"
                raise FleetFileError(f"{path}: found a {kind}, expected a file")
            data = stream.read(LARGEST + 1)
    except OSError as exc:
        raise FleetFileError(f"{path}: cannot be read: {exc.strerror or exc}") from None
    if len(data) > LARGEST:
        raise FleetFileError(f"{path}: larger than {LARGEST >> 20} MiB; split it, fleet_files takes a list")
    return FleetText(path, data)


def _open_at_once(path: str, flags: int) -> int:
    # A pipe without a writer must not hold up the run. Python refuses a directory itself only after this.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def read_fleet(texts: Sequence[FleetText]) -> tuple[list[FleetHost], list[str]]:
    """Return the hosts of all files, and warnings. Raises FleetFileError, also for a host that is there twice."""
    places: dict[str, FleetHost] = {}
    warnings: list[str] = []
    checker = _Checker()
    for text in texts:
        reader = _READERS.get(Path(text.path).suffix.lower())
        if reader is None:
            raise FleetFileError(f"{text.path}: expected a name that ends in {', '.join(sorted(_READERS))}")
        hosts = reader(text)
        if not hosts:
            warnings.append(f"{text.path}: no hosts in it")
        for host in hosts:
            checker.check(host)
            if places.setdefault(host.name, host) is not host:
                _fail(host, f"host {host.name!r} is in {places[host.name]} too; leave it in one of them")
    return list(places.values()), warnings + checker.warnings


def kept_fleet(data: Any) -> tuple[list[FleetHost], list[str]]:
    """Return hosts and warnings from the inventory cache. Raises ValueError or TypeError for anything else."""
    entries, warnings = data
    hosts = [FleetHost(str(name), dict(variables), str(file), int(line)) for name, variables, file, line in entries]
    return hosts, [str(warning) for warning in warnings]


def refuse_inventories(files: Sequence[str]) -> None:
    """Raise FleetFileError for a fleet file that Ansible reads as an inventory of its own, line by line as hosts.

    It does so with each file of a directory that is given as an inventory, unless told to ignore it.
    """
    sources = context.CLIARGS.get("inventory") or constants.DEFAULT_HOST_LIST
    directories = [Path(source) for source in sources if "," not in source and Path(source).is_dir()]
    for file in files:
        for directory in directories:
            if directory in Path(file).parents and not any(
                IGNORED.search(os.fsencode(part)) for part in Path(file).relative_to(directory).parts
            ):
                raise FleetFileError(
                    f"{file}: Ansible takes every file below {directory} for an inventory, so this one too; move it "
                    "out of there, give accelerators.yml itself as the inventory, or add it to ignore_patterns in "
                    "ansible.cfg"
                )


def _fail(host: FleetHost, problem: str) -> NoReturn:
    raise FleetFileError(f"{host}: {problem}")


class _Checker:
    """Checks names and values. What was found to be good is not looked at again: a fleet repeats itself."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._good: set[str] = set()
        self._values = 0

    def check(self, host: FleetHost) -> None:
        """Raise FleetFileError for what cannot be a host or a variable of one."""
        if not is_host_name(host.name):
            _fail(host, f"found {host.name[:80]!r}, expected the name of a host")
        self._values = 0
        for name, value in host.variables.items():
            if name not in self._good:
                self._check_name(host, name)
            if isinstance(value, str):
                self._check_text(host, name, value)
            elif isinstance(value, (dict, list, int, float)):
                self._check_value(host, name, value, 0)

    def _check_name(self, host: FleetHost, name: Any) -> None:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
            shown = repr(name)[:80]
            _fail(host, f"host {host.name!r}: found {shown} as a variable, expected letters, digits and underscores")
        if name in REFUSED:
            _fail(host, f"host {host.name!r}: {name} cannot be given here: {REFUSED[name]}")
        meant = None if name in KNOWN else misspelt(name, KNOWN)
        if meant:
            self.warnings.append(f"{host}: variable {name!r} is taken as one of the site's own; nearest: {meant!r}")
        self._good.add(name)

    def _check_text(self, host: FleetHost, name: str, text: str) -> None:
        if len(text) > LONGEST_TEXT:
            _fail(host, f"host {host.name!r}: {name}: a text of {len(text)} characters, expected up to {LONGEST_TEXT}")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            _fail(host, f"host {host.name!r}: {name}: half a surrogate pair, which is no character")

    def _check_value(self, host: FleetHost, name: str, value: Any, depth: int) -> None:
        """Check what is in a value; ``depth`` is how deep that is."""
        self._values += 1 + (len(value) // LONG_TEXT if isinstance(value, str) else 0)
        if self._values > MOST_VALUES:
            _fail(host, f"host {host.name!r}: {name}: more than {MOST_VALUES:,} values, with those of aliases")
        if depth > DEEPEST:
            _fail(host, f"host {host.name!r}: {name}: nested deeper than {DEEPEST} levels")
        if isinstance(value, float) and not math.isfinite(value):
            _fail(host, f"host {host.name!r}: {name}: found {value}, expected a finite number")
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            _fail(host, f"host {host.name!r}: {name}: a number of more than 64 bits")
        if isinstance(value, str):
            self._check_text(host, name, value)
        elif isinstance(value, list):
            for entry in value:
                self._check_value(host, name, entry, depth + 1)
        elif isinstance(value, dict):
            for key, entry in value.items():
                if not isinstance(key, str):
                    _fail(host, f"host {host.name!r}: {name}: found the key {key!r}, expected a text; put it in quotes")
                self._check_text(host, name, key)
                self._check_value(host, name, entry, depth + 1)


def is_host_name(name: str) -> bool:
    """Return whether Ansible, a resolver and a shell can take this as the name or the address of a host."""
    if _NAME.match(name):
        return name not in _GROUPS
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return "%" not in name


def _decoded(text: FleetText) -> str:
    """Return a file's text without the mark of byte order that spreadsheets put before it."""
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
    except _TwiceError as exc:
        key = str(exc)
        found = _JsonLines(content).of_twin(key)
        shown = f", first in line {found[0]}" if len(found) > 1 else ""
        raise FleetFileError(f"{text.path}:{found[-1]}: {key!r} is there twice{shown}") from None
    except ValueError as exc:
        raise FleetFileError(f"{text.path}:1: {exc}") from None
    except RecursionError:
        raise FleetFileError(f"{text.path}:1: nested deeper than {DEEPEST} levels") from None
    lines = _JsonLines(content)
    return _hosts_of(text, document, lines.of_host)


class _TwiceError(ValueError):
    """A key that an object has twice; the message is the key."""


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"found {name}, expected a finite number")


class _JsonLines:
    """The lines in which the keys of a JSON text stand; the text is searched once, when the first is asked for."""

    _TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|[][{}]')

    def __init__(self, content: str) -> None:
        self._content = content
        self._hosts: dict[str, list[int]] | None = None
        self._others: dict[str, list[int]] = {}

    def of_host(self, name: Any) -> int:
        """Return the line of a host, counted from 1."""
        self._read()
        return (self._hosts or {}).get(name, [1])[0]

    def of_twin(self, key: str) -> list[int]:
        """Return the lines of a key that an object has twice: a host, or else any other."""
        self._read()
        hosts = (self._hosts or {}).get(key, [])
        return hosts if len(hosts) > 1 else self._others.get(key, [1])

    def _read(self) -> None:
        if self._hosts is not None:
            return
        self._hosts = {}
        line, seen, depth = 1, 0, 0
        for token in self._TOKEN.finditer(self._content):
            key, colon = token.groups()
            if key is None:
                depth += 1 if token.group() in "[{" else -1
            elif colon:
                line += self._content.count("\n", seen, token.start())
                seen = token.start()
                name = json.loads(key, strict=False) if "\\" in key else key[1:-1]
                (self._hosts if depth == 2 else self._others).setdefault(name, []).append(line)


def _hosts_of(text: FleetText, document: Any, line_of: Callable[[Any], int]) -> list[FleetHost]:
    """Return the hosts of a document of YAML or JSON."""
    if document is None or document == {}:
        return []
    if not isinstance(document, dict) or "hosts" not in document:
        keys = f" the key {next(iter(document))!r}" if isinstance(document, dict) else ""
        raise FleetFileError(f"{text.path}:1: found{keys or ' no mapping'}, expected 'hosts', a mapping of names")
    for key in document:
        if key != "hosts":
            raise FleetFileError(f"{text.path}:1: unknown key {key!r}; {nearest(str(key), ['hosts'])}")
    hosts = document["hosts"]
    if hosts is None:
        return []
    if not isinstance(hosts, dict):
        raise FleetFileError(f"{text.path}:1: hosts: expected a mapping of names to variables")
    found = []
    for name, variables in hosts.items():
        if not isinstance(name, str):
            raise FleetFileError(
                f"{text.path}:{line_of(name)}: found {name!r} as the name of a host, expected a text; put it in quotes"
            )
        if variables is not None and not isinstance(variables, dict):
            raise FleetFileError(
                f"{text.path}:{line_of(name)}: host {name[:80]!r}: expected variables, like accelerator: h200"
            )
        found.append(FleetHost(name, variables or {}, text.path, partial(line_of, name)))
    return found


def _read_csv(text: FleetText) -> list[FleetHost]:
    """Return the hosts of a table; an empty cell gives no variable."""
    content = _decoded(text)
    header, _newline, _rest = content.partition("\n")
    # Spreadsheets of many countries separate with semicolons.
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
    names = [column for column in columns if column in NAME_COLUMNS]
    if len(names) != 1:
        shown = ", ".join(columns)[:200]
        raise FleetFileError(
            f"{text.path}:{line}: found the columns {shown}; expected one of them to be 'name', the host's"
        )
    for column in columns:
        if not column or columns.count(column) > 1:
            what = f"the column {column!r} twice" if column else "a column without a name"
            raise FleetFileError(f"{text.path}:{line}: found {what}")
    return columns


def _row(text: FleetText, columns: Sequence[str], row: Sequence[str], line: int) -> FleetHost:
    if len(row) != len(columns):
        raise FleetFileError(
            f"{text.path}:{line}: found {len(row)} cells, expected {len(columns)} ({', '.join(columns)[:200]}); "
            "a cell with a separator in it needs quotes"
        )
    cells = {column: cell.strip() for column, cell in zip(columns, row)}
    name = next(cells.pop(column) for column in NAME_COLUMNS if column in cells)
    if not name:
        raise FleetFileError(f"{text.path}:{line}: no name in this row")
    variables = {column: _typed(column, cell) for column, cell in cells.items() if cell}
    return FleetHost(name, variables, text.path, line)


def _typed(column: str, cell: str) -> Any:
    """Return a cell as what its variable holds; a number that is none stays a text, and sorting says what is wrong."""
    if column not in NUMBERS or not re.match(r"[-+0-9.]{1,15}\Z", cell):
        return cell
    try:
        return NUMBERS[column](cell)
    except ValueError:
        return cell


_READERS: Mapping[str, Callable[[FleetText], list[FleetHost]]] = {
    ".yml": _read_yaml,
    ".yaml": _read_yaml,
    ".json": _read_json,
    ".csv": _read_csv,
}
