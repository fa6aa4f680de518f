# SPDX-License-Identifier: GPL-3.0-or-later
"""The line of ansible-playbook that a verb stands for, and its run."""

from __future__ import annotations

import argparse
import difflib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Iterable

from .verbs import SERVING, Verb

TOP = Path(__file__).resolve().parents[2]
# An installed collection's playbooks have names; those of a checkout are files.
INSTALLED = TOP.parts[-3:] == ("ansible_collections", "baremetal", "inference")
CALLBACK = "ANSIBLE_STDOUT_CALLBACK"
PIPE = subprocess.PIPE
LINES = {CALLBACK: "baremetal.inference.run_lines"}
# A site needs no mirror and no gateway; what selects no host at all is an error of the playbook.
QUIET = {"ANSIBLE_HOST_PATTERN_MISMATCH": "ignore", "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true"}
# What begins an error, and what only repeats one about the inventory.
ERROR = re.compile(
    r"(\[ERROR\]: |ERROR! |\[WARNING\]: (?=Failed to parse inventory))(.* failed: |.*original message: )?"
)
REPEATED = re.compile("^<inventory plugin|No inventory was parsed|[Ff]ailed to parse inventory")
# `ansible` takes another callback than its own only with the first of these.
RUN_JSON = {"ANSIBLE_LOAD_CALLBACK_PLUGINS": "1", CALLBACK: "baremetal.inference.run_json"}


class CommandError(ValueError):
    """What is wrong with the command or its site; the message is a whole sentence."""


def literal(name: str, value: str) -> list[str]:
    """Return the words of a variable in which Ansible evaluates nothing: a text may come from anybody."""
    mark = "!unsafe " if re.search("{[{%#]", value) else ""
    return ["-e", f"{{{json.dumps(name)}: {mark}{json.dumps(value)}}}"]


def run(given: argparse.Namespace, verb: Verb, variables: dict[str, str]) -> int:
    """Run the playbooks of a verb and return Ansible's status."""
    inventory = find_inventory(given) if verb.hosts else ""
    names, hosts = verb.playbooks, ",".join(given.hosts)
    site = ["-i", inventory] if inventory else []
    words = list(verb.arguments)
    if names == SERVING:
        names = _serving(inventory, hosts)
        if names == SERVING and given.verb == "apply" and not given.check:
            # Faults of a gateway are reported before a server changes: its first play always runs, and only checks.
            command = [*_playbooks(site, ["gateway"]), *words, "--tags", "always", *_common(given)]
            checked = _start(given, command, LINES, PIPE)
            if checked.returncode:
                sys.stderr.write(checked.stdout)
                return checked.returncode
    if given.json and verb.json:
        variables = {verb.json: "json", **variables}
    if hosts and verb.hosts != "-l":
        variables = {**variables, verb.hosts: hosts}
    words += [word for name, value in variables.items() for word in literal(name, value)]
    words += ["-l", hosts] if hosts and verb.hosts == "-l" else []
    command = [*_playbooks(site, names), *words, *_common(given)]
    if not given.json:
        # The user's own callback stays, and -v has Ansible's.
        own = {CALLBACK: os.environ.get(CALLBACK, LINES[CALLBACK])}
        return _start(given, command, {} if given.verbose else own).returncode
    callback = "verify_json" if names == ["verify"] else "run_json"
    done = _start(given, command, {CALLBACK: f"baremetal.inference.{callback}"}, PIPE)
    status = show_document(_read_document(done))
    return done.returncode or status


def _playbooks(site: list[str], names: Iterable[str]) -> list[str]:
    books = [f"baremetal.inference.{name}" if INSTALLED else str(TOP / f"playbooks/{name}.yml") for name in names]
    return [_program("ansible-playbook"), *site, *books]


def _serving(inventory: str, hosts: str) -> list[str]:
    """Return which of site.yml and gateway.yml the hosts mean. Raises CommandError for hosts of neither."""
    gateways = _hosts_of(inventory, "gateways")
    if not hosts:
        return SERVING if gateways else ["site"]
    chosen = known_hosts(inventory, hosts)
    groups = ([*_hosts_of(inventory, "inference"), *_hosts_of(inventory, "mirrors")], gateways)
    names = [name for name, group in zip(SERVING, groups) if not chosen.isdisjoint(group)]
    if not names:
        raise CommandError(f"{hosts}: none of these is in the group inference, mirrors or gateways")
    return names


def _hosts_of(inventory: str, pattern: str) -> set[str]:
    """Return the hosts of a pattern, which may match none. Raises CommandError where the inventory cannot be read."""
    done = _start(None, [_program("ansible"), "-i", inventory, pattern, "--list-hosts"], {}, PIPE)
    if done.returncode:
        raise CommandError(f"-i {inventory}: Ansible cannot read it: {' '.join(done.stderr.split())[:400]}")
    return {line.strip() for line in done.stdout.splitlines()[1:] if line.strip()}


def known_hosts(inventory: str, pattern: str) -> set[str]:
    """Return the hosts of a pattern. Raises CommandError, with the nearest name, where it matches none."""
    found = _hosts_of(inventory, pattern)
    if not found:
        near = difflib.get_close_matches(pattern.lower(), _hosts_of(inventory, "all"), n=1)
        raise CommandError(f"no host of the site matches {pattern!r}{f'; nearest: {near[0]!r}' if near else ''}")
    return found


def run_ad_hoc(given: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    """Run `ansible` with these words and return its document."""
    return _read_document(_start(given, [_program("ansible"), *words, *_common(given)], RUN_JSON, PIPE))


def _read_document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the document that a callback printed last; ``ok`` is whether all went well.

    What the playbook printed before is ``result`` where it is a document itself, else ``text``.
    """
    before, _start_of_document, after = f"\n{done.stdout}".rpartition("\n{\n")
    try:
        document: dict[str, Any] = json.loads("{" + after)
    except ValueError:
        before, document = done.stdout, {"problem": done.stderr.strip() or "Ansible ended before it did anything"}
    if before.strip():
        try:
            document["result"] = json.loads(before)
        except ValueError:
            document["text"] = before.strip()
    return {**document, "ok": document.get("ok") is True and not done.returncode and not document.get("errors")}


def show_document(document: dict[str, Any]) -> int:
    """Print a document and return the status."""
    print(json.dumps(document, indent=2))
    return int(not document["ok"])


def _start(
    given: argparse.Namespace | None, command: list[str], added: dict[str, str], stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command, with -v after its line. Its errors are shown as they come, without -v as one sentence each."""
    is_verbose = given is not None and given.verbose
    if is_verbose:
        print(f"+ {shlex.join(command)}", file=sys.stderr)
    # A checkout brings its own settings, unless the user has some.
    own = TOP / "ansible.cfg"
    has_one = "ANSIBLE_CONFIG" in os.environ or Path("ansible.cfg").exists() or not own.exists()
    environment = {**({} if has_one else {"ANSIBLE_CONFIG": str(own)}), **QUIET, **os.environ, **added}
    shown: list[str] = []
    stderr = None if is_verbose else PIPE
    try:
        with subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr, text=True) as process:
            relay = threading.Thread(target=_relay, args=(process.stderr or (), shown, given is None))
            relay.start()
            printed = process.stdout.read() if process.stdout else ""
            relay.join()
    except OSError as exc:
        problem = f"{command[0]} cannot be run: {exc.strerror}; install ansible-core, see requirements.txt"
        raise CommandError(problem) from None
    return subprocess.CompletedProcess(command, process.returncode, printed, "\n".join(shown))


def _relay(lines: Iterable[str], shown: list[str], is_quiet: bool) -> None:
    """Pass on what Ansible prints on stderr, as it comes; an error without the excerpt of its file."""
    block: list[str] = []
    for shown_line in itertools.chain(lines, ["[end]"]):
        # On a terminal it has colours.
        line = re.sub(r"\x1b\[[0-9;]*m", "", shown_line)
        if block and line.startswith("["):
            text, block = _sentence(block), []
            if not (shown and REPEATED.search(text)):
                shown.append(text)
                if not is_quiet:
                    print(text, file=sys.stderr, flush=True)
        if block or ERROR.match(line):
            block.append(line)
        elif not is_quiet and line != "[end]":
            print(shown_line, end="", file=sys.stderr, flush=True)


def _sentence(block: list[str]) -> str:
    """Return the sentence of an error; where it is about a file of the site, that comes first."""
    text = ERROR.sub("", block[0], 1).strip()
    origin = next((line[8:].strip() for line in block if line.startswith("Origin: ")), "")
    return text if not origin or origin.startswith(str(TOP / "playbooks")) else f"{origin}: {text}"


def _common(given: argparse.Namespace) -> list[str]:
    words = [word for text in given.extra_vars for word in ("-e", text)]
    words += ["-u", given.user] if getattr(given, "user", None) else []
    flags = {"ask_become_pass": "-K", "ask_vault_pass": "-J", "check": "--check", "diff": "--diff"}
    words += [flag for name, flag in flags.items() if getattr(given, name, False)]
    words += ["-" + "v" * (given.verbose - 1)] if given.verbose > 1 else []
    return [*words, *given.passed_on]


def find_inventory(given: argparse.Namespace) -> str:
    """Return the inventory. Raises CommandError where none is named, or several, and the directory is no site."""
    named = given.inventory or [os.environ.get("ANSIBLE_INVENTORY") or ("." if Path("hosts.yml").is_file() else "")]
    if len(named) > 1:
        raise CommandError(f"-i stands there {len(named)} times: name one site, or several in one -i with commas")
    (found,) = named
    if not found:
        where = "name one with -i DIR or ANSIBLE_INVENTORY, or write one with `inference init DIR`"
        raise CommandError(f"no site: {Path.cwd()} has no hosts.yml; {where}")
    if "," not in found and not Path(found).exists():
        raise CommandError(f"-i {found}: there is no such file or directory")
    return str(found)


def _program(name: str) -> str:
    """Return Ansible's program: beside this Python, or in the checkout's .venv, or that on PATH."""
    places = (Path(sys.executable).with_name(name), TOP / ".venv/bin" / name)
    return next((str(place) for place in places if place.exists()), name)
