# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of `inference`, read from verbs.txt: which playbooks each one runs, and what each of its options sets.

A verb decides nothing that a playbook does not: `inference -v` prints the line that does the same with Ansible.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, NamedTuple

# What `apply` and `check` run: the playbook of servers and mirrors, and that of gateways.
SERVING = ("site", "gateway")
_DAY = "[0-9]{4}(-[0-9]{2}){1,2}(T[0-9:.]{2,15}(Z|[+-][0-9:]{5})?)?|[0-9]{2}(:[0-9]{2}){1,2}"
_AGO = "([+-]?[0-9]{1,9}(s|min|m|h|d|w|month|y))+|now|today|yesterday"
# The pattern of a word for a value, and what is expected; with an instance's or a time's no word needs quoting.
VALUES = {
    "INSTANCE": (r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}", "the name of an instance"),
    "NUMBER": (r"[0-9]{1,15}", "a number"),
    "SECONDS": (r"[0-9]{1,9}(\.[0-9]+)?", "seconds"),
    "TIME": (f"{_AGO}|{_DAY}", "a time such as -1h or 2026-11-28T03:00"),
}


class Option(NamedTuple):
    """An option of a verb, such as --reason; the head of verbs.txt says what its fields are."""

    name: str
    letter: str
    value: str
    variable: str
    choices: tuple[str, ...]
    help: str


class Verb(NamedTuple):
    """A verb; the head of verbs.txt says what its fields are."""

    help: str
    playbooks: tuple[str, ...]
    options: tuple[Option, ...] = ()
    words: tuple[str, ...] = ()
    run: str = ""
    hosts: str = "target_hosts"
    needs_hosts: bool = False
    client: str = ""
    changes: bool = False
    exclusive: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    json: str = ""


def value_of(word: str) -> Any:
    """Return the function that checks a value: it is not empty, which for Ansible would often mean all."""
    pattern, expected = VALUES.get(word, (r"(?s).*\S.*", "a value"))

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise argparse.ArgumentTypeError(f"found {repr(text) if text.strip() else 'nothing'}, expected {expected}")
        return text

    return check


def _read(table: str) -> dict[str, Verb]:
    verbs: dict[str, Verb] = {}
    name = ""
    for line in table.splitlines():
        if line.startswith("  "):
            option, variable, text = line.split(maxsplit=2)
            option, _equals, value = option.partition("=")
            option, _comma, letter = option.partition(",")
            variable, _colon, choices = variable.partition(":")
            one = Option(option, letter, value, variable, tuple(choices.split("|")) if choices else (), text)
            verbs[name] = verbs[name]._replace(options=(*verbs[name].options, one))
        elif not line.startswith("#"):
            name, _colon, line = line.partition(": ")
            playbooks, words, text = line.split("; ", 2)
            traits: dict[str, Any] = {}
            for trait, equals, value in (word.partition("=") for word in words.split()):
                is_list = isinstance(Verb._field_defaults[trait], tuple)
                traits[trait] = tuple(value.split(",")) if is_list else value if equals else True
            verbs[name] = Verb(text, tuple(playbooks.split()), **traits)
    return verbs


VERBS = _read(Path(__file__).with_name("verbs.txt").read_text(encoding="utf-8"))
