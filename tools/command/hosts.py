# SPDX-License-Identifier: GPL-3.0-or-later
"""Verbs for one instance of one host that no playbook has: its log, and a chat with it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from . import playbooks


def show_logs(given: argparse.Namespace) -> int:
    """Print the last lines of an instance's journal, which holds no key: they are masked where vLLM prints them."""
    words = ["journalctl", "--no-pager", "--unit", f"vllm@{given.instance}.service", "--lines", given.lines or "100"]
    words += [f"--since={given.since}"] if given.since else []
    return _run(given, "ansible.builtin.command", {"argv": words}, "stdout")


def ask(given: argparse.Namespace) -> int:
    """Ask an instance a question and print its answer, or why there is none."""
    # As a variable, because a template among the arguments of a module would be evaluated.
    given.extra_vars += playbooks.literal("chat_question", given.question)[1:]
    asked = {"instance": given.instance, "checks": ["chat"], "prompt": "{{ chat_question }}", "ready_timeout": 10}
    return _run(given, "baremetal.inference.endpoint", asked, "answer")


def _run(given: argparse.Namespace, module: str, arguments: dict[str, Any], key: str) -> int:
    """Print one value of each host, or the whole document, and return the status."""
    inventory = playbooks.find_inventory(given)
    playbooks.known_hosts(inventory, given.host)
    words = [given.host, "-i", inventory, "-b", "-m", module, "-a", json.dumps(arguments)]
    document = playbooks.run_ad_hoc(given, words)
    if given.json:
        return playbooks.show_document(document)
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
