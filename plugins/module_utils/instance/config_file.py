# SPDX-License-Identifier: GPL-3.0-or-later
"""Read where an instance listens from its installed files, with a small YAML reader: hosts have no library."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Union

from ..common.kinds import show_value

Value = Union[str, List[str]]

_KEY = re.compile(r"(?P<quote>['\"]?)(?P<key>[A-Za-z][\w.-]*)(?P=quote):(?:\s+(?P<value>.*))?\Z")
# Integers of YAML 1.1 that Python writes in another way.
_INTEGER = re.compile(r"0b[01_]+|0x[0-9A-Fa-f_]+|0[0-7_]+|[1-9][0-9_]*", re.ASCII)
_ITEM = re.compile(r"\s*-\s+(?P<value>.*)\Z")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Z_][A-Z0-9_]*)=(?P<value>.*)\Z", re.DOTALL)

API_KEY = "VLLM_API_KEY"
# How long vLLM waits for its engine, and the seconds of a start besides: Python's imports before, the warm-up after.
READY_VARIABLE, START_MARGIN, LONGEST_START = "VLLM_ENGINE_READY_TIMEOUT_S", 300, 999_999


class InstanceError(Exception):
    """A file of an instance cannot be used; the message names the line and what was expected."""


@dataclass(frozen=True)
class Processes:
    """Whose processes may answer at a port of this host: those of root, and of these users in the instance's units."""

    users: tuple[int, ...] = ()
    instance: str = ""


@dataclass(frozen=True)
class Listening:
    """Where an instance answers: ``address`` is that by which this host reaches it.

    ``only_here``: it listens on this address, not on all. ``expected``: whose processes answer there, besides root's.
    """

    address: str
    port: int
    tls: bool = False
    only_here: bool = True
    expected: Processes = field(default_factory=Processes, compare=False)

    @property
    def url(self) -> str:
        """The URL of its API."""
        return url_of(self.address, str(self.port), "https" if self.tls else "http")

    @property
    def on_loopback(self) -> bool:
        """Whether other hosts cannot reach it."""
        try:
            return self.only_here and ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return self.only_here and self.address == "localhost"


def listening_of(text: str) -> Listening | None:
    """Return where an instance with this ``--config`` file answers, None for a worker, which accepts no requests.

    Keys left out have vLLM's defaults: port 8000, every interface. Raises InstanceError.
    """
    config = read_flat_yaml(text)
    if _flag(config, "headless"):
        return None
    if _word(config, "uds", ""):
        raise InstanceError(
            "uds: found a Unix socket, expected none: gateways and checks reach an instance by its port"
        )
    host, port = _word(config, "host", ""), _word(config, "port", "8000")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise InstanceError(f"port: found {show_value(port)}, expected a number from 1 to 65535")
    tls = any(_word(config, key, "").lower() not in ("", *_FALSE) for key in ("ssl-certfile", "ssl-keyfile"))
    return Listening(_EVERYWHERE.get(host, host), int(port), tls, host not in _EVERYWHERE)


def endpoint_of(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the URL on this host and the served model names of a vLLM ``--config`` file.

    Without a name the model is its own. A worker has vLLM's own URL, where it answers nobody. Raises InstanceError.
    """
    config, listening = read_flat_yaml(text), listening_of(text)
    names = config.get("served-model-name") or config.get("model") or []
    names = [names] if isinstance(names, str) else names
    if not names:
        raise InstanceError("found neither served-model-name nor model; expected the name of the model")
    return listening.url if listening else url_of("", "8000"), tuple(names)


def url_of(host: str, port: str, scheme: str = "http") -> str:
    """Return the URL on this host of a program that listens there."""
    host = _EVERYWHERE.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def is_worker(text: str) -> bool:
    """Return whether a ``--config`` file is that of a worker: a host of an instance that accepts no requests itself."""
    return _flag(read_flat_yaml(text), "headless")


# An address that means every interface cannot be connected to.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104
# How YAML 1.1 writes booleans.
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


def _flag(config: dict[str, Value], key: str) -> bool:
    return str(config.get(key, "")).lower() in _TRUE


# The keys that are read from the file.
_READ = ("host", "port", "uds", "headless", "model", "served-model-name", "ssl-certfile", "ssl-keyfile")


def _word(config: dict[str, Value], key: str, default: str) -> str:
    value = config.get(key, default)
    if isinstance(value, list):
        raise InstanceError(f"{key}: found a list, expected one value")
    return value


def read_flat_yaml(text: str) -> dict[str, Value]:
    """Return the keys of a YAML mapping whose values are scalars or lists of them, as text; deeper values are left out.

    It reads what Ansible's to_nice_yaml writes for such a mapping. Raises InstanceError that names the line.
    """
    found: dict[str, Value] = {}
    key = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line in ("---", "..."):
            continue
        item, pair = _ITEM.match(line), _KEY.match(line)
        if item and key:
            values = found.setdefault(key, [])
            if isinstance(values, list):
                values.append(_scalar(item.group("value"), number))
        elif pair:
            key = pair.group("key").replace("_", "-")
            value = (pair.group("value") or "").strip()
            if value and not value.startswith("#"):
                try:
                    found[key] = _flow(value, number) if value.startswith("[") else _scalar(value, number)
                except InstanceError:
                    # A chat template continues over many lines, which are indented.
                    if key in _READ:
                        raise
        elif not line.startswith((" ", "}", "]")):
            raise InstanceError(f"line {number}: found {show_value(line)}, expected 'key: value'")
    return found


def _flow(value: str, number: int) -> list[str]:
    """Return the items of ``[a, 'b']``; names of models hold no commas."""
    if not value.endswith("]"):
        raise InstanceError(f"line {number}: found {show_value(value)}, expected the list to end on its line")
    return [_scalar(item.strip(), number) for item in value[1:-1].split(",") if item.strip()]


def _scalar(value: str, number: int) -> str:
    value = value.strip()
    if value.startswith("'"):
        quoted = re.match(r"'((?:[^']|'')*)'\s*(?:#.*)?\Z", value)
        if quoted:
            return quoted.group(1).replace("''", "'")
    elif value.startswith('"'):
        try:
            text, end = json.JSONDecoder().raw_decode(value)
        except ValueError:
            text, end = None, 0
        if isinstance(text, str) and (not value[end:].strip() or value[end:].lstrip().startswith("#")):
            return text
    else:
        return _integer(re.sub(r"(?<!\s)\s+#.*\Z", "", value))
    raise InstanceError(f"line {number}: found {show_value(value)}, expected the quotes to end on the line")


def _integer(value: str) -> str:
    """Return an integer as Python writes it, because vLLM makes text of what YAML reads; another value as it is."""
    if not _INTEGER.fullmatch(value):
        return value
    digits = value.replace("_", "")
    octal = digits.startswith("0") and digits[1:2] in "01234567" and len(digits) > 1
    return str(int(digits, 8 if octal else 0))


def read_secrets(text: str) -> dict[str, str]:
    """Return names and values of a file of secrets: systemd's ``NAME=value`` lines, or one line that is the API key.

    Quotes around a value, and backslashes in double quotes, are removed as systemd does.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", ";"))]
    pairs = [_ASSIGNMENT.match(line) for line in lines]
    if len(lines) == 1 and pairs[0] is None:
        return {API_KEY: lines[0]}
    return {pair.group("name"): _unquoted(pair.group("value").strip()) for pair in pairs if pair}


def _unquoted(value: str) -> str:
    if len(value) < 2 or value[0] != value[-1] or value[0] not in "\"'":
        return value
    return re.sub(r'\\([\\"$`])', r"\1", value[1:-1]) if value[0] == '"' else value[1:-1]


def start_seconds(env: Mapping[str, Any]) -> int:
    """Return how long the unit must let a start take by what vLLM allows its engine, 0 where nothing says it."""
    try:
        # As vLLM reads it.
        seconds = int(str(env.get(READY_VARIABLE, "")))
    except ValueError:
        return 0
    return min(seconds, LONGEST_START) + START_MARGIN if seconds > 0 else 0
