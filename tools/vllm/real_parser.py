#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse commands with a vLLM's own command line: a line of JSON in, a line of JSON out, until the input ends.

    PYTHON tools/vllm/real_parser.py        PYTHON can import that vLLM (a CPU build needs no accelerator)

The first line that it writes is {"version": "0.33.0"}. A request is a list of words: `vllm serve MODEL --flag ...`, or
a Python's `-m vllm.entrypoints.openai.api_server --flag ...`; `--config FILE` is read as vLLM reads it. The answer is
{"namespace": {name: value}} with every argument that is not at its default, or {"error": "the parser's message"}.
Building the parser takes seconds, an answer takes milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

# Where a release builds the command line of `vllm serve`: newest first.
CLI_MODULES = (
    "vllm.entrypoints.common.cli_args",  # 0.33
    "vllm.entrypoints.launchers.cli_args",  # 0.32
    "vllm.entrypoints.openai.cli_args",  # 0.25 and older
)
SERVER_MODULE = "vllm.entrypoints.openai.api_server"
# Attributes of the subcommand itself, not of the arguments: its name, and the function that runs it.
FRAME = ("dispatch_function", "subparser")


class Refused(Exception):  # noqa: N818 - what a parser does, not a fault of this program
    """The parser rejects the arguments; the message is the parser's own."""


def flexible_parser() -> type[argparse.ArgumentParser]:
    """Return vLLM's parser class, with an error() that raises and does not end the process."""
    try:
        module = importlib.import_module("vllm.utils.argparse_utils")
    except ModuleNotFoundError:  # 0.11 and older
        module = importlib.import_module("vllm.utils")

    class Parser(module.FlexibleArgumentParser):  # type: ignore[misc,name-defined]
        def error(self, message: str) -> Any:
            raise Refused(message)

    return Parser


def cli_module() -> Any:
    """Return the module with the arguments of `vllm serve`."""
    for name in CLI_MODULES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as exc:
            if not name.startswith(str(exc.name)):
                raise
    raise SystemExit(f"no vLLM with a known command line; expected one of {', '.join(CLI_MODULES)}")


class CommandLine:
    """Both ways to start a server: a subcommand of `vllm`, whose --config the outer parser reads, and the module."""

    def __init__(self) -> None:
        cli = cli_module()
        parser_class = flexible_parser()
        self.validate: Callable[[argparse.Namespace], None] = cli.validate_parsed_serve_args
        self.module = cli.make_arg_parser(parser_class())
        self.command = parser_class()
        subparsers = self.command.add_subparsers(required=False, dest="subparser")
        # What vllm/entrypoints/cli/serve.py does; importing that would need every library of a server.
        cli.make_arg_parser(subparsers.add_parser("serve"))
        self.defaults = {
            parser: self.parse(parser, words)
            for parser, words in ((self.module, ["--model", "m"]), (self.command, ["serve", "m"]))
        }

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of a command that differ from the parser's defaults.

        Raises Refused where vLLM would not start with these arguments.
        """
        if list(words[:2]) == ["vllm", "serve"]:
            parser, rest = self.command, list(words[1:])
        elif SERVER_MODULE in words:
            parser, rest = self.module, list(words[words.index(SERVER_MODULE) + 1 :])
        else:
            raise Refused(f"expected `vllm serve ...` or `... -m {SERVER_MODULE} ...`")
        defaults = self.defaults[parser]
        found = self.parse(parser, rest)
        # Some flags, such as --log-level, have no default at all.
        return {name: value for name, value in found.items() if name == "model" or value != defaults.get(name)}

    def parse(self, parser: argparse.ArgumentParser, words: Sequence[str]) -> dict[str, Any]:
        """Return all arguments, as plain data."""
        try:
            namespace = parser.parse_args(list(words))
            # Like ServeSubcommand: the word after `serve` is the model.
            if getattr(namespace, "model_tag", None):
                namespace.model = namespace.model_tag
            self.validate(namespace)
        except SystemExit as exc:
            raise Refused(f"the parser ended the process with {exc.code}") from exc
        except Refused:
            raise
        except Exception as exc:
            raise Refused(f"{type(exc).__name__}: {exc}") from exc
        return {
            name: plain(value) for name, value in vars(namespace).items() if name not in FRAME and name != "model_tag"
        }


def plain(value: Any) -> Any:
    """Return a value as data that compares: configs as their fields, enums and dtypes as text."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(str(plain(item)) for item in value)
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    # The text of any other object may hold its address.
    text = str(value)
    return type(value).__name__ if " at 0x" in text else text


@contextlib.contextmanager
def answers() -> Iterator[IO[str]]:
    """Yield the standard output, while whatever vLLM prints goes to the standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        yield output


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with answers() as output:
        # vLLM's argument code looks for --help and subcommands here.
        sys.argv = ["vllm", "serve"]
        command_line = CommandLine()
        version = importlib.import_module("vllm").__version__.partition("+")[0]
        print(json.dumps({"version": version}), file=output, flush=True)
        for line in sys.stdin:
            try:
                answer: dict[str, Any] = {"namespace": command_line.read(json.loads(line))}
            except Refused as exc:
                answer = {"error": str(exc)}
            print(json.dumps(answer, default=str), file=output, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
