# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the words behind ``vllm serve`` as vLLM's parser does: the model, and each flag with its values."""

import re
from dataclasses import dataclass, field
from typing import Any, Iterator, Sequence

from ..options.arguments import Setting, read_words
from ..options.table import SHORT_LEVEL, Flag, OptionTable
from ..options.values import Entry
from .redaction import show_word
from .shell import FLAG, CommandError, as_written


@dataclass(frozen=True)
class Given:
    """One flag of a command: as it is written, its values, and its settings in the release's spelling."""

    flag: str
    values: list[str]
    settings: list[Setting] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The release's name of the flag, or the given one where the release has none."""
        return self.settings[0].name if self.settings else self.flag.lstrip("-")


def read_flags(words: Sequence[str], table: OptionTable, others: Sequence[OptionTable]) -> tuple[str, list[Given]]:
    """Return the model (empty without one) and the flags. Raises CommandError for a word that belongs to none."""
    model = ""
    found: list[Given] = []
    for flag, values in _grouped(words):
        if flag == "-O" and values:
            flag, values = f"-O{values[0]}", values[1:]
        spelled, entry = _entry(flag, table, others)
        takes = 0 if not flag or SHORT_LEVEL.match(flag) else _count(entry, values)
        for extra in values[takes:]:
            if entry and entry["kind"] == "switch" and extra.lower() in ("true", "false"):
                off = f"--no-{flag.lstrip('-').replace('_', '-')}" if entry.get("negatable") else "nothing"
                raise CommandError(
                    f"found {show_word(extra)} behind {flag}, a switch without a value; "
                    f"write it alone for true, {off} for false"
                )
            if model:
                raise CommandError(
                    f"found {show_word(as_written(extra))}"
                    + (f" behind {flag}" if flag else "")
                    + ", which belongs to no flag "
                    "of vLLM; expected the model once, and flags"
                )
            model = extra
        if flag:
            taken = values[:takes]
            if entry and entry.get("repeat"):
                before = next((given.values for given in reversed(found) if given.flag == flag), [])
                taken = before + taken
            found.append(Given(flag, taken, read_words([spelled, *taken], table)))
    named = [given.values[0] for given in found if given.name == "model" and given.values]
    if named and model and named[0] != model:
        raise CommandError(
            f"found two models, {show_word(as_written(model))} and {show_word(as_written(named[0]))}, expected one"
        )
    return (named[0] if named else model), [given for given in found if given.name != "model"]


def _grouped(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each flag with the words up to the next one; a flag is empty for the words before the first."""
    flag: str = ""
    values: list[str] = []
    for word in words:
        if not FLAG.match(word):
            values.append(word)
            continue
        yield flag, values
        # Some people write a flag and its value as one quoted word.
        found = re.match(r"(--?[\w.+-]+)(?:=|\s+)(.*)\Z", word, re.S)
        flag, values = (found.group(1), [found.group(2)]) if found else (word, [])
    yield flag, values


def _entry(flag: str, table: OptionTable, others: Sequence[OptionTable]) -> tuple[str, Entry | None]:
    """Return a flag's whole spelling and its entry, of another release where this one has none; None if none has it."""
    for each in (table, *reversed(others)):
        known = each.canonical(flag) or (_beginning(flag, each) if each is table else None)
        if known:
            spelled = flag if each.canonical(flag) else f"--{'no-' if known.off else ''}{known.name}"
            entry: Any = {"kind": "text"} if known.keys else each.flags[known.name]
            return spelled, entry
    return flag, None


def _beginning(flag: str, table: OptionTable) -> Flag | None:
    """Return the flag that begins so, where it is only one: vLLM's parser accepts it."""
    if not flag.startswith("--") or "." in flag:
        return None
    found = {known for word, known in table.spellings.items() if word.startswith(flag.replace("_", "-"))}
    return found.pop() if len(found) == 1 else None


def _count(entry: Entry | None, values: Sequence[str]) -> int:
    """Return how many of the words behind a flag are its values; what follows them is the model."""
    if entry is None or entry["kind"] == "list":
        return len(values)
    return 0 if entry["kind"] == "switch" else min(1, len(values))
