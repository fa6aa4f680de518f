# SPDX-License-Identifier: GPL-3.0-or-later
"""The text that adopt.yml prints: the variables to write, and what differs from the command."""

from typing import Any, Iterable, Iterator, Mapping

from ...module_utils.common.spelling import misspelt
from ..catalog.files import RECIPES, known_names
from ..catalog.upstream_recipes import nearest_recipe
from ..common.tables import wrapped
from ..common.yaml import dump_yaml, literal
from .comparison import Compared
from .entry import Adopted

WIDTH = 120
SECRETS = "vllm_secrets"


def variables_of(name: str, adopted: Adopted, compared: Compared, release: str) -> dict[str, Any]:
    """Return the variables of a site that serve an adopted entry; values of secrets come from a place of the site."""
    secrets = {secret: "{{ lookup('ansible.builtin.env', '" + secret + "') }}" for secret in adopted.secrets}
    return {
        **({"vllm_release": str(release)} if release else {}),
        "vllm_instances": {str(name): compared.instance},
        **({SECRETS: {str(name): secrets}} if secrets else {}),
    }


def adopted_text(variables: Mapping[str, Any], adopted: Adopted, compared: Compared) -> str:
    """Return the whole text."""
    # The words of a command may be anybody's; the lookups of secrets are ours.
    parts = [dump_yaml({key: each if key == SECRETS else literal(each) for key, each in variables.items()}).rstrip()]
    if compared.recipe:
        parts.append(_recipe(adopted, compared))
    for title, lines in (
        ("Left out of the entry:", adopted.left_out),
        ("To know about what it keeps:", [*adopted.notes, *_warnings(adopted, compared)]),
        ("Removed with null, because the recipe sets it and the command does not:", _removed(compared)),
        ("Added by the collection:", compared.added),
    ):
        if lines:
            parts.append("\n".join([title, *_lines(lines)]))
    state = f"no plan on {compared.host}: {compared.problem}" if compared.problem else f"planned on {compared.host}"
    state = f"Checked with the options of vLLM {compared.version}; {state}."
    parts.append(wrapped(state, WIDTH))
    return "\n\n".join(parts)


def _recipe(adopted: Adopted, compared: Compared) -> str:
    near = misspelt(adopted.model, known_names("recipes", RECIPES, ())) or nearest_recipe(adopted.model)
    other = f"; nearest: {near!r}" if near not in (None, adopted.model) else ""
    text = (
        f"No recipe here is for {adopted.model}{other}. Write this one as {adopted.model}.yaml below a directory of "
        "vllm_recipe_path, and pin the weights with pin_weights.yml:"
    )
    own = f"vLLM {compared.carried} carries one, with more than the command has: fetch_recipes.yml fetches it."
    recipe = "\n".join(f"    {line}" for line in compared.recipe.splitlines())
    return "\n\n".join([wrapped(text, WIDTH), recipe, *([own] if compared.carried else [])])


def _warnings(adopted: Adopted, compared: Compared) -> list[tuple[str, str]]:
    """Return the warnings of the plan, without the one that nothing pins the weights yet, and those noted already."""
    if not compared.plan:
        return []
    place = f"vllm_instances.{compared.plan['instance']}"
    noted = {f"{name}: {text}" for name, text in adopted.notes}
    split = (text.removeprefix(place).partition(": ") for text in compared.plan["warnings"])
    return [
        (head.lstrip(".") or "the plan", text)
        for head, _colon, text in split
        if "no manifest pins" not in text and text not in noted
    ]


def _removed(compared: Compared) -> list[tuple[str, str]]:
    return [
        (key if key.startswith("env.") else f"--{key}", f"the recipe sets {_value(value)}; remove the null to take it")
        for key, value in compared.removed.items()
    ]


def _value(value: Any) -> str:
    return str(value) if not isinstance(value, bool) else str(value).lower()


def _lines(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for word, reason in dict.fromkeys(entries):
        yield wrapped(f"- {word}: {reason.rstrip(' ').rstrip('.;')}", WIDTH, further="  ")
