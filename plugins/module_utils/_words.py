# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's arguments in their three spellings: words of a command, a mapping, and the ``--config`` file."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence, Union

# What systemd takes literally without quotes in an EnvironmentFile.
_PLAIN = re.compile(r"[\w./:,=@%+{}\[\]-]*")

Words = Union[Sequence[str], Mapping[str, Any]]


def words_to_args(words: Sequence[str]) -> dict[str, Any]:
    """Return ``["--a", "1", "--b", "--c=2"]`` as ``{"a": 1, "b": True, "c": 2}``; a later word wins.

    Raises ValueError for a word that belongs to no flag.
    """
    args: dict[str, Any] = {}
    pending: list[str] = []
    name = ""
    for word in (*[str(word) for word in words], "--"):
        if not word.startswith("--"):
            if not name:
                raise ValueError(f"{word!r} does not follow a flag; expected words like '--max-model-len', '4096'")
            pending.append(word)
            continue
        if name:
            args = merge(args, {name: _value(pending)})
        name, found, value = word[2:].partition("=")
        name = name.replace("_", "-") if "." not in name else name
        pending = [value] if found else []
    return args


def _value(words: Sequence[str]) -> Any:
    if not words:
        return True
    values = [_scalar(word) for word in words]
    return values[0] if len(values) == 1 else values


def _scalar(word: str) -> Any:
    """Return a number where the word is exactly how Python writes that number, else the word itself."""
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if str(number) == word:
            return number
    return word


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return base with top laid over it by key; None removes a key, ``no-x`` replaces ``x`` and the other way round."""
    result = dict(base)
    for key, value in top.items():
        result.pop(key[3:] if key.startswith("no-") else f"no-{key}", None)
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def to_config(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return args as vLLM's ``--config`` file takes them: nested values as JSON text, which every release reads."""
    return {
        key: json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else value for key, value in args.items()
    }


def to_argv(args: Mapping[str, Any]) -> list[str]:
    """Return ``vllm serve MODEL --flag value ...`` for args that hold ``model``."""
    words = ["vllm", "serve", str(args["model"])]
    for key, value in args.items():
        if key == "model":
            continue
        if value is False:
            words.append(f"--no-{key}")
            continue
        words.append(f"--{key}")
        if value is True:
            continue
        if isinstance(value, Mapping):
            words.append(json.dumps(value, sort_keys=True))
        elif isinstance(value, (list, tuple)):
            words.extend(str(item) for item in value)
        else:
            words.append(str(value))
    return words


def env_line(name: str, value: str) -> str:
    """Return ``NAME=value`` for a systemd EnvironmentFile, quoted only where the value needs it.

    Raises ValueError for a name that no process can read or a value of several lines; it never shows the value.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"environment variable {name!r}: expected letters, digits and '_'")
    if "\n" in value or "\r" in value:
        raise ValueError(f"environment variable {name}: the value has more than one line, which systemd cannot take")
    if _PLAIN.fullmatch(value):
        return f"{name}={value}"
    escaped = re.sub(r'([\\"$`])', r"\\\1", value)
    return f'{name}="{escaped}"'
