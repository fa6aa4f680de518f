# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference VERB [HOST...]`: one command in front of the collection's playbooks.

It chooses playbooks and variables and runs `ansible-playbook`; -v prints the line. The exit status is Ansible's: 0 when
all went well, and never 0 when no host matched. 64 is a command line that cannot be understood.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Sequence

from . import hosts, playbooks, site
from .verbs import COMMON, TABLE, VERBS, Option, Verb, value_of

# EX_USAGE of sysexits.h: no status of ansible-playbook.
USAGE = 64


class Parser(argparse.ArgumentParser):
    """argparse, whose message names the nearest verb or option and whose status no run of Ansible has."""

    # All verbs and options, for the nearest one.
    known: ClassVar[list[str]] = []

    def error(self, message: str, verb: str = "") -> NoReturn:
        words = [word for word in sys.argv[1:] if word in message and len(word) > 1]
        near = [match for word in words for match in difflib.get_close_matches(word, self.known, 1) if match != word]
        if near:
            message = re.sub(r" \(choose from .*\)$", "", message) + f"; nearest: {near[0]}"
        message = message.replace("argument ", "")
        self.exit(USAGE, f"{self.prog}: {message}. `{' '.join([self.prog, *verb.split()])} -h` lists what there is\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit status."""
    own = sys.argv[1:] if arguments is None else list(arguments)
    # What follows `--` is for Ansible.
    own, passed_on = (own[: own.index("--")], own[own.index("--") + 1 :]) if "--" in own else (own, [])
    parser = make_parser()
    if own and own[0].startswith("-") and own[0] not in ("-h", "--help"):
        parser.error(f"{own[0]} stands before the verb; options follow it, as in `inference plan {own[0]}`")
    given = parser.parse_args(own, argparse.Namespace(passed_on=passed_on))
    try:
        return _run(parser, VERBS[given.verb], given)
    except (KeyboardInterrupt, EOFError):
        return 130
    except BrokenPipeError:  # the reader has ended, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (playbooks.CommandError, OSError) as exc:
        text = f"{exc.filename}: {exc.strerror}" if isinstance(exc, OSError) else exc
        print(f"inference: {hosts.printable(text)}", file=sys.stderr)
        return USAGE


def _run(parser: Parser, verb: Verb, given: argparse.Namespace) -> int:
    """Run a verb. Ends with a usage error where hosts are missing, or not exactly one of its alternatives is given."""
    if given.passed_on and "extra_vars" not in given:
        parser.error(f"{given.verb} runs nothing of Ansible that could take {given.passed_on[0]}", given.verb)
    if verb.run:
        return RUNS[verb.run](given)
    given.hosts = [*getattr(given, "hosts", ()), *getattr(given, "limit", ())]
    if verb.needs_hosts and not given.hosts:
        parser.error(f"{given.verb} would concern every host: name HOST, a group or a pattern", given.verb)
    words = {name: "HOST" if name == "hosts" else f"--{name}" for name in verb.exclusive}
    chosen = [word for name, word in words.items() if getattr(given, name, None)]
    if words and len(chosen) != 1:
        found = f"takes exactly one of {', '.join(words.values())}; found {' and '.join(chosen) or 'none'}"
        parser.error(f"{given.verb} {found if len(words) > 1 else f'needs {words.popitem()[1]}'}", given.verb)
    variables = {
        option.variable: value if option.value else (*option.choices, "true")[0]
        for option in verb.options
        if (value := getattr(given, option.name.replace("-", "_")))
    }
    return playbooks.run(given, verb, variables | ({verb.client: given.name} if verb.client else {}))


def make_parser() -> Parser:
    """Return the parser of all verbs."""
    text = "Serve language models on bare metal: one command in front of Ansible's playbooks."
    parser = Parser(prog="inference", description=text)
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    keys = verbs.add_parser("key", help="the clients of the gateways: add, list, end")
    groups = {"": verbs, "key": keys.add_subparsers(metavar="VERB", required=True, parser_class=Parser)}
    for name, verb in VERBS.items():
        first, _space, last = name.rpartition(" ")
        one = groups[first].add_parser(last, help=verb.help, description=f"{verb.help[0].upper()}{verb.help[1:]}.")
        one.set_defaults(verb=name)
        for word, choices in verb.words.items():
            one.add_argument(word.lower(), metavar=word, choices=choices or None, type=value_of(word))
        if verb.hosts and verb.playbooks:
            chosen = "; required" if verb.needs_hosts else "" if "hosts" in verb.exclusive else "; default: all"
            text = f"hosts, groups or patterns of the site{chosen}"
            one.add_argument("hosts", nargs="*", default=[], metavar="HOST", type=value_of("HOST"), help=text)
        runs = bool(verb.playbooks or verb.hosts)
        one.epilog = "What follows `--` is passed on to Ansible." if runs or name == "init" else None
        has = {
            "changes": verb.changes,
            "hosts": verb.hosts and verb.playbooks,
            "site": verb.hosts,
            "run": runs or name == "init",
            "json": runs,
        }
        for option in (*verb.options, *(each for part, listed in COMMON.items() if has[part] for each in listed)):
            _add_option(one, option)
    for flag, question in TABLE["questions"].items():
        verbs.choices["init"].add_argument(f"--{flag}", metavar="ANSWER", help=question["text"])
    every = verbs.choices
    Parser.known = [*every, *(word for one in every.values() for word in words_of(one) if len(word) > 2)]
    return parser


def _add_option(parser: argparse.ArgumentParser, option: Option) -> None:
    names = [*([f"-{option.letter}"] if option.letter else []), f"--{option.name}"]
    how: dict[str, Any] = {"action": option.action or ("store" if option.value else "store_true"), "help": option.help}
    how |= {"default": option.default} if option.default is not None else {}
    if option.value:
        how |= {"metavar": option.value, "choices": option.choices or None, "type": value_of(option.value)}
    parser.add_argument(*names, **how)


def words_of(parser: Any) -> list[str]:
    """Return what may follow a verb: its own verbs or choices, and its options."""
    listed = [action for action in parser._actions if not action.option_strings and action.choices]
    return [*(word for action in listed for word in action.choices), *parser._option_string_actions]


def _complete(given: argparse.Namespace) -> int:
    """Print the script for the shell; zsh reads the same one with bashcompinit."""
    if given.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(Path(__file__).with_name("completion.bash").read_text(encoding="utf-8"), end="")
    return 0


# The verbs that run no playbook.
RUNS = {"init": site.init, "lab": site.run_lab, "logs": hosts.show_logs, "chat": hosts.ask, "completion": _complete}
