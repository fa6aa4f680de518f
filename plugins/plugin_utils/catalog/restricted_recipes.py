# SPDX-License-Identifier: GPL-3.0-or-later
"""What the recipes of a directory set that an instance has to allow, before any of them is planned."""

from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from ..common.yaml import UnreadableError, read_yaml
from ..options.arguments import lay, read_words
from ..options.restricted import Restricted, Restrictions
from ..options.table import OptionTable

# The keys of a recipe's blocks that hold variables, and those that hold the words of a command.
_ENV = ("base_env", "env", "extra_env")
_WORDS = ("args", "base_args", "extra_args", "vllm_args")


def restricted_in(recipe: Any, table: OptionTable, restrictions: Restrictions) -> Iterator[Restricted]:
    """Yield the restricted settings of every block of a recipe."""
    if isinstance(recipe, Mapping):
        for key, value in recipe.items():
            if key in _ENV and isinstance(value, Mapping):
                yield from restrictions.of_env(value)
            elif key in _WORDS and isinstance(value, list):
                yield from restrictions.of_args(_arguments(value, table))
            else:
                yield from restricted_in(value, table, restrictions)
    elif isinstance(recipe, list):
        for item in recipe:
            yield from restricted_in(item, table, restrictions)


def _arguments(words: Sequence[Any], table: OptionTable) -> Mapping[str, Any]:
    args: Mapping[str, Any] = {}
    try:
        for setting in read_words(words, table):
            args = lay(args, setting)
    except ValueError:
        # The plan of the recipe refuses these words, and says where they are.
        return {}
    return args


def describe_restricted(
    directory: Path, names: Sequence[str], table: OptionTable, restrictions: Restrictions
) -> list[str]:
    """Return a sentence for each recipe of a directory that sets what an instance has to allow."""
    told = []
    for name in names:
        try:
            recipe = read_yaml(directory / f"{name}.yaml")
        except UnreadableError:
            # Check mode fetches nothing, and of a file that the site changed its plan says what is wrong.
            continue
        found = dict.fromkeys(
            each.name if each.name.isupper() else f"--{each.name}"
            for each in restricted_in(recipe, table, restrictions)
        )
        if found:
            told.append(f"{name} sets {', '.join(found)}, which an instance that uses it has to allow")
    return told
