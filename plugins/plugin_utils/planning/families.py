# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the family of a model, whatever its recipe says.

The features tool_calling and reasoning for models whose recipe has none, with the parser of their family: they are off
unless somebody requests them, so that upstream's recipes are composed as upstream does. The names are those of vLLM
0.33.0; a base model, which was trained for neither, has none.

Release fixes, guards and known issues come from catalog/families.yml.
"""

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence


@dataclass(frozen=True)
class FamilyFeature:
    """A feature: its name, the flag of its parser, further words, and parsers by a pattern of the model's name.

    The name is in lower case and without its organisation.
    """

    name: str
    description: str
    flag: str
    words: tuple[str, ...]
    parsers: tuple[tuple[str, str], ...]

    def parser_of(self, model: str) -> str | None:
        """Return the parser of a model's family, None for a family that is not listed."""
        return next((parser for pattern, parser in self.parsers if _is_of(pattern, model)), None)


TOOL_CALLING = FamilyFeature(
    "tool_calling",
    "Calls of the client's own functions, with the parser of the model's family",
    "--tool-call-parser",
    ("--enable-auto-tool-choice",),
    (
        (r"llama-3\.[123].*instruct.*", "llama3_json"),
        (r"llama-4-.*instruct.*", "llama4_pythonic"),
        (r"(qwen2\.5-(?!vl|math|omni)|qwen3-vl-).*instruct.*", "hermes"),
        (r"phi-4-mini-instruct.*", "phi4_mini_json"),
        (r"hunyuan-a13b-instruct.*", "hunyuan_a13b"),
        (r"kimi-linear-.*instruct.*", "kimi_k2"),
        (r"lfm2\.5-.*instruct.*", "lfm2"),
        (r"minicpm5-.*", "minicpm5"),
    ),
)
REASONING = FamilyFeature(
    "reasoning",
    "Reasoning apart from the answer, with the parser of the model's family",
    "--reasoning-parser",
    (),
    (
        (r"seed-oss-.*instruct.*", "seed_oss"),
        (r"ernie-4\.5-(vl-.*|.*thinking.*)", "ernie45"),
        (r"granite-3\.2-.*instruct.*", "granite"),
        (r"hunyuan-a13b-instruct.*", "hunyuan_a13b"),
    ),
)
FEATURES = (TOOL_CALLING, REASONING)


def _is_of(pattern: str, model: str) -> bool:
    return bool(re.fullmatch(pattern, model.rpartition("/")[2].lower()))


def with_family_guards(
    recipe: Mapping[str, Any], weights: str, families: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Mapping[str, Any]:
    """Return a recipe with the release fixes, guards and known issues of the family of its weights after its own."""
    added = {
        key: [*(recipe.get(key) or []), *entries]
        for key in ("release_fixes", "guards", "known_issues")
        if (
            entries := [each for each in families.get(key) or [] if any(_is_of(one, weights) for one in each["models"])]
        )
    }
    return {**recipe, **added} if added else recipe


def with_family_features(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a recipe with these as optional features; unchanged where it has its own or its family none."""
    for feature in FEATURES:
        recipe = _with(recipe, feature)
    return recipe


def _with(recipe: Mapping[str, Any], feature: FamilyFeature) -> Mapping[str, Any]:
    features = recipe.get("features") or {}
    words = [str(word).partition("=")[0].replace("_", "-") for word in recipe["model"].get("base_args") or []]
    parser = feature.parser_of(str(recipe["model"]["model_id"]))
    if parser is None or feature.name in features or feature.flag in words:
        return recipe
    added = {"description": feature.description, "args": [feature.flag, parser, *feature.words]}
    optional = [*(recipe.get("opt_in_features") or []), feature.name]
    return {**recipe, "features": {**features, feature.name: added}, "opt_in_features": optional}
