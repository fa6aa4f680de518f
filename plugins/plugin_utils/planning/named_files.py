# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that arguments name by a relative path: chat templates and the plugins of parsers.

Upstream's recipes name them as they are in the working directory of vLLM's images. Whether they are elsewhere depends
on the runtime.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping

from ...module_utils.vllm.files import CHAT_TEMPLATES, LIBRARY
from ..options.table import Doubt

TEMPLATE = "chat-template"
FLAGS = (TEMPLATE, "reasoning-parser-plugin", "tool-parser-plugin")
EXAMPLES = "examples/"
# Templates that vLLM has itself, and those of its examples.
_OWN, _EXAMPLE = re.compile(r"template_\w+\.jinja"), re.compile(r"examples/(?:[\w-]+/)*[\w.-]+\.jinja")
# Stacks whose images have vLLM's examples in their working directory.
WITH_EXAMPLES = ("cuda", "cpu")


def named(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each flag with the path that it names; a chat template may be the text itself."""
    for flag in FLAGS:
        value = args.get(flag)
        if isinstance(value, str) and value and not {*value} & {*"{}\n"}:
            yield flag, value


def with_files(
    args: Mapping[str, Any], manifest: Mapping[str, Any] | None, weights: str | None, examples: bool
) -> dict[str, Any]:
    """Return the arguments with the host's path of each file that comes with the weights or with this collection.

    ``examples`` says that the image has vLLM's examples.
    """
    found = dict(args)
    for flag, value in named(args):
        if value in ((manifest or {}).get("files") or {}):
            found[flag] = f"{weights}/{value}"
        elif flag == TEMPLATE and not examples and value in [EXAMPLES + name for name in CHAT_TEMPLATES]:
            found[flag] = f"{LIBRARY}/{value[len(EXAMPLES) :]}"
    return found


def _is_of_vllm(value: str, examples: bool) -> bool:
    """Return whether vLLM brings a chat template: by a name among its own, or with the ``examples`` of its image."""
    return bool(_OWN.fullmatch(value) or (examples and _EXAMPLE.fullmatch(value)))


def file_problems(args: Mapping[str, Any], pinned: bool, examples: bool) -> Iterator[str]:
    """Yield a sentence for each file that nothing has brought where vLLM starts; a Doubt without ``pinned`` weights."""
    for flag, value in named(args):
        if value.startswith("/") or (flag == TEMPLATE and _is_of_vllm(value, examples)):
            continue
        text = (
            f"{flag} names {value}, which nothing brings to the place where vLLM starts; set args {flag} to the "
            "absolute path of a copy that vLLM can read there (of a container: in its image), or take it away with null"
        )
        yield text if pinned or value.startswith(EXAMPLES) else Doubt(text)
