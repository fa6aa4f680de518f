# SPDX-License-Identifier: GPL-3.0-or-later
"""Check composed arguments and variables: guards of the recipe, the release's table, exclusions."""

import math
import re
from typing import Any, Iterable, Iterator, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ..options.arguments import to_mapping
from ..options.restricted import DEEPEST, is_deep
from ..options.table import Doubt, Foreign, OptionTable, Unknown
from ..options.values import NUMBER, read_number
from .conditions import applies
from .inputs import PlanError, Serves, always
from .side_models import adapter_problems

# A shell variable, as guides write it.
_PLACEHOLDER = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{[A-Za-z_]\w*\})")

# The argument by which vLLM stops at a VLLM_* variable that it does not know.
STOP_AT_VARIABLES = "fail-on-environ-validation"

FRONTEND = "VLLM_USE_RUST_FRONTEND"


def judge(recipe: Mapping[str, Any], facts: Mapping[str, Any], where: str, serves: Serves = always) -> list[str]:
    """Return the warnings of the recipe's guards. Raises PlanError for the first guard that refuses.

    The sentence ends with those keys of an instance that the guard names instead and that can be planned.
    """
    warnings = []
    for guard in recipe.get("guards") or []:
        if not applies(guard, facts):
            continue
        if guard.get("refuse"):
            ways = [_describe_keys(keys) for keys in guard.get("instead") or () if serves(**keys)]
            way_out = f"; set {', or '.join(ways)}" if ways else "; take another host" * bool(guard.get("instead"))
            raise PlanError(f"{where}: {guard['refuse']}{way_out}")
        if guard.get("warn"):
            warnings.append(f"{where}: {guard['warn']}")
    return warnings


def _describe_keys(keys: Mapping[str, Any]) -> str:
    args = ", ".join(f"{name} {value}" for name, value in (keys.get("args") or {}).items())
    return f"args {args}" if args else ", ".join(f"{name} {value}" for name, value in keys.items())


def known_issues(recipe: Mapping[str, Any], facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the recipe's issues that can occur here: the symptom in the journal, and what to do."""
    return [
        {"symptom": issue["symptom"], "advice": issue["advice"]}
        for issue in recipe.get("known_issues") or []
        if applies(issue, facts)
    ]


def exclusions(
    args: Mapping[str, Any], env: Mapping[str, str], exclusive: Sequence[Mapping[str, Any]], table: OptionTable
) -> Iterator[str]:
    """Yield a sentence for each group of settings that exclude each other, lack what they need, or are too large.

    A group with ``warn`` yields a Doubt: vLLM accepts both settings and ignores one of them.
    """
    have = {**to_mapping(args, table), **env}
    for group in exclusive:
        names = together(have, group["settings"])
        if "needs" in group:
            if names and not any(together(have, [name]) for name in group["needs"]):
                needed = " or ".join(_describe_setting(name, value) for name, value in _pairs(group["needs"]))
                yield f"{' and '.join(names)} needs {needed}: {group['because']}"
        elif "at_most" in group:
            most, value = (_look_up(have, name)[1] for name in (group["at_most"], group["settings"][0]))
            if names and (read_number(str(most)) or math.inf) < (read_number(str(value)) or 0):
                expected = f"expected at most --{group['at_most']}, which is {most}"
                yield f"{names[0]} is {value}, {expected}: {group['because']}"
        elif names and group.get("warn"):
            yield Doubt(f"{' and '.join(names)} are both set: {group['because']}")
        elif names:
            wrong = "exclude each other" if len(names) > 1 else "is not for these chips"
            yield f"{' and '.join(names)} {wrong}: {group['because']}"


def stopping_variables(args: Mapping[str, Any], env: Mapping[str, str], table: OptionTable) -> Iterator[str]:
    """Yield a sentence for each variable of a plugin, or unknown, where an argument lets vLLM stop at it."""
    for name in env if args.get(STOP_AT_VARIABLES) is True else ():
        if name.startswith("VLLM_") and name not in table.env:
            yield f"{name}: --{STOP_AT_VARIABLES} lets vLLM stop at it; take the argument away with null"


def placeholders(args: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each value with a shell placeholder, because no shell reads the values here."""
    for name, value in env.items():
        found = _PLACEHOLDER.search(value)
        if found:
            yield f"env.{name}: found the placeholder {found.group()}, expected a value; set env.{name} of the instance"
    for name, value in args.items():
        found = _PLACEHOLDER.search(str(value))
        if found:
            yield (
                f"args.{name}: found the placeholder {found.group()}, expected a value; set args.{name} of the instance"
            )


def together(have: Mapping[str, Any], settings: Any) -> list[str]:
    """Return the settings as the user writes them where all of them are set, else nothing."""
    found = []
    for name, wanted in _pairs(settings):
        there, value = _look_up(have, name)
        if not there or (wanted is None and value is False):
            return []
        options = wanted if isinstance(wanted, list) else [wanted]
        if wanted is not None and str(value).lower() not in [str(option).lower() for option in options]:
            return []
        found.append(_describe_setting(name, value if isinstance(wanted, list) else wanted))
    return found


def _describe_setting(name: str, wanted: Any) -> str:
    """Return a setting as the user writes it, with the value that it has to have where there is one."""
    shown = name if name.isupper() else f"--{name}"
    return shown if wanted is None else f"{shown} {wanted}"


def _pairs(settings: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and expected value (None: any) of settings: a mapping, or a list of names and of such mappings."""
    for item in [settings] if isinstance(settings, Mapping) else settings:
        yield from item.items() if isinstance(item, Mapping) else [(item, None)]


def _look_up(have: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    if name in have:
        return True, have[name]
    head, _dot, keys = name.partition(".")
    value: Any = have.get(head)
    for key in keys.split(".") if keys else []:
        if not isinstance(value, Mapping) or key not in value:
            return False, None
        value = value[key]
    return (bool(keys) and value is not None), value


def flags_as_values(args: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each value that vLLM's parser would take for a flag, whatever stands before it."""
    for name, value in args.items():
        for text in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(text, str) and text.startswith("-") and not NUMBER.match(text):
                yield f"--{name}: found {text[:100]!a}, which vLLM would take for a flag; take it away with null"


def option_problems(
    args: Mapping[str, Any],
    env: Mapping[str, str],
    table: OptionTable,
    foreign: Foreign,
    others: Iterable[OptionTable] = (),
    replaced: Mapping[str, Mapping[str, str]] | None = None,
) -> list[str]:
    """Return what the release would refuse or ignore among arguments and VLLM_* variables."""
    own = [name for name in env if name.startswith("VLLM_")]
    return [
        *table.check_args(to_mapping(args, table), others, replaced, foreign.values),
        *adapter_problems(args),
        *table.check_env(own, foreign, others, replaced),
        *table.check_values(env, foreign.env),
        *foreign.check_keys(args, table.version),
    ]


def errors_of(problems: Sequence[str], strict: bool) -> list[str]:
    """Return the certain problems; with ``strict`` also those of names that the table does not have."""
    lenient = (Doubt,) if strict else (Doubt, Unknown)
    return [problem for problem in problems if not isinstance(problem, lenient)]


def doubts_of(problems: Sequence[str]) -> list[str]:
    """Return the problems that are not certain."""
    return [problem for problem in problems if isinstance(problem, (Doubt, Unknown))]


def check_depth(args: Mapping[str, Any], where: str) -> None:
    """Raise PlanError for an argument that is nested too deeply to be read."""
    for name, value in args.items():
        if is_deep(value):
            raise PlanError(
                f"{where}.args.{name}: found more than {DEEPEST} levels of lists and mappings, expected fewer; shorten "
                "it, or remove a recipe's with the value null"
            )


def check_frontend(env: Mapping[str, Any], where: str) -> None:
    """Raise PlanError for vLLM's frontend in Rust, which loads no middleware."""
    found = env.get(FRONTEND)
    if str(found or "0").strip() != "0":
        raise PlanError(
            f"{where}.env.{FRONTEND}: found {show_value(found)}, expected '0': vLLM's frontend in Rust refuses "
            "--middleware, by which this collection steers requests and counts their tokens; leave it out, or remove a "
            "recipe's with the value null"
        )
