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
from typing import Any, ClassVar, NoReturn, Sequence

from . import hosts, playbooks, site
from .verbs import VERBS, Verb, value_of

# EX_USAGE of sysexits.h: no status of ansible-playbook.
USAGE = 64
# zsh reads the same script with bashcompinit.
BASH = """\
_inference() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]:-}
  if ((COMP_CWORD == 1)); then verb=; fi
  case $verb in
%s
  esac
}
complete -o default -F _inference inference
"""


class Parser(argparse.ArgumentParser):
    """argparse, whose message names the nearest verb or option and whose status no run of Ansible has."""

    # All verbs and options, for the nearest one.
    known: ClassVar[list[str]] = []

    def error(self, message: str) -> NoReturn:
        words = [word for word in sys.argv[1:] if word in message and len(word) > 1]
        near = [match for word in words for match in difflib.get_close_matches(word, self.known, 1) if match != word]
        hint = f"; nearest: {near[0]}" if near else ""
        message = re.sub(r" \(choose from .*\)$", "", message) if near else message
        message = message.replace("argument ", "")
        self.exit(USAGE, f"{self.prog}: {message}{hint}. `{self.prog} -h` lists what there is\n")


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


def _run(parser: Parser, verb: Verb, given: argparse.Namespace) -> int:
    """Run a verb. Ends with a usage error where hosts are missing, or not exactly one of its alternatives is given."""
    if given.passed_on and "extra_vars" not in given:
        parser.error(f"{given.verb} runs nothing of Ansible that could take {given.passed_on[0]}")
    if verb.run:
        return RUNS[verb.run](given)
    given.hosts = [*getattr(given, "hosts", ()), *getattr(given, "more_hosts", ())]
    if verb.needs_hosts and not given.hosts:
        parser.error(f"{given.verb} would concern every host: name HOST, a group or a pattern")
    words = {name: "HOST" if name == "hosts" else f"--{name}" for name in verb.exclusive}
    chosen = [word for name, word in words.items() if getattr(given, name, None)]
    if len(words) == 1 and not chosen:
        parser.error(f"{given.verb} needs {words.popitem()[1]}")
    if words and len(chosen) != 1:
        found = " and ".join(chosen) or "none"
        parser.error(f"{given.verb} takes exactly one of {', '.join(words.values())}; found {found}")
    variables = {
        option.variable: value if option.value else (*option.choices, "true")[0]
        for option in verb.options
        if (value := getattr(given, option.name.replace("-", "_")))
    }
    return playbooks.run(given, verb, variables | ({verb.client: given.name} if verb.client else {}))


def make_parser() -> Parser:
    """Return the parser of all verbs."""
    parser = Parser(
        prog="inference",
        description="Serve language models on bare metal: one command in front of Ansible's playbooks.",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    keys = verbs.add_parser("key", help="the clients of the gateways: add, list, end")
    groups = {"": verbs, "key": keys.add_subparsers(metavar="VERB", required=True, parser_class=Parser)}
    for name, verb in VERBS.items():
        first, _space, last = name.rpartition(" ")
        one = groups[first].add_parser(last, help=verb.help, description=f"{verb.help[0].upper()}{verb.help[1:]}.")
        one.set_defaults(verb=name)
        _add_words(one, verb)
        if verb.playbooks or "HOST" in verb.words or name == "init":
            one.epilog = "What follows `--` is passed on to Ansible."
            _add_common(one, verb)
    for question in site.QUESTIONS:
        verbs.choices["init"].add_argument(f"--{question.flag}", metavar="ANSWER", help=question.text)
    every = verbs.choices
    Parser.known = [*every, *(word for one in every.values() for word in _words_of(one) if len(word) > 2)]
    return parser


def _add_words(parser: argparse.ArgumentParser, verb: Verb) -> None:
    """Add what is a verb's own: its words, its hosts and its options."""
    add = parser.add_argument
    for word, _colon, choices in (word.partition(":") for word in verb.words):
        add(word.lower(), metavar=word, choices=choices.split("|") if choices else None, type=value_of(word))
    if verb.hosts and not verb.run:
        chosen = "; required" if verb.needs_hosts else "" if "hosts" in verb.exclusive else "; default: all"
        which = f"hosts, groups or patterns of the site{chosen}"
        add("hosts", nargs="*", default=[], metavar="HOST", type=value_of("HOST"), help=which)
        add("-l", dest="more_hosts", action="append", default=[], metavar="HOST", type=value_of("HOST"), help="as HOST")
    how: dict[str, Any]
    for option in verb.options:
        names = [*([f"-{option.letter}"] if option.letter else []), f"--{option.name}"]
        if option.value:
            how = {"metavar": option.value, "choices": option.choices or None, "type": value_of(option.value)}
        else:
            how = {"action": "store_true"}
        add(*names, help=option.help, **how)


def _add_common(parser: argparse.ArgumentParser, verb: Verb) -> None:
    """Add the options that verbs have in common: those of a site, those of a run, and those that try a change."""
    add, text = parser.add_argument, value_of("TEXT")
    if verb.hosts:
        where = "the directory of the site; default: ANSIBLE_INVENTORY, or this directory"
        add("-i", "--inventory", action="append", metavar="SITE", type=text, help=where)
        add("-u", "--user", metavar="USER", type=text, help="log in as USER")
        add("-K", "--ask-become-pass", action="store_true", help="ask for the password of sudo")
        add("-J", "--ask-vault-pass", action="store_true", help="ask for the password of the vault")
    more, form = "another variable of the playbook", playbooks.extra_variable
    add("-e", "--extra-vars", action="append", default=[], metavar="NAME=VALUE", type=form, help=more)
    add("-v", "--verbose", action="count", default=0, help="print the line of Ansible; -vv has it print more itself")
    if not verb.run or verb.hosts:
        add("--json", action="store_true", help="print one JSON document")
    if verb.changes:
        add("-C", "--check", action="store_true", help="show what would change, and change nothing")
        add("-D", "--diff", action="store_true", help="show the lines that change")


def _words_of(parser: Any) -> list[str]:
    """Return what may follow a verb: its own verbs or choices, and its options."""
    listed = [action for action in parser._actions if not action.option_strings and action.choices]
    return [*(word for action in listed for word in action.choices), *parser._option_string_actions]


def _complete(given: argparse.Namespace) -> int:
    """Print the script for the shell, from the parser itself."""
    parser: Any = make_parser()
    words = {"": _words_of(parser)}
    words |= {name: _words_of(verb) for name, verb in parser._subparsers._group_actions[0].choices.items()}
    words["key"] += [f"--{option.name}" for option in VERBS["key add"].options]
    case = "    '{}') COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;"
    if given.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(BASH % "\n".join(case.format(name, " ".join(listed)) for name, listed in words.items()), end="")
    return 0


# The verbs that run no playbook.
RUNS = {"init": site.init, "lab": site.run_lab, "logs": hosts.show_logs, "chat": hosts.ask, "completion": _complete}

if __name__ == "__main__":
    sys.exit(main())
