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
from typing import NoReturn, Sequence

from . import completion, hosts, playbooks, site
from .verbs import NAMES, VERBS, Verb

# EX_USAGE of sysexits.h: no status of ansible-playbook.
USAGE = 64


class Parser(argparse.ArgumentParser):
    """argparse, whose message names the nearest verb or option and whose status no run of Ansible has."""

    def error(self, message: str) -> NoReturn:
        words = [word for word in sys.argv[1:] if word in message and len(word) > 1]
        known = [*VERBS, *(f"--{option.name}" for verb in VERBS.values() for option in verb.options), *site.WORDS]
        near = [match for word in words for match in difflib.get_close_matches(word, known, n=1) if match != word]
        hint = f"; nearest: {near[0]}" if near else ""
        message = re.sub(r" \(choose from .*\)$", "", message) if near else message
        self.exit(
            USAGE, f"{self.prog}: {message.replace('argument ', '')}{hint}. `{self.prog} -h` lists what there is\n"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit status."""
    own, passed_on = _split(sys.argv[1:] if arguments is None else list(arguments))
    parser = make_parser()
    if own and own[0].startswith("-") and own[0] not in ("-h", "--help"):
        parser.error(f"{own[0]} stands before the verb; options follow it, as in `inference plan {own[0]}`")
    given = parser.parse_args(own, argparse.Namespace(passed_on=passed_on))
    if passed_on and "extra_vars" not in given:
        parser.error(f"{given.verb} runs nothing of Ansible that could take {passed_on[0]}")
    try:
        if given.verb in VERBS:
            return _run_playbooks(parser, given)
        status: int = given.run(given)
        return status
    except playbooks.CommandError as exc:
        print(f"inference: {hosts.printable(exc)}", file=sys.stderr)
        return USAGE
    except (KeyboardInterrupt, EOFError):
        return 130
    except BrokenPipeError:  # the reader has ended, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as exc:
        print(f"inference: {exc.filename}: {exc.strerror}", file=sys.stderr)
        return USAGE


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return what stands before `--`, for this command, and what stands behind it, for ansible-playbook."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _run_playbooks(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    verb = VERBS[given.verb]
    _check(parser, verb, given)
    variables = {
        option.variable: value if option.value else (*option.choices, "true")[0]
        for option in verb.options
        if (value := getattr(given, option.name.replace("-", "_")))
    }
    if given.verb in NAMES:
        variables[NAMES[given.verb]] = given.name
    return playbooks.run(given, verb, variables)


def _check(parser: argparse.ArgumentParser, verb: Verb, given: argparse.Namespace) -> None:
    """End with a usage error where hosts are missing, or not exactly one of the verb's alternatives is given."""
    given.hosts = [*getattr(given, "hosts", ()), *getattr(given, "more_hosts", ())]
    if verb.needs_hosts and not given.hosts:
        parser.error(f"{given.verb} would concern every host: name HOST, a group or a pattern")
    chosen = [name for name in verb.exclusive if getattr(given, name, None)]
    if verb.exclusive and len(chosen) != 1:
        words = ["HOST" if name == "hosts" else f"--{name}" for name in verb.exclusive]
        if len(words) == 1:
            parser.error(f"{given.verb} needs {words[0]}")
        found = " and ".join("HOST" if name == "hosts" else f"--{name}" for name in chosen) or "none"
        parser.error(f"{given.verb} takes exactly one of {', '.join(words)}; found {found}")


def make_parser() -> Parser:
    """Return the parser of all verbs."""
    parser = Parser(
        prog="inference",
        description="Serve language models on bare metal: one command in front of Ansible's playbooks.",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    groups: dict[str, argparse._SubParsersAction[Parser]] = {}
    for name, verb in VERBS.items():
        first, _space, second = name.partition(" ")
        if second and first not in groups:
            group = verbs.add_parser(first, help="the clients of the gateways: add, list, end")
            groups[first] = group.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
        _add_verb((groups[first] if second else verbs).add_parser(second or first, help=verb.help), name, verb)
    for add in (site.add_verbs, hosts.add_verbs, completion.add_verb):
        add(verbs)
    return parser


def _add_verb(parser: argparse.ArgumentParser, name: str, verb: Verb) -> None:
    parser.description = f"{verb.help[0].upper()}{verb.help[1:]}."
    parser.epilog = "What follows `--` is passed on to ansible-playbook."
    parser.set_defaults(verb=name)
    if name in NAMES:
        parser.add_argument("name", metavar="NAME", help="the client")
    if verb.hosts:
        chosen = "; required" if verb.needs_hosts else "" if "hosts" in verb.exclusive else "; default: all"
        which = f"hosts, groups or patterns of the site{chosen}"
        parser.add_argument("hosts", nargs="*", metavar="HOST", type=playbooks.some_text, help=which)
        parser.add_argument(
            "-l",
            dest="more_hosts",
            action="append",
            default=[],
            metavar="HOST",
            type=playbooks.some_text,
            help="as HOST",
        )
    for option in verb.options:
        if option.value:
            parser.add_argument(
                f"--{option.name}", help=option.help, metavar=option.value, choices=option.choices or None,
                type=playbooks.some_text,
            )  # fmt: skip
        else:
            parser.add_argument(f"--{option.name}", help=option.help, action="store_true")
    playbooks.add_options(parser, bool(verb.hosts), verb.changes)


if __name__ == "__main__":
    sys.exit(main())
