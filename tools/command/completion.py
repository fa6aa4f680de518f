# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference completion bash|zsh`: verbs and options for the shell, from the same table as the command itself."""

from __future__ import annotations

import argparse
from typing import Any

from .verbs import VERBS

# zsh reads the same script with bashcompinit.
BASH = """\
_inference() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]:-}}
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{first}' -- "$word"))
    return
  fi
  case $verb in
{cases}
  esac
}}
complete -o default -F _inference inference
"""
OTHERS = ("init", "logs", "chat", "lab", "completion")
COMMON = "--inventory --extra-vars --verbose --json --help"


def add_verb(verbs: Any) -> None:
    """Add completion."""
    parser = verbs.add_parser("completion", help="print a script that completes verbs and options: bash or zsh")
    parser.add_argument("shell", choices=("bash", "zsh"))
    parser.set_defaults(verb="completion", run=show)


def show(given: argparse.Namespace) -> int:
    """Print the script for the shell."""
    words: dict[str, list[str]] = {name: [] for name in (*OTHERS, *(name.split()[0] for name in VERBS))}
    for name, verb in VERBS.items():
        first, _space, second = name.partition(" ")
        words[first] += [second] if second else []
        words[first] += [f"--{option.name}" for option in verb.options]
        words[first] += ["--check", "--diff"] if verb.changes else []
    words["lab"] = ["up", "down"]
    words["completion"] = ["bash", "zsh"]
    cases = "\n".join(
        f"    {name}) COMPREPLY=($(compgen -W '{' '.join([*found, COMMON])}' -- \"$word\")) ;;"
        for name, found in words.items()
    )
    if given.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(BASH.format(first=" ".join(words), cases=cases), end="")
    return 0
