# SPDX-License-Identifier: GPL-3.0-or-later
"""The line of ansible-playbook that a verb stands for, and its run."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from .verbs import SERVING, Verb

TOP = Path(__file__).resolve().parents[2]
# An installed collection's playbooks have names; those of a checkout are files.
INSTALLED = TOP.parts[-3:] == ("ansible_collections", "baremetal", "inference")
# `ansible` takes another callback than its own only with the first of these.
# The user's own callback stays, and -v has Ansible's.
LINES = {
    "ANSIBLE_STDOUT_CALLBACK": os.environ.get("ANSIBLE_STDOUT_CALLBACK", "baremetal.inference.run_lines"),
    # A site needs no mirror and no gateway; what selects no host at all is an error of the playbook.
    "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore",
}
RUN_JSON = {"ANSIBLE_LOAD_CALLBACK_PLUGINS": "1", "ANSIBLE_STDOUT_CALLBACK": "baremetal.inference.run_json"}


class CommandError(ValueError):
    """What is wrong with the command or its site; the message is a whole sentence."""


def add_options(parser: argparse.ArgumentParser, has_site: bool = True, changes: bool = False) -> None:
    """Add the options that verbs have in common: those of a site, and those that try a change."""
    add = parser.add_argument
    if has_site:
        where = "the directory of the site; default: ANSIBLE_INVENTORY, or this directory"
        add("-i", "--inventory", action="append", metavar="SITE", type=some_text, help=where)
        add("-u", "--user", metavar="USER", type=some_text, help="log in as USER")
        add("-K", "--ask-become-pass", action="store_true", help="ask for the password of sudo")
        add("-J", "--ask-vault-pass", action="store_true", help="ask for the password of the vault")
    variable = "another variable of the playbook"
    add("-e", "--extra-vars", action="append", default=[], metavar="NAME=VALUE", type=extra_variable, help=variable)
    add("-v", "--verbose", action="count", default=0, help="print the line of Ansible; -vv has it print more itself")
    add("--json", action="store_true", help="print one JSON document")
    if changes:
        add("-C", "--check", action="store_true", help="show what would change, and change nothing")
        add("-D", "--diff", action="store_true", help="show the lines that change")


def some_text(text: str) -> str:
    """Return a value that is not empty: for Ansible an empty one would often mean all."""
    if not text.strip():
        raise argparse.ArgumentTypeError("found nothing, expected a value")
    return text


def extra_variable(text: str) -> str:
    """Return a value of -e. Ansible ignores one without `=`, and blames the inventory for broken JSON."""
    if text.startswith("@"):
        if not Path(text[1:]).expanduser().is_file():
            raise argparse.ArgumentTypeError(f"{text[1:]!r} is no file")
    elif text.lstrip().startswith(("{", "[")):
        try:
            json.loads(text)
        except ValueError as exc:
            raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {exc}") from None
    elif "=" not in text:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=VALUE, JSON or @FILE")
    return text


def is_template(text: str) -> bool:
    """Return whether Ansible would evaluate something in a text."""
    return any(mark in text for mark in ("{{", "{%", "{#"))


def literal(name: str, value: str) -> str:
    """Return a value of -e in which Ansible evaluates nothing: a text may come from anybody, such as a reason."""
    tag = "!unsafe " if is_template(value) else ""
    return f"{{{json.dumps(name)}: {tag}{json.dumps(value)}}}"


def run(given: argparse.Namespace, verb: Verb, variables: dict[str, str]) -> int:
    """Run the playbooks of a verb and return Ansible's status."""
    inventory = find_inventory(given) if verb.hosts else ""
    hosts: list[str] = given.hosts
    if given.json and verb.json:
        variables = {verb.json: "json", **variables}
    names = list(verb.playbooks)
    if verb.playbooks == SERVING:
        names = _serving(inventory, hosts)
        if names == list(SERVING) and given.verb == "apply" and not given.check:
            # Faults of a gateway are reported before a server changes: its first play always runs, and only checks.
            checked = start(given, _command(given, inventory, ["gateway"], ["--tags", "always"]), LINES, quiet=True)
            if checked:
                return checked
    limit = ["-l", ",".join(hosts)] if hosts and verb.hosts == "-l" else []
    if hosts and not limit:
        variables = {verb.hosts: ",".join(hosts), **variables}
    chosen = [word for name, value in variables.items() for word in ("-e", literal(name, value))]
    command = _command(given, inventory, names, [*verb.arguments, *chosen, *limit])
    if not given.json:
        return start(given, command, LINES if not given.verbose else {})
    return _show_document(given, command, "verify_json" if names == ["verify"] else "run_json")


def _command(given: argparse.Namespace, inventory: str, names: list[str], words: list[str]) -> list[str]:
    site = ["-i", inventory] if inventory else []
    return [program("ansible-playbook"), *site, *(_playbook(name) for name in names), *words, *_common(given)]


def _serving(inventory: str, hosts: list[str]) -> list[str]:
    """Return which of site.yml and gateway.yml the hosts mean. Raises CommandError for hosts of neither."""
    gateways = set(hosts_of(inventory, "gateways"))
    if not hosts:
        return list(SERVING) if gateways else ["site"]
    chosen = set(known_hosts(inventory, ",".join(hosts)))
    servers = {*hosts_of(inventory, "inference"), *hosts_of(inventory, "mirrors")}
    names = [name for name, group in zip(SERVING, (servers, gateways)) if chosen & group]
    if not names:
        raise CommandError(f"{','.join(hosts)}: none of these is in the group inference, mirrors or gateways")
    return names


def hosts_of(inventory: str, pattern: str) -> list[str]:
    """Return the hosts of a pattern, which may match none. Raises CommandError where the inventory cannot be read."""
    asked = [program("ansible"), "-i", inventory, pattern, "--list-hosts"]
    done = _start(None, asked, {}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise CommandError(f"-i {inventory}: Ansible cannot read it: {' '.join(done.stderr.split())[:400]}")
    return [line.strip() for line in done.stdout.splitlines()[1:] if line.strip()]


def known_hosts(inventory: str, pattern: str) -> list[str]:
    """Return the hosts of a pattern. Raises CommandError, with the nearest name, where it matches none."""
    found = hosts_of(inventory, pattern)
    if not found:
        near = difflib.get_close_matches(pattern, hosts_of(inventory, "all"), n=1)
        hint = f"; nearest: {near[0]!r}" if near else ""
        raise CommandError(f"no host of the site matches {pattern!r}{hint}")
    return found


def run_module(given: argparse.Namespace, pattern: str, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a module on hosts and return what run_json says of it: ``results`` by host, ``errors``."""
    inventory = find_inventory(given)
    known_hosts(inventory, pattern)
    words = [pattern, "-i", inventory, "-b", "-m", module, "-a", json.dumps(arguments), *_common(given)]
    return run_ad_hoc(given, words)


def run_ad_hoc(given: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    """Run `ansible` with these words and return its document."""
    return read_document(_start(given, [program("ansible"), *words], RUN_JSON, stdout=subprocess.PIPE))


def _show_document(given: argparse.Namespace, command: list[str], callback: str) -> int:
    """Run a command and print one JSON document, with what the playbook printed before it."""
    done = _start(
        given, command, {"ANSIBLE_STDOUT_CALLBACK": f"baremetal.inference.{callback}"}, stdout=subprocess.PIPE
    )
    document = read_document(done)
    print(json.dumps(document, indent=2))
    return done.returncode or int(not document["ok"])


def read_document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the document that a callback printed last; ``ok`` is whether all went well."""
    before, _start_of_document, after = f"\n{done.stdout}".rpartition("\n{\n")
    try:
        document: dict[str, Any] = json.loads("{" + after)
    except ValueError:
        before, document = done.stdout, {"problem": "Ansible ended before it did anything; see its errors"}
    if before.strip():
        document |= _read_shown(before)
    is_ok = document.get("ok") is True and not done.returncode and not document.get("errors")
    return {**document, "ok": is_ok}


def _read_shown(text: str) -> dict[str, Any]:
    """Return what a playbook printed: under ``result`` where it is a document itself, else as ``text``."""
    try:
        return {"result": json.loads(text)}
    except ValueError:
        return {"text": text.strip()}


def start(given: argparse.Namespace, command: list[str], added: dict[str, str], quiet: bool = False) -> int:
    """Run a command, after its line where -v wants it, and return the status; ``quiet`` shows a failure only."""
    if not quiet:
        return _start(given, command, added).returncode
    done = _start(given, command, added, stdout=subprocess.PIPE)
    if done.returncode:
        sys.stderr.write(done.stdout)
    return done.returncode


def _start(
    given: argparse.Namespace | None,
    command: list[str],
    added: dict[str, str],
    stdout: int | None = None,
    stderr: int | None = None,
) -> subprocess.CompletedProcess[str]:
    if given and given.verbose:
        print(f"+ {shlex.join(command)}", file=sys.stderr)
    try:
        return subprocess.run(command, env=environment(added), stdout=stdout, stderr=stderr, text=True, check=False)
    except OSError as exc:
        raise CommandError(
            f"{command[0]} cannot be run: {exc.strerror}; install ansible-core, see requirements.txt"
        ) from None


def environment(added: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of Ansible: a checkout brings its own settings, unless the user has some."""
    own = TOP / "ansible.cfg"
    has_one = "ANSIBLE_CONFIG" in os.environ or Path("ansible.cfg").exists() or not own.exists()
    return {**({} if has_one else {"ANSIBLE_CONFIG": str(own)}), **os.environ, **(added or {})}


def _common(given: argparse.Namespace) -> list[str]:
    words = [word for text in given.extra_vars for word in ("-e", text)]
    words += ["-u", given.user] if getattr(given, "user", None) else []
    flags = {"ask_become_pass": "-K", "ask_vault_pass": "-J", "check": "--check", "diff": "--diff"}
    words += [flag for name, flag in flags.items() if getattr(given, name, False)]
    words += ["-" + "v" * (given.verbose - 1)] if given.verbose > 1 else []
    return [*words, *given.passed_on]


def find_inventory(given: argparse.Namespace) -> str:
    """Return the inventory. Raises CommandError where none is named, or several, and the directory is no site."""
    named = given.inventory or []
    if len(named) > 1:
        raise CommandError(f"-i stands there {len(named)} times: name one site, or several in one -i with commas")
    found = named[0] if named else os.environ.get("ANSIBLE_INVENTORY") or ("." if Path("hosts.yml").is_file() else "")
    if not found:
        raise CommandError(
            f"no site: {Path.cwd()} has no hosts.yml; name one with -i DIR or ANSIBLE_INVENTORY, or write one with "
            "`inference init DIR`"
        )
    if "," not in found and not Path(found).exists():
        raise CommandError(f"-i {found}: there is no such file or directory")
    return str(found)


def _playbook(name: str) -> str:
    return f"baremetal.inference.{name}" if INSTALLED else str(TOP / f"playbooks/{name}.yml")


def program(name: str) -> str:
    """Return Ansible's program: beside this Python, or in the checkout's .venv, or that on PATH."""
    places = (Path(sys.executable).with_name(name), TOP / ".venv/bin" / name)
    return next((str(place) for place in places if place.exists()), name)
