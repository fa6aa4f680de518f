# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of `inference`, read from verbs.toml: which playbooks each one runs, and what each of its options sets.

A verb decides nothing that a playbook does not: `inference -v` prints the line that does the same with Ansible.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

import tomllib

# What `apply` and `check` run: the playbook of servers and mirrors, and that of gateways.
SERVING = ["site", "gateway"]
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("verbs.toml").read_text(encoding="utf-8"))


class Option(NamedTuple):
    """An option of a verb, such as --reason."""

    name: str
    help: str
    variable: str = ""
    letter: str = ""
    value: str = ""
    choices: Sequence[str] = ()
    action: str = ""
    default: Any = None


class Verb(NamedTuple):
    """A verb; the head of verbs.toml says what its fields are."""

    help: str
    playbooks: Sequence[str] = ()
    options: Sequence[Option] = ()
    words: Mapping[str, Sequence[str]] = {}
    run: str = ""
    hosts: str = "target_hosts"
    needs_hosts: bool = False
    client: str = ""
    changes: bool = False
    exclusive: Sequence[str] = ()
    arguments: Sequence[str] = ()
    json: str = ""


def _options(table: Mapping[str, Any]) -> list[Option]:
    return [Option(name, **fields) for name, fields in table.items()]


VERBS = {
    name: Verb(**{**fields, "options": _options(fields.get("options", {}))}) for name, fields in TABLE["verbs"].items()
}
# The options that verbs have in common, by what a verb has.
COMMON = {name: _options(table) for name, table in TABLE["common"].items()}


def value_of(word: str) -> Any:
    """Return the function that checks a value: it is not empty, which for Ansible would often mean all."""
    allowed = TABLE["values"].get(word, {"pattern": r"(?s).*\S.*", "expected": "a value"})

    def check(text: str) -> str:
        if not re.fullmatch(allowed["pattern"], text, re.ASCII):
            found = repr(text) if text.strip() else "nothing"
            raise argparse.ArgumentTypeError(f"found {found}, expected {allowed['expected']}")
        if word == "NAME=VALUE" and text.startswith("@") and not Path(text[1:]).expanduser().is_file():
            raise argparse.ArgumentTypeError(f"{text[1:]!r} is no file")
        try:  # Ansible would blame the inventory
            json.loads(text if word == "NAME=VALUE" and text.lstrip()[0] in "{[" else "{}")
        except ValueError as exc:
            raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {exc}") from None
        return text

    return check
