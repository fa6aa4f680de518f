# SPDX-License-Identifier: GPL-3.0-or-later
"""Read fleet files, the users' lists of hosts, as YAML, JSON or CSV. Their content is untrusted."""

import glob
import ipaddress
import keyword
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, NoReturn, Sequence

from ansible import constants, context
from ansible.inventory.manager import IGNORED

from ...module_utils.common.files_host import open_now
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import misspelt
from ..common.yaml_events import DEEPEST, LARGEST_NUMBER, LONG_TEXT
from .fleet_columns import CONTROLLER, KNOWN, refusal, value_problem
from .fleet_formats import READERS, FleetFileError, FleetHost, FleetText

# 100,000 hosts with ten variables each are 20 MB.
LARGEST = 64 * 1024 * 1024
LONGEST_TEXT = 64 * 1024
# Values of one host, aliases expanded. Ansible copies and prints all of them many times.
MOST_VALUES = 10_000

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\Z")
_GROUPS = ("all", "ungrouped")


def find_files(patterns: Sequence[str], directory: str, source: str = "") -> tuple[list[str], list[str]]:
    """Return the files for names and globs relative to ``directory``, in order and each once, and warnings.

    A glob without a match is a warning; a plain name is kept, so that reading it reports the error. ``source`` is the
    file that names them: a glob leaves it out, and its plain name raises FleetFileError.
    """
    files: list[str] = []
    warnings = []
    for pattern in patterns:
        if "\0" in pattern:
            raise FleetFileError(f"fleet_files: found {show_value(pattern)}, which cannot be the name of a file")
        path = os.path.normpath(os.path.join(directory, os.path.expanduser(pattern)))
        if glob.has_magic(pattern):
            found = [name for name in sorted(glob.glob(path, recursive=True)) if name != source]
        elif source and os.path.realpath(path) == os.path.realpath(source):
            raise FleetFileError(
                f"{source}: fleet_files: found {show_value(pattern)}, which is this file itself; name the files with "
                "the hosts"
            )
        else:
            found = [path]
        if not found:
            warnings.append(f"fleet_files: no file matches {path}")
        files += [name for name in found if name not in files]
    return files, warnings


def load_text(path: str) -> FleetText:
    """Return a file's content. Raises FleetFileError if it is not a file, unreadable or far too large."""
    try:
        with open(path, "rb", opener=open_now) as stream:
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


def read_fleet(texts: Sequence[FleetText]) -> tuple[list[FleetHost], list[str]]:
    """Return the hosts of all files, and warnings. Raises FleetFileError, also for a duplicate host."""
    places: dict[str, FleetHost] = {}
    warnings: list[str] = []
    checker = _Checker()
    for text in texts:
        reader = READERS.get(Path(text.path).suffix.lower())
        if reader is None:
            raise FleetFileError(f"{text.path}: expected a name that ends in {', '.join(sorted(READERS))}")
        hosts = reader(text)
        if not hosts:
            warnings.append(f"{text.path}: no hosts in it")
        for host in hosts:
            checker.check(host)
            if places.setdefault(host.name, host) is not host:
                _fail(host, f"host {host.name!r} is in {places[host.name]} too; keep it in one of them only")
    return list(places.values()), warnings + checker.warnings


def kept_fleet(data: Any) -> tuple[list[FleetHost], list[str]]:
    """Return hosts and warnings from the inventory cache. Raises ValueError or TypeError for any other content."""
    entries, warnings = data
    hosts = [FleetHost(str(name), dict(variables), str(file), int(line)) for name, variables, file, line in entries]
    return hosts, [str(warning) for warning in warnings]


def refuse_inventories(files: Sequence[str]) -> None:
    """Raise FleetFileError for a fleet file that Ansible would also read as an inventory, with each line as a host.

    Ansible reads every file of an inventory directory, unless it is configured to ignore the file.
    """
    sources = context.CLIARGS.get("inventory") or constants.DEFAULT_HOST_LIST
    directories = [Path(source) for source in sources if "," not in source and Path(source).is_dir()]
    for file in files:
        for directory in directories:
            if directory in Path(file).parents and not any(
                IGNORED.search(os.fsencode(part)) for part in Path(file).relative_to(directory).parts
            ):
                raise FleetFileError(
                    f"{file}: Ansible reads every file below {directory} as an inventory, including this one; move it "
                    "out of there, give accelerators.yml itself as the inventory, or add it to ignore_patterns in "
                    "ansible.cfg"
                )


def _fail(host: FleetHost, problem: str) -> NoReturn:
    raise FleetFileError(f"{host}: {problem}")


class _Checker:
    """Check names and values. Values that passed are not checked again, because a fleet repeats the same values."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._good: set[str] = set()
        self._values = 0

    def check(self, host: FleetHost) -> None:
        """Raise FleetFileError for an invalid host name or variable."""
        if not is_host_name(host.name):
            _fail(host, f"found {host.name[:80]!r}, expected the name of a host")
        if host.name in CONTROLLER:
            _fail(host, f"host {host.name!r}: this is the controller itself; name it in an inventory of Ansible")
        self._values = 0
        for name, value in host.variables.items():
            if name not in self._good:
                self._check_name(host, name)
            if expected := value_problem(name, value):
                _fail(host, f"host {host.name!r}: {name}: found {show_value(value)[:80]}, expected {expected}")
            if isinstance(value, str):
                self._check_text(host, name, value)
            elif isinstance(value, (dict, list, int, float)):
                self._check_value(host, name, value, 0)

    def _check_name(self, host: FleetHost, name: Any) -> None:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
            shown = show_value(name)[:80]
            _fail(host, f"host {host.name!r}: found {shown} as a variable, expected letters, digits and underscores")
        if reason := refusal(name):
            _fail(host, f"host {host.name!r}: {name} cannot be given here: {reason}")
        meant = None if name in KNOWN else misspelt(name, KNOWN)
        if meant:
            self.warnings.append(f"{host}: variable {name!r} is taken as one of the site's own; nearest: {meant!r}")
        self._good.add(name)

    def _check_text(self, host: FleetHost, name: str, text: str) -> None:
        if len(text) > LONGEST_TEXT:
            _fail(host, f"host {host.name!r}: {name}: a text of {len(text)} characters, expected up to {LONGEST_TEXT}")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            _fail(host, f"host {host.name!r}: {name}: half a surrogate pair, which is not a character")

    def _check_value(self, host: FleetHost, name: str, value: Any, depth: int) -> None:
        """Check the parts of a value; ``depth`` is its level of nesting."""
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
                    _fail(
                        host,
                        f"host {host.name!r}: {name}: found the key {show_value(key)}, expected a text; put it in "
                        "quotes",
                    )
                self._check_text(host, name, key)
                self._check_value(host, name, entry, depth + 1)


def is_host_name(name: str) -> bool:
    """Return whether Ansible, a resolver and a shell accept this as the name or the address of a host."""
    if _NAME.match(name):
        return name not in _GROUPS
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return "%" not in name
