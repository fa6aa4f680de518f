# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The feature tool_calling for models whose recipe has none, with the parser of their family.

It is off unless somebody requests it, so that upstream's recipes are composed as upstream does. The names are those of
vLLM 0.33.0; a base model, which was not trained to call tools, has none.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

FEATURE = "tool_calling"
_FLAG = "--tool-call-parser"

# Parsers by a pattern of the model's name, without its organisation.
_PARSERS = (
    (r"llama-3\.[123].*instruct.*", "llama3_json"),
    (r"llama-4-.*instruct.*", "llama4_pythonic"),
    (r"(qwen2\.5-(?!vl|math|omni)|qwen3-vl-).*instruct.*", "hermes"),
    (r"phi-4-mini-instruct.*", "phi4_mini_json"),
    (r"hunyuan-a13b-instruct.*", "hunyuan_a13b"),
    (r"kimi-linear-.*instruct.*", "kimi_k2"),
    (r"lfm2\.5-.*instruct.*", "lfm2"),
)


def tool_parser_of(model: str) -> str | None:
    """Return the parser of a model's family, None for a family that is not listed."""
    name = model.rpartition("/")[2].lower()
    return next((parser for pattern, parser in _PARSERS if re.fullmatch(pattern, name)), None)


def with_family_features(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a recipe with tool_calling as an optional feature; unchanged where it has its own or its family none."""
    features = recipe.get("features") or {}
    words = [str(word).partition("=")[0].replace("_", "-") for word in recipe["model"].get("base_args") or []]
    parser = tool_parser_of(str(recipe["model"]["model_id"]))
    if parser is None or FEATURE in features or _FLAG in words:
        return recipe
    feature = {
        "description": "Calls of the client's own functions, with the parser of the model's family",
        "args": [_FLAG, parser, "--enable-auto-tool-choice"],
    }
    optional = [*(recipe.get("opt_in_features") or []), FEATURE]
    return {**recipe, "features": {**features, FEATURE: feature}, "opt_in_features": optional}
