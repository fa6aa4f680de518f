# SPDX-License-Identifier: GPL-3.0-or-later
"""The line of ansible-playbook that a verb stands for, and its run."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from .verbs import Verb

TOP = Path(__file__).resolve().parents[2]
# An installed collection's playbooks have names; those of a checkout are files.
INSTALLED = TOP.parts[-3:] == ("ansible_collections", "baremetal", "inference")
# An answer of a model has some thousand tokens; what a host says of its chips is shorter.
RESULT_BYTES = 4 << 20


class CommandError(ValueError):
    """What is wrong with the command or its site; the message is a whole sentence."""


def add_options(parser: argparse.ArgumentParser, verb: Verb | None = None) -> None:
    """Add the options that all verbs which need the site have in common."""
    add = parser.add_argument
    add(
        "-i",
        "--inventory",
        metavar="SITE",
        help="the directory of the site; default: ANSIBLE_INVENTORY, or this directory",
    )
    add("-l", dest="more_hosts", action="append", default=[], metavar="HOST", help="as HOST")
    add(
        "-e", "--extra-vars", action="append", default=[], metavar="NAME=VALUE", help="another variable of the playbook"
    )
    add("-u", "--user", metavar="USER", help="log in as USER")
    add("-K", "--ask-become-pass", action="store_true", help="ask for the password of sudo")
    add("-J", "--ask-vault-pass", action="store_true", help="ask for the password of the vault")
    add("-v", "--verbose", action="count", default=0, help="print the line of Ansible; -vv has it print more itself")
    add("--json", action="store_true", help="print one JSON document")
    if verb is None or verb.changes:
        add("-C", "--check", action="store_true", help="show what would change, and change nothing")
        add("-D", "--diff", action="store_true", help="show the lines that change")


def run(given: argparse.Namespace, verb: Verb, variables: dict[str, str]) -> int:
    """Run the playbooks of a verb and return Ansible's status."""
    inventory = _inventory(given) if verb.hosts else given.inventory
    hosts = [*getattr(given, "hosts", ()), *given.more_hosts]
    if given.json:  # what a playbook itself can show as JSON
        variables = {**{option.variable: "json" for option in verb.options if "json" in option.choices}, **variables}
    if hosts:
        variables = {verb.hosts: ",".join(hosts), **variables}
    names = [name for name in verb.playbooks if name != "gateway" or _has_gateways(inventory, hosts)]
    command = [
        program("ansible-playbook"),
        *(("-i", inventory) if inventory else ()),
        *(_playbook(name) for name in names),
        *(word for name, value in variables.items() for word in ("-e", json.dumps({name: value}))),
        *verb.arguments,
        *_common(given),
    ]
    if not given.json:
        return start(given, command)
    return _show_document(given, command, "verify_json" if names == ["verify"] else "run_json")


def _show_document(given: argparse.Namespace, command: list[str], callback: str) -> int:
    """Run a command and print one JSON document, with what the playbook printed before it under ``text``."""
    done = _start(
        given, command, {"ANSIBLE_STDOUT_CALLBACK": f"baremetal.inference.{callback}"}, stdout=subprocess.PIPE
    )
    before, _, after = f"\n{done.stdout}".rpartition("\n{\n")
    try:
        document = json.loads("{" + after)
    except ValueError:
        before, document = (
            done.stdout,
            {"ok": False, "problem": "ansible-playbook ended before it did anything; see its errors"},
        )
    if before.strip():
        document |= _read_shown(before)
    print(json.dumps({**document, "ok": bool(document.get("ok")) and not done.returncode}, indent=2))
    return done.returncode


def _read_shown(text: str) -> dict[str, Any]:
    """Return what a playbook printed: under ``result`` where it is a document itself, else as ``text``."""
    try:
        return {"result": json.loads(text)}
    except ValueError:
        return {"text": text.strip()}


def start(given: argparse.Namespace, command: list[str]) -> int:
    """Run a command of Ansible, after its line where -v wants it, and return the status."""
    return _start(given, command, {}).returncode


def _start(
    given: argparse.Namespace, command: list[str], added: dict[str, str], stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    if given.verbose:
        print(f"+ {shlex.join(command)}", file=sys.stderr)
    try:
        return subprocess.run(command, env=environment(added), stdout=stdout, text=True, check=False)
    except OSError as exc:
        raise CommandError(
            f"{command[0]} cannot be run: {exc.strerror}; install ansible-core, see requirements.txt"
        ) from None


def environment(added: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of Ansible: a checkout brings its own settings, unless the user has some."""
    own = TOP / "ansible.cfg"
    has_one = "ANSIBLE_CONFIG" in os.environ or Path("ansible.cfg").exists() or not own.exists()
    return {**({} if has_one else {"ANSIBLE_CONFIG": str(own)}), **os.environ, **(added or {})}


def ansible(name: str, given: argparse.Namespace, words: list[str]) -> list[str]:
    """Return a command of another of Ansible's programs for the site."""
    return [program(name), "-i", _inventory(given), *words, *_common(given)]


def _common(given: argparse.Namespace) -> list[str]:
    words = [word for text in given.extra_vars for word in ("-e", text)]
    words += ["-u", given.user] if given.user else []
    flags = {"ask_become_pass": "-K", "ask_vault_pass": "-J", "check": "--check", "diff": "--diff"}
    words += [flag for name, flag in flags.items() if getattr(given, name, False)]
    words += ["-" + "v" * (given.verbose - 1)] if given.verbose > 1 else []
    return [*words, *given.passed_on]


def _inventory(given: argparse.Namespace) -> str:
    """Return the inventory. Raises CommandError where none is named and the directory is no site."""
    found = given.inventory or os.environ.get("ANSIBLE_INVENTORY") or ("." if Path("hosts.yml").is_file() else "")
    if not found:
        raise CommandError(
            f"no site: {Path.cwd()} has no hosts.yml; name one with -i DIR or ANSIBLE_INVENTORY, or write one with "
            "`inference init DIR`"
        )
    if "," not in found and not Path(found).exists():
        raise CommandError(f"-i {found}: there is no such file or directory")
    return str(found)


def _has_gateways(inventory: str, hosts: list[str]) -> bool:
    """Tell whether apply sets up gateways: when it was not asked for some hosts only, and the site has any."""
    if hosts:
        return False
    asked = [program("ansible"), "-i", inventory, "gateways", "--list-hosts"]
    done = subprocess.run(asked, env=environment(), capture_output=True, text=True, check=False)
    return done.returncode == 0 and "hosts (0)" not in done.stdout


def _playbook(name: str) -> str:
    return f"baremetal.inference.{name}" if INSTALLED else str(TOP / f"playbooks/{name}.yml")


def program(name: str) -> str:
    """Return Ansible's program beside this Python, where there is one: cron has a short PATH."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def read_result(path: Path) -> dict[str, Any]:
    """Return what a module returned, from the file that Ansible's --tree wrote."""
    with path.open("rb") as file:
        text = file.read(RESULT_BYTES)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"msg": "the answer of the module cannot be read"}
