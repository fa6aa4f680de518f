# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of two copies of a model's tensors a recipe reads: Mistral publishes them in both formats."""

from typing import Any, Iterator, Mapping, Sequence

_FLAG = "load-format"


def load_format_of(recipe: Mapping[str, Any]) -> str:
    """Return ``mistral`` where a recipe always reads that format, ``both`` where parts of it do, else ``auto``."""
    model = recipe.get("model")
    base = model.get("base_args") if isinstance(model, Mapping) else None
    if "mistral" in _formats(base):
        return "mistral"
    return "both" if "mistral" in _formats(recipe) else "auto"


def _formats(block: Any) -> Iterator[str]:
    """Yield each load format that a list of arguments below ``block`` names, however the flag is written."""
    if isinstance(block, Mapping):
        for entry in block.values():
            yield from _formats(entry)
    elif isinstance(block, Sequence) and not isinstance(block, str):
        words = [str(word) for word in block]
        for word, following in zip(words, [*words[1:], ""]):
            flag, equals, value = word.partition("=")
            if flag.lstrip("-").replace("_", "-") == _FLAG and flag.startswith("--"):
                yield value if equals else following
        for entry in block:
            yield from _formats(entry)
