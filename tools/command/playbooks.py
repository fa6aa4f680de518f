# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of `inference`, read from verbs.toml: the line of Ansible that each stands for, and its run."""

import argparse
import difflib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

import tomllib

TOP = Path(__file__).resolve().parents[2]
SERVING = ["site", "gateway"]  # what `apply` and `check` run: for servers and mirrors, and for gateways
Done = subprocess.CompletedProcess[str]
# `ansible` takes another callback than its own only with the first of these.
RUN_JSON = {"ANSIBLE_LOAD_CALLBACK_PLUGINS": "1", "ANSIBLE_STDOUT_CALLBACK": "baremetal.inference.run_json"}
# A site needs no mirror and no gateway; what selects no host at all is an error of the playbook.
QUIET = {"ANSIBLE_HOST_PATTERN_MISMATCH": "ignore", "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true"}
# What begins an error, and what only repeats one about the inventory.
ERROR = re.compile(r"(\[ERROR\]: |ERROR! |\[WARNING\]: (?=Failed to parse))(.*(failed|original message|' plugin): )?")
REPEATED = re.compile("<inventory plugin|No inventory was parsed|[Ff]ailed to parse inventory")


class Verb(NamedTuple):
    """A verb; the head of verbs.toml says what its fields are."""

    help: str
    playbooks: Sequence[str] = ()
    options: Mapping[str, Mapping[str, Any]] = {}
    words: Mapping[str, Mapping[str, Any]] = {}
    run: str = ""
    hosts: str = "target_hosts"
    needs_hosts: bool = False
    common: Sequence[str] = ("hosts", "site", "run", "json")
    exclusive: Sequence[str] = ()
    arguments: Sequence[str] = ()
    json: str = ""


TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("verbs.toml").read_text(encoding="utf-8"))
VERBS = {name: Verb(**fields) for name, fields in TABLE["verbs"].items()}


class CommandError(ValueError):
    """What is wrong with the command or its site, in a whole sentence; a second argument says of which verb."""


def literal(name: str, value: str) -> list[str]:
    """Return the words of a variable in which Ansible evaluates nothing: a text may come from anybody."""
    mark = "!unsafe " if re.search("{[{%#]", value) else ""
    return ["-e", f"{{{json.dumps(name)}: {mark}{json.dumps(value)}}}"]


def run(given: argparse.Namespace, verb: Verb, variables: dict[str, str]) -> int:
    """Run the playbooks of a verb and return Ansible's status."""
    inventory = find_inventory(given) if verb.hosts else "localhost,"
    hosts = ",".join(given.hosts)
    names = _serving(inventory, hosts) if verb.playbooks == SERVING else verb.playbooks
    variables = {**({verb.json: "json"} if given.json and verb.json else {}), **variables}
    variables |= {verb.hosts: hosts} if hosts and verb.hosts != "-l" else {}
    words = [*verb.arguments, *(word for name, value in variables.items() for word in literal(name, value))]
    words += ["-l", hosts] if hosts and verb.hosts == "-l" else []
    runs = [(names, words)]
    if names == SERVING and given.verb == "apply" and not given.check:
        # Faults of a gateway are reported before a server changes: its first play always runs, and only checks.
        runs.insert(0, (["gateway"], ["--tags", "always"]))
    callback = "run_lines" if not given.json else "verify_json" if names == ["verify"] else "run_json"
    added = {"ANSIBLE_STDOUT_CALLBACK": f"baremetal.inference.{callback}"} if given.json or not given.verbose else {}
    # The user's own callback stays where no document is asked for, and -v has Ansible's.
    added |= {} if given.json else os.environ
    for books, own in runs:
        files = [str(TOP / f"playbooks/{book}.yml") for book in books]
        command = [_program("ansible-playbook"), "-i", inventory, *files, *own]
        done = _start(given, [*command, *_common(given)], added, keeps=bool(given.json) or own is not words)
        if done.returncode:
            break
    if given.json:
        return show_document(_read_document(done), done.returncode or 1)
    print(done.stdout, end="")
    return done.returncode


def logs(given: argparse.Namespace) -> int:
    """Print the end of the journal of an instance, also of a removed one. Keys are masked where vLLM prints them."""
    since = [f"--since={given.since}"] if given.since else []
    words = ["journalctl", "--no-pager", "--unit", f"vllm@{given.instance}.service", "--lines", given.lines, *since]
    return _ask_host(given, "ansible.builtin.command", {"argv": words}, "stdout")


def chat(given: argparse.Namespace) -> int:
    """Ask an instance a question and print its answer, or why there is none."""
    # As a variable, because a template among the arguments of a module would be evaluated.
    given.extra_vars += literal("chat_question", given.question)[1:]
    asked = {"instance": given.instance, "checks": ["chat"], "prompt": "{{ chat_question }}", "ready_timeout": 10}
    return _ask_host(given, "baremetal.inference.endpoint", asked, "answer")


def _ask_host(given: argparse.Namespace, module: str, arguments: dict[str, Any], key: str) -> int:
    """Run a module, print one value of each host, or the whole document, and return the status."""
    inventory = find_inventory(given)
    _known_hosts(inventory, given.host)
    words = [given.host, "-i", inventory, "-b"]
    document = run_ad_hoc(given, words, module, arguments)
    if any(result.get("stdout") == "-- No entries --" for result in document["results"].values()):
        asked = {"instance": given.instance, "checks": ["models"], "ready_timeout": 1}
        errors = run_ad_hoc(given, words, "baremetal.inference.endpoint", asked)["errors"]
        unknown = {error["host"]: error for error in errors if "is not installed on this host" in error["message"]}
        document["errors"] += unknown.values()
        document["ok"] &= not document["errors"]
        # The error stands alone: the note of journalctl adds nothing to it.
        document["results"] = {host: each for host, each in document["results"].items() if host not in unknown}
    if given.json:
        return show_document(document)
    for host, result in document["results"].items():
        text = printable(result.get(key) or "")
        print(text if len(document["results"]) == 1 and key == "stdout" else f"{host} {given.instance}: {text}")
    for error in document["errors"]:
        print(f"{error['host']} {given.instance}: {printable(error['message'])}", file=sys.stderr)
    return int(not document["ok"])


def printable(text: Any) -> str:
    """Return a text with its control characters escaped: a model or a journal may hold any."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in str(text))


def run_ad_hoc(given: argparse.Namespace, words: list[str], module: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a module with `ansible` and these words, and return its document, with errors and results."""
    command = [_program("ansible"), *words, "-m", module, "-a", json.dumps(arguments), *_common(given)]
    return {"errors": [], "results": {}, **_read_document(_start(given, command, RUN_JSON, keeps=True))}


def _read_document(done: Done) -> dict[str, Any]:
    """Return the document that a callback printed last; what came before is ``result`` (a document) or ``text``."""
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


def show_document(document: dict[str, Any], status: int = 1) -> int:
    """Print a document, with the keys of every one where Ansible ran no task, and return the status."""
    if "problem" in document:
        document |= {**TABLE["document"], "errors": [{"host": "", "task": "", "message": document["problem"]}]}
    status = 0 if document["ok"] else status
    print(json.dumps({**document, "status": status}, indent=2))
    return status


def _serving(inventory: str, hosts: str) -> list[str]:
    """Return which of site.yml and gateway.yml the hosts mean. Raises CommandError for hosts of neither."""
    gateways = _hosts_of(inventory, "gateways")
    if not hosts:
        return SERVING if gateways else ["site"]
    chosen, groups = _known_hosts(inventory, hosts), (_hosts_of(inventory, "inference:mirrors"), gateways)
    if chosen.isdisjoint(set().union(*groups)):
        raise CommandError(f"{hosts}: none of these is in the group inference, mirrors or gateways")
    return [name for name, group in zip(SERVING, groups) if not chosen.isdisjoint(group)]


def _hosts_of(inventory: str, pattern: str) -> set[str]:
    """Return the hosts of a pattern, which may match none. Raises CommandError where the inventory cannot be read."""
    done = _start(None, [_program("ansible"), "-i", inventory, pattern, "--list-hosts"], {}, keeps=True)
    if done.returncode:
        raise CommandError(f"-i {inventory}: Ansible cannot read it: {' '.join(done.stderr.split())[:400]}")
    return {line.strip() for line in done.stdout.splitlines()[1:] if line.strip()}


def _known_hosts(inventory: str, pattern: str) -> set[str]:
    """Return the hosts of a pattern. Raises CommandError, with the nearest name, where it matches none."""
    found = _hosts_of(inventory, pattern)
    if not found:
        near = difflib.get_close_matches(pattern.lower(), _hosts_of(inventory, "all"), n=1)
        raise CommandError(f"no host of the site matches {pattern!r}{f'; nearest: {near[0]!r}' if near else ''}")
    return found


def _start(given: argparse.Namespace | None, command: list[str], added: dict[str, str], keeps: bool = False) -> Done:
    """Run a command, with -v after its line. Its errors are shown as they come, without -v as one sentence each."""
    is_verbose = given is not None and bool(given.verbose)
    if is_verbose:
        print(f"+ {shlex.join(command)}", file=sys.stderr)
    # A checkout brings its own settings, unless the user has some. No answer of a host replaces a variable.
    environment = {"ANSIBLE_INJECT_FACT_VARS": "false", **QUIET, **os.environ, **added}
    if "ANSIBLE_CONFIG" not in os.environ and not Path("ansible.cfg").exists() and (TOP / "ansible.cfg").exists():
        environment["ANSIBLE_CONFIG"] = str(TOP / "ansible.cfg")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as kept:
        out, err = kept if keeps else None, None if is_verbose else subprocess.PIPE
        try:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=err, text=True)
        except OSError as exc:
            raise CommandError(f"{command[0]} cannot be run: {exc.strerror}; install ansible-core") from None
        with process:
            shown = _relay(process.stderr or (), given is None)
        kept.seek(0)
        return Done(command, 4 if process.returncode == 1 else process.returncode, kept.read(), "\n".join(shown))


def _relay(lines: Iterable[str], is_quiet: bool) -> list[str]:
    """Pass on what Ansible prints on stderr, as it comes; return its errors, without the excerpts of files."""
    block, errors = list[str](), list[str]()
    start = "\r\033[K" if sys.stderr.isatty() else ""  # removes the task that runs
    for shown in itertools.chain(lines, ["[end]"]):
        line = re.sub(r"\x1b\[[0-9;]*m", "", shown)  # on a terminal it has colours
        if block and line.startswith("["):
            text, is_repeated, block = _sentence(block), REPEATED.search("".join(block)), []
            if "no root 'plugin' key" not in text and not (errors and is_repeated):
                errors.append(text)
                if not is_quiet:
                    print(f"{start}{text}", file=sys.stderr, flush=True)
        if block or ERROR.match(line):
            block.append(line)
        elif not is_quiet and line != "[end]":
            print(f"{start}{shown}", end="", file=sys.stderr, flush=True)
    return errors


def _sentence(block: list[str]) -> str:
    """Return the sentence of an error; where it is about a file of the site, that comes first."""
    text = ERROR.sub("", block[0], 1).strip()
    for pattern, plain in TABLE["sentences"].items():
        text = re.sub(pattern, plain, text)
    origin = next((re.sub(".* source '(.*)'>", r"\1", line[8:].strip()) for line in block if line[:7] == "Origin:"), "")
    return text if not origin or origin.startswith(str(TOP / "playbooks")) else f"{origin}: {text}"


def _common(given: argparse.Namespace) -> list[str]:
    words = [word for text in given.extra_vars for word in ("-e", text)]
    words += ["-u", given.user] if getattr(given, "user", None) else []
    flags = {"ask_become_pass": "-K", "ask_vault_pass": "-J", "check": "--check", "diff": "--diff"}
    words += [flag for name, flag in flags.items() if getattr(given, name, False)]
    return [*words, *(f"-{letter}" for letter in given.verbose[1:]), *given.passed_on]


def find_inventory(given: argparse.Namespace) -> str:
    """Return the inventory. Raises CommandError where none is named, or several, and the directory is no site."""
    found, *more = given.inventory or [os.environ.get("ANSIBLE_INVENTORY") or _site_here()]
    if more:
        raise CommandError(f"-i stands there {len(more) + 1} times: name one site, or several in one -i with commas")
    if "," not in found and not Path(found).exists():
        raise CommandError(f"-i {found}: there is no such file or directory")
    return str(found)


def _site_here() -> str:
    """Return `.` where it is a site. Raises CommandError for that of others too: Ansible runs programs in it."""
    found = [os.stat(path) for path in (".", "hosts.yml")] if Path("hosts.yml").is_file() else []
    is_foreign = any(one.st_uid not in (0, os.geteuid()) or one.st_mode & 0o002 for one in found)
    if is_foreign or not found:
        raise CommandError(f"no site: {Path.cwd()} {TABLE['no_site']['foreign' if is_foreign else 'missing']}")
    return "."


def _program(name: str) -> str:
    """Return Ansible's program: beside this Python, or in the checkout's .venv, or that on PATH."""
    places = (Path(sys.executable).with_name(name), TOP / ".venv/bin" / name)
    return next((str(place) for place in places if place.exists()), name)
