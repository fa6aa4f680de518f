# SPDX-License-Identifier: GPL-3.0-or-later
"""Verbs for one instance of one host that no playbook has: its log, and a chat with it."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import playbooks

# As the plan names instances; with a name like this the words below need no quoting.
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}", re.ASCII)


def add_verbs(verbs: Any) -> None:
    """Add logs and chat."""
    logs = verbs.add_parser("logs", help="show the journal of an instance")
    logs.add_argument("host", metavar="HOST")
    logs.add_argument("instance", metavar="INSTANCE", type=_instance)
    logs.add_argument("-n", "--lines", type=int, default=100, metavar="NUMBER", help="the last lines (100)")
    logs.add_argument("--since", metavar="TIME", help="as journalctl takes it, such as -1h", type=_time)
    logs.set_defaults(verb="logs", run=show_logs)
    chat = verbs.add_parser("chat", help="ask an instance one question, on its host")
    chat.add_argument("host", metavar="HOST")
    chat.add_argument("instance", metavar="INSTANCE", type=_instance)
    chat.add_argument("question", metavar="QUESTION")
    chat.set_defaults(verb="chat", run=ask)
    for parser in (logs, chat):
        playbooks.add_options(parser)


def _instance(text: str) -> str:
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of an instance")
    return text


def _time(text: str) -> str:
    if not re.fullmatch(r"[0-9a-zA-Z:.+-]{1,40}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as -1h or 2026-11-28T03:00")
    return text


def show_logs(given: argparse.Namespace) -> int:
    """Print the last lines of an instance's journal, which holds no key: they are masked where vLLM prints them."""
    words = ["journalctl", "--no-pager", "--unit", f"vllm@{given.instance}.service", "--lines", str(given.lines)]
    words += [f"--since={given.since}"] if given.since else []
    arguments = ["-b", "-m", "ansible.builtin.command", "-a", json.dumps({"argv": words})]
    return playbooks.start(given, playbooks.ansible("ansible", given, [given.host, *arguments]))


def ask(given: argparse.Namespace) -> int:
    """Ask an instance a question and print its answer, or why there is none."""
    asked = {"instance": given.instance, "checks": ["chat"], "prompt": given.question, "ready_timeout": 10}
    with tempfile.TemporaryDirectory() as answers:
        arguments = ["-b", "-m", "baremetal.inference.endpoint", "-a", json.dumps(asked), "--tree", answers]
        command = playbooks.ansible("ansible", given, [given.host, *arguments])
        if given.verbose:
            return playbooks.start(given, command)
        done = subprocess.run(command, env=playbooks.environment(), capture_output=True, text=True, check=False)
        found = {path.name: playbooks.read_result(path) for path in sorted(Path(answers).iterdir())}
    if not found:
        sys.stderr.write(done.stderr or done.stdout)
        return done.returncode or 1
    if given.json:
        print(json.dumps(found, indent=2))
    for host, result in found.items() if not given.json else ():
        print(f"{host} {given.instance}: {answer_of(result)}")
    return done.returncode


def answer_of(result: dict[str, Any]) -> str:
    """Return the text of an answer, with control characters escaped, or the module's message."""
    text = result.get("answer") or result.get("msg") or "no answer"
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in str(text))
