# SPDX-License-Identifier: GPL-3.0-or-later
"""The single settings of a guide's command, a ``--config`` file or a recipe."""

import json
import re
import shlex
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ...module_utils.common.kinds import show_value
from ..planning.conditions import holds
from ..planning.hardware import Accelerator, exact_blocks, generation_blocks

# Keys of a recipe that hold command words and variables, and the parts that hold neither.
ARGS = ("base_args", "extra_args", "vllm_args", "args")
ENV = ("base_env", "extra_env", "env")
NOT_COMPOSED = ("meta", "dependencies", "guide", "guards", "known_issues", "when", "unless", "install")

_SERVE = r"(?:vllm\s+serve|python3?\s+-m\s+vllm\.entrypoints\.openai\.api_server)(?=\s|$)"
_COMMAND = re.compile(r"(?:[$>]\s+)?((?:(?:sudo|exec|nohup|env)\s+)*(?:[A-Za-z_]\w*=\S*\s+)*" + _SERVE + ".*)", re.S)
_EXPORT = re.compile(r"(?:[$>]\s+)?(export\s+[A-Za-z_]\w*=.*)", re.S)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_FLAG = re.compile(r"--?[A-Za-z]")
# A word of these characters ends a command.
_ENDS = ";&|<>"


class DriftError(ValueError):
    """The input cannot be read; the message is the whole sentence for the user."""


class Use(NamedTuple):
    """One setting as it is written: ``name`` is a flag with its dashes, or a variable."""

    name: str
    value: Any
    where: str
    older: bool = True
    newer: bool = True


def command_uses(text: str, file: str) -> list[Use]:
    """Return the settings in a guide's shell text: ``export NAME=..`` lines and the words of ``vllm serve``.

    Everything else is ignored, so a whole page can be passed. Raises DriftError that names the line.
    """
    uses: list[Use] = []
    for number, line in _joined(text):
        where = f"{file}:{number}"
        for pattern, read in ((_EXPORT, _exports), (_COMMAND, _serves)):
            found = pattern.match(line)
            if found:
                try:
                    words = list(_shell_words(found.group(1)))
                except ValueError as exc:
                    raise DriftError(f"{where}: {exc}; expected words of a shell, found {show_value(line)}") from exc
                uses += read(words, where)
    return uses


def config_uses(config: Mapping[str, Any], file: str) -> list[Use]:
    """Return the settings in the keys of a ``--config`` file."""
    return [Use(f"--{name}", value, file) for name, value in config.items()]


def recipe_uses(recipe: Mapping[str, Any], older: str, newer: str, accelerator: Accelerator | None = None) -> list[Use]:
    """Return the settings in the blocks of a recipe for two releases, for one accelerator or for all.

    Rules are evaluated by release and hardware; every other condition of a rule counts as met.
    """
    found: dict[str, Use] = {}
    for version in dict.fromkeys((older, newer)):
        facts: dict[str, Any] = {"vllm": version}
        if accelerator is not None:
            facts.update(accelerator=accelerator.ids, generation=accelerator.generations, stack=accelerator.stack)
        for use in _walk(recipe, (), facts, accelerator):
            key = json.dumps([use.name, use.value, use.where], default=str)
            before = found.get(key, use._replace(older=False, newer=False))
            found[key] = before._replace(older=before.older or version == older, newer=before.newer or version == newer)
    return list(found.values())


# Settings in guides


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a shell text with the number of their first line: a backslash at the end joins lines."""
    start, held = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        start = start if held else number
        body = line.strip()
        if body.endswith("\\"):
            held += body[:-1] + " "
            continue
        if held + body:
            yield start, (held + body).strip()
        held = ""


def _shell_words(line: str) -> Iterator[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_ENDS)
    lexer.whitespace_split = True
    lexer.commenters = ""
    for word in lexer:
        if word.startswith("#") or set(word) <= set(_ENDS):
            return
        yield word


def _exports(words: Sequence[str], where: str) -> list[Use]:
    found = [_ASSIGNMENT.fullmatch(word) for word in words[1:]]
    return [Use(match.group(1), match.group(2), where) for match in found if match]


def _serves(words: Sequence[str], where: str) -> list[Use]:
    """Return the variables before the command and the flags after it."""
    uses: list[Use] = []
    command = next(index for index, word in enumerate(words) if word == "vllm" or word.startswith("python"))
    for word in words[:command]:
        found = _ASSIGNMENT.fullmatch(word)
        if found:
            uses.append(Use(found.group(1), found.group(2), where))
    # `serve MODEL` or `-m MODULE`: a word that no flag takes as its value is not a setting.
    return uses + _flags(words[command + (2 if words[command] == "vllm" else 3) :], where)


def _flags(words: Sequence[Any], where: str) -> list[Use]:
    uses: list[Use] = []
    for word in (str(word) for word in words):
        if _FLAG.match(word):
            short = re.fullmatch(r"(-O)=?(\w+)", word)
            name, found, value = word.partition("=")
            uses.append(Use(word, short.group(2), where) if short else Use(name, value if found else True, where))
        elif uses:
            before = uses[-1].value
            words_before = before if isinstance(before, list) else [before]
            uses[-1] = uses[-1]._replace(value=word if before is True else [*words_before, word])
    return uses


# Settings in recipes


def _walk(node: Any, path: tuple[str, ...], facts: Mapping[str, Any], accelerator: Accelerator | None) -> Iterator[Use]:
    if isinstance(node, list):
        for number, entry in enumerate(node):
            if isinstance(entry, Mapping) and _may_apply(entry, facts):
                yield from _walk(entry, (*path[:-1], f"{path[-1]}[{number}]"), facts, accelerator)
        return
    if accelerator is not None and not _meant_for(node, accelerator):
        return
    where = ".".join(path)
    for key, entry in node.items():
        if key in ARGS and isinstance(entry, list):
            yield from _flags(entry, where)
        elif key in ENV and isinstance(entry, Mapping):
            yield from (Use(name, None if value is None else str(value), where) for name, value in entry.items())
        elif key == "hardware_overrides" and isinstance(entry, Mapping):
            for name, block in _blocks(entry, accelerator):
                yield from _walk(block or {}, (*path, key, name), facts, accelerator)
        elif key not in NOT_COMPOSED and isinstance(entry, (Mapping, list)):
            yield from _walk(entry, (*path, str(key)), facts, accelerator)


def _meant_for(block: Mapping[str, Any], accelerator: Accelerator) -> bool:
    """Return whether a variant, feature or mode of a recipe can be on with this hardware."""
    supported = block.get("supported_hardware")
    if supported and not {str(name) for name in supported} & set(accelerator.names):
        return False
    gates = block.get("hardware")
    return not isinstance(gates, Mapping) or accelerator.pick(gates) != "unsupported"


def _blocks(overrides: Mapping[str, Any], accelerator: Accelerator | None) -> list[tuple[str, Any]]:
    if accelerator is None:
        return list(overrides.items())
    return [*generation_blocks(accelerator, overrides), *exact_blocks(accelerator, overrides)]


def _may_apply(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return whether a rule can apply, by the known facts: the release and perhaps the hardware."""
    if any(holds(name, wanted, facts) is False for name, wanted in (rule.get("when") or {}).items()):
        return False
    exception = rule.get("unless") or {}
    return not (exception and all(holds(name, wanted, facts) for name, wanted in exception.items()))
