# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference VERB [HOST...]`: one command in front of the collection's playbooks.

It chooses playbooks and variables, runs `ansible-playbook` and returns its status; -v prints the line.
"""

import argparse
import difflib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Callable, ClassVar, Mapping, NoReturn, Sequence

from . import playbooks, site
from .playbooks import TABLE, VERBS, Verb

USAGE = 64  # EX_USAGE of sysexits.h: no status of ansible-playbook


class Parser(argparse.ArgumentParser):
    """argparse, whose message names the nearest verb or option and whose status no run of Ansible has."""

    known: ClassVar[dict[str, list[str]]] = {}  # what may follow a verb, "" for none, for the nearest one

    def error(self, message: str, verb: str = "") -> NoReturn:
        words = [word for word in sys.argv[1:] if word in message and len(word) > 1 and "expected" not in message]
        line = " ".join(sys.argv[1:]) if self.prog == "inference" else ""
        verb = verb or next((name for name in VERBS if line.startswith(f"{name} ")), "")
        known = self.known.get(verb or self.prog[len("inference ") :], ())
        near = [match for word in words for match in difflib.get_close_matches(word, known, 1) if match != word]
        if near:
            message = re.sub(r" \(choose from .*\)$", "", message) + f"; nearest: {near[0]}"
        more = f"`{' '.join([self.prog, *verb.split()])} -h` lists what there is"
        raise playbooks.CommandError(f"{message.replace('argument ', '')}. {more}", self.prog)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit status."""
    own = sys.argv[1:] if arguments is None else list(arguments)
    own, passed_on = (own[: own.index("--")], own[own.index("--") + 1 :]) if "--" in own else (own, [])
    parser = make_parser()
    try:
        if own and own[0].startswith("-") and own[0] not in ("-h", "--help"):
            parser.error(f"{own[0]} stands before the verb; options follow it, as in `inference plan {own[0]}`")
        given = parser.parse_args(own, argparse.Namespace(passed_on=passed_on))
        return _run(parser, VERBS[given.verb], given)
    except (KeyboardInterrupt, EOFError):
        return 130
    except BrokenPipeError:  # the reader has ended, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (playbooks.CommandError, OSError) as exc:
        said = [f"{exc.filename}: {exc.strerror}"] if isinstance(exc, OSError) else exc.args
        print(text := f"{[*said[1:], parser.prog][0]}: {playbooks.printable(said[0])}", file=sys.stderr)
        if "--json" in own:
            playbooks.show_document({"ok": False, "problem": text}, USAGE)
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
    given_for = {**verb.words, **verb.options}
    values = {fields["variable"]: getattr(given, name.lower().replace("-", "_")) for name, fields in given_for.items()}
    return playbooks.run(given, verb, {name: value for name, value in values.items() if value})


def make_parser() -> Parser:
    """Return the parser of all verbs."""
    parser = Parser(prog="inference", description="Serve language models on bare metal, with Ansible's playbooks.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    keys = verbs.add_parser("key", help="the clients of the gateways: add, list, end")
    groups = {"": verbs, "key": keys.add_subparsers(metavar="VERB", required=True)}
    for name, verb in VERBS.items():
        first, _space, last = name.rpartition(" ")
        one = groups[first].add_parser(last, help=verb.help, description=f"{verb.help[0].upper()}{verb.help[1:]}.")
        one.set_defaults(verb=name)
        for word, fields in verb.words.items():
            text = " or ".join(fields.get("choices", ()))
            one.add_argument(word.lower(), metavar=word, choices=fields.get("choices"), type=value_of(word), help=text)
        if "hosts" in verb.common:
            chosen = "; required" if verb.needs_hosts else "" if "hosts" in verb.exclusive else "; default: all"
            text = f"hosts, groups or patterns of the site{chosen}"
            one.add_argument("hosts", nargs="*", default=[], metavar="HOST", type=value_of("HOST"), help=text)
        one.epilog = "What follows `--` is passed on to Ansible." if "run" in verb.common else None
        for table in (verb.options, *(TABLE["common"][part] for part in verb.common)):
            for option, fields in table.items():
                _add_option(one, option, fields)
    for flag, question in TABLE["questions"].items():
        verbs.choices["init"].add_argument(f"--{flag}", metavar="ANSWER", help=question["text"])
    named = {**verbs.choices, **{f"key {name}": one for name, one in groups["key"].choices.items()}}
    Parser.known = {"": [*verbs.choices], **{name: words_of(one) for name, one in named.items()}}
    return parser


def _add_option(parser: argparse.ArgumentParser, name: str, fields: Mapping[str, Any]) -> None:
    value, letter = fields.get("value"), fields.get("letter")
    how = {"metavar": value, "type": value_of(value)} if value else {"action": "store_const", "const": "true"}
    how |= {key: each for key, each in fields.items() if key not in ("variable", "letter", "value")}
    parser.add_argument(*([f"-{letter}"] if letter else []), f"--{name}", **how)


def value_of(word: str) -> Callable[[str], str]:
    """Return the function that checks a value: it is not empty, which for Ansible would often mean all."""
    allowed = TABLE["values"].get(word, {"pattern": r"(?s).*\S.*", "expected": "a value"})

    def check(text: str) -> str:
        if not re.fullmatch(allowed["pattern"], text, re.ASCII):
            found = repr(text) if text.strip() else "nothing"
            raise argparse.ArgumentTypeError(f"found {found}, expected {allowed['expected']}")
        if word == "NAME=VALUE" and text.startswith("@") and not Path(text[1:]).expanduser().is_file():
            raise argparse.ArgumentTypeError(f"{text[1:]!r} is no file")
        try:  # Ansible would blame the inventory
            json.loads(text if word == "NAME=VALUE" and text.lstrip()[0] in "{[" else "{}")
        except ValueError as exc:
            raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {exc}") from None
        return text

    return check


def words_of(parser: Any) -> list[str]:
    """Return what may follow a verb: its own verbs or choices, and its options."""
    listed = [action for action in parser._actions if not action.option_strings and action.choices]
    return [*(word for action in listed for word in action.choices), *parser._option_string_actions]


def _complete(_given: argparse.Namespace) -> int:
    """Print the script for the shells; zsh reads the same one with bashcompinit."""
    print(Path(__file__).with_name("completion.bash").read_text(encoding="utf-8"), end="")
    return 0


# The verbs that run no playbook.
RUNS = {"init": site.init, "lab": site.lab, "logs": playbooks.logs, "chat": playbooks.chat, "completion": _complete}
