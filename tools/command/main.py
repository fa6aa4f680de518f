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
from .verbs import VERBS, Verb

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
    if passed_on and "extra_vars" not in given:
        parser.error(f"{given.verb} runs nothing of Ansible that could take {passed_on[0]}")
    try:
        if given.verb in VERBS:
            return _run_playbooks(parser, VERBS[given.verb], given)
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


def _run_playbooks(parser: Parser, verb: Verb, given: argparse.Namespace) -> int:
    """Run a verb. Ends with a usage error where hosts are missing, or not exactly one of its alternatives is given."""
    given.hosts = [*getattr(given, "hosts", ()), *getattr(given, "more_hosts", ())]
    if verb.needs_hosts and not given.hosts:
        parser.error(f"{given.verb} would concern every host: name HOST, a group or a pattern")
    if verb.exclusive:
        words = {name: "HOST" if name == "hosts" else f"--{name}" for name in verb.exclusive}
        chosen = [word for name, word in words.items() if getattr(given, name, None)]
        if len(chosen) != 1 and len(words) == 1:
            parser.error(f"{given.verb} needs {words.popitem()[1]}")
        if len(chosen) != 1:
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
        _add_verb(groups[first].add_parser(last, help=verb.help), name, verb)
    for name, run, text, words in (
        ("init", site.init, "write a new site: six questions, or flags", ("directory",)),
        ("logs", hosts.show_logs, "show the journal of an instance", ("host", "instance")),
        ("chat", hosts.ask, "ask an instance one question, on its host", ("host", "instance", "question")),
        ("lab", site.run_lab, "a mirror and a server on this machine, with a real vLLM: up, down (checkout only)", ()),
        ("completion", _complete, "print a script that completes verbs and options: bash or zsh", ()),
    ):
        one = verbs.add_parser(name, help=text)
        one.set_defaults(verb=name, run=run, parser=parser)
        for word in words:
            one.add_argument(word, metavar="DIR" if word == "directory" else word.upper(), type=_text)
        if "host" in words:
            _add_options(one)
    choices = verbs.choices
    choices["logs"].add_argument("-n", "--lines", default="100", metavar="NUMBER", help="the last lines (100)")
    choices["logs"].add_argument("--since", metavar="TIME", help="as journalctl takes it, such as --since=-1h")
    choices["lab"].add_argument("direction", choices=("up", "down"))
    choices["completion"].add_argument("shell", choices=("bash", "zsh"))
    for question in site.QUESTIONS:
        choices["init"].add_argument(f"--{question.flag}", metavar="ANSWER", help=question.text)
    asks = "do not ask the servers for their accelerators over SSH"
    choices["init"].add_argument("--no-detect", action="store_true", help=asks)
    Parser.known = [*choices, *(word for one in choices.values() for word in _words_of(one) if len(word) > 2)]
    return parser


def _add_verb(parser: argparse.ArgumentParser, name: str, verb: Verb) -> None:
    parser.description = f"{verb.help[0].upper()}{verb.help[1:]}."
    parser.epilog = "What follows `--` is passed on to ansible-playbook."
    parser.set_defaults(verb=name)
    add = parser.add_argument
    if verb.client:
        add("name", metavar="NAME", type=_text, help="the client")
    if verb.hosts:
        chosen = "; required" if verb.needs_hosts else "" if "hosts" in verb.exclusive else "; default: all"
        which = f"hosts, groups or patterns of the site{chosen}"
        add("hosts", nargs="*", default=[], metavar="HOST", type=_text, help=which)
        add("-l", dest="more_hosts", action="append", default=[], metavar="HOST", type=_text, help="as HOST")
    for option in verb.options:
        one = f"--{option.name}"
        if option.value:
            add(one, help=option.help, metavar=option.value, choices=option.choices or None, type=_text)
        else:
            add(one, help=option.help, action="store_true")
    _add_options(parser, bool(verb.hosts), verb.changes)


def _add_options(parser: argparse.ArgumentParser, has_site: bool = True, changes: bool = False) -> None:
    """Add the options that verbs have in common: those of a site, and those that try a change."""
    add = parser.add_argument
    if has_site:
        where = "the directory of the site; default: ANSIBLE_INVENTORY, or this directory"
        add("-i", "--inventory", action="append", metavar="SITE", type=_text, help=where)
        add("-u", "--user", metavar="USER", type=_text, help="log in as USER")
        add("-K", "--ask-become-pass", action="store_true", help="ask for the password of sudo")
        add("-J", "--ask-vault-pass", action="store_true", help="ask for the password of the vault")
    more = "another variable of the playbook"
    add(
        "-e",
        "--extra-vars",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=playbooks.extra_variable,
        help=more,
    )
    add("-v", "--verbose", action="count", default=0, help="print the line of Ansible; -vv has it print more itself")
    add("--json", action="store_true", help="print one JSON document")
    if changes:
        add("-C", "--check", action="store_true", help="show what would change, and change nothing")
        add("-D", "--diff", action="store_true", help="show the lines that change")


def _text(text: str) -> str:
    """Return a value that is not empty: for Ansible an empty one would often mean all."""
    if not text.strip():
        raise argparse.ArgumentTypeError("found nothing, expected a value")
    return text


def _words_of(parser: Any) -> list[str]:
    """Return what may follow a verb: its own verbs or choices, and its options."""
    listed = [action for action in parser._actions if not action.option_strings and action.choices]
    return [*(word for action in listed for word in action.choices), *parser._option_string_actions]


def _complete(given: argparse.Namespace) -> int:
    """Print the script for the shell, from the parser itself."""
    words = {"": _words_of(given.parser)}
    words |= {name: _words_of(verb) for name, verb in given.parser._subparsers._group_actions[0].choices.items()}
    words["key"] += [f"--{option.name}" for option in VERBS["key add"].options]
    case = "    '{}') COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;"
    if given.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(BASH % "\n".join(case.format(name, " ".join(listed)) for name, listed in words.items()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
