# SPDX-License-Identifier: GPL-3.0-or-later
"""Verbs for one instance of one host that no playbook has: its log, and a chat with it."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

from . import playbooks

# As the plan names instances; with a name like this the words below need no quoting.
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}", re.ASCII)


def add_verbs(verbs: Any) -> None:
    """Add logs and chat."""
    logs = verbs.add_parser("logs", help="show the journal of an instance")
    logs.add_argument("host", metavar="HOST")
    logs.add_argument("instance", metavar="INSTANCE", type=_instance)
    logs.add_argument("-n", "--lines", type=_lines, default=100, metavar="NUMBER", help="the last lines (100)")
    logs.add_argument("--since", metavar="TIME", help="as journalctl takes it, such as --since=-1h", type=_time)
    logs.set_defaults(verb="logs", run=show_logs)
    chat = verbs.add_parser("chat", help="ask an instance one question, on its host")
    chat.add_argument("host", metavar="HOST")
    chat.add_argument("instance", metavar="INSTANCE", type=_instance)
    chat.add_argument("question", metavar="QUESTION", type=playbooks.some_text)
    chat.set_defaults(verb="chat", run=ask)
    for parser in (logs, chat):
        playbooks.add_options(parser)


def _instance(text: str) -> str:
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of an instance")
    return text


def _lines(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)


def _time(text: str) -> str:
    if not re.fullmatch(r"[0-9a-zA-Z:.+-]{1,40}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as -1h or 2026-11-28T03:00")
    return text


def show_logs(given: argparse.Namespace) -> int:
    """Print the last lines of an instance's journal, which holds no key: they are masked where vLLM prints them."""
    words = ["journalctl", "--no-pager", "--unit", f"vllm@{given.instance}.service", "--lines", str(given.lines)]
    words += [f"--since={given.since}"] if given.since else []
    document = playbooks.run_module(given, given.host, "ansible.builtin.command", {"argv": words})
    return _show(given, document, "stdout")


def ask(given: argparse.Namespace) -> int:
    """Ask an instance a question and print its answer, or why there is none."""
    asked = {"instance": given.instance, "checks": ["chat"], "prompt": given.question, "ready_timeout": 10}
    if playbooks.is_template(given.question):
        # As a variable, because a template among the arguments of a module would be evaluated.
        given.extra_vars = [*given.extra_vars, playbooks.literal("chat_question", given.question)]
        asked["prompt"] = "{{ chat_question }}"
    document = playbooks.run_module(given, given.host, "baremetal.inference.endpoint", asked)
    return _show(given, document, "answer")


def _show(given: argparse.Namespace, document: dict[str, Any], key: str) -> int:
    """Print one value of each host, or the whole document, and return the status."""
    if given.json:
        print(json.dumps(document, indent=2))
        return int(not document["ok"])
    results = document.get("results") or {}
    for host, result in results.items():
        text = printable(result.get(key) or "")
        print(text if len(results) == 1 and key == "stdout" else f"{host} {given.instance}: {text}")
    for error in document.get("errors") or ():
        print(f"{error['host']} {given.instance}: {printable(error['message'])}", file=sys.stderr)
    return int(not document["ok"])


def printable(text: Any) -> str:
    """Return a text with its control characters escaped: a model or a journal may hold any."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in str(text))
