# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of recipes: upstream's, and the additions of this collection. An unknown key is an error.

Below ``meta`` upstream describes models for people, and adds keys at any time. There an unknown key is a warning,
unless it looks like a misspelt key that plans read.

``rules``, ``release_fixes``, ``guards``, ``known_issues``, presets of three words, ``model.kv_cache_bytes_per_token``
and ``hardware_overrides`` for one model of the catalogue are additions; docs/reference/recipes.md explains them.
"""

import re
from typing import Any, Callable, Iterator, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import misspelt, nearest
from ..common.versions import satisfies
from ..options.arguments import line_problem, name_problem
from ..planning.conditions import CONDITIONS, QUANTIZATION, RESULTS, holds
from ..planning.inputs import PlanError

# A part of the schema: gets a value and its place, yields the problems.
Check = Callable[[Any, str], Iterator[str]]

# Of sizes: more than any model has tokens, bytes or chips.
MOST = 10**15
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


def check_recipe(recipe: Any, file: str) -> None:
    """Raise PlanError for the first key or value that the schema does not know; ``file`` names it."""
    for problem in RECIPE(recipe, ""):
        raise PlanError(f"{file}: {problem}")


def check_families(families: Any, file: str) -> None:
    """Raise PlanError for the first key or value of catalog/families.yml that the schema does not know."""
    for problem in FAMILIES(families, ""):
        raise PlanError(f"{file}: {problem}")


def unread_keys(recipe: Mapping[str, Any], file: str) -> list[str]:
    """Return a sentence for each key below ``meta`` of a checked recipe that has no effect here."""
    keys = recipe.get("meta") or {}
    return [
        f"{file}: meta.{key}: unknown key, which has no effect; {nearest(str(key), META)}"
        for key in keys
        if key not in META
    ]


def _wrong(value: Any, where: str, expected: str) -> str:
    found = show_value(value)
    if isinstance(value, dict):
        found = "a mapping"
    elif isinstance(value, list):
        found = "a list"
    elif isinstance(value, str):
        found = f"the text {value!r}"
    return f"{where or 'the file'}: found {found}, expected {expected}"


def _scalar(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        yield _wrong(value, where, "one value")


def _repository(value: Any, where: str) -> Iterator[str]:
    """Accept the name of a repository: no path of a host, no address, and no flag of vLLM's command."""
    if not isinstance(value, str) or (value and not _REPOSITORY.fullmatch(value)):
        yield _wrong(value, where, "<organisation>/<name>, as the model's page shows it")


def _least_version(value: Any, where: str) -> Iterator[str]:
    """Accept a version, also with >= before it, and words without a digit, such as nightly: upstream writes those."""
    yield from _scalar(value, where)
    if re.search(r"\d", str(value)) and not isinstance(value, (dict, list)):
        try:
            satisfies("0", f">={str(value).lstrip('>= ')}")
        except ValueError:
            yield _wrong(value, where, "a version such as 0.33.0")


def _of(kind: Any, expected: str) -> Check:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            yield _wrong(value, where, expected)

    return check


def _positive(kind: Any, expected: str) -> Check:
    of_kind = _of(kind, expected)

    def check(value: Any, where: str) -> Iterator[str]:
        wrong = [*of_kind(value, where)]
        # Not a number (.nan) fails every comparison.
        yield from wrong if wrong or 0 < value <= MOST else [_wrong(value, where, f"{expected} above 0, at most 10^15")]

    return check


def _anything(_value: Any, _where: str) -> Iterator[str]:
    yield from ()


def _list(item: Check, expected: str) -> Check:
    def check(value: Any, where: str) -> Iterator[str]:
        if value is None:
            return
        if not isinstance(value, list):
            yield _wrong(value, where, expected)
            return
        for number, entry in enumerate(value):
            if entry is None:
                yield f"{where}[{number}]: found nothing, expected something after the dash"
            else:
                yield from item(entry, f"{where}[{number}]")

    return check


def _map(value_check: Check) -> Check:
    def check(value: Any, where: str) -> Iterator[str]:
        if value is None:
            return
        if not isinstance(value, dict):
            yield _wrong(value, where, "a mapping")
            return
        for key, entry in value.items():
            place = f"{where}.{key}" if where else str(key)
            if not isinstance(key, str):
                yield f"{where or 'the file'}: found the key {show_value(key)}, expected a text; put it in quotes"
            yield from value_check(entry, place)

    return check


def _env(value: Any, where: str) -> Iterator[str]:
    """Accept variables that a file of variables can hold."""
    yield from _map(_scalar)(value, where)
    for key, entry in value.items() if isinstance(value, dict) else ():
        problem = name_problem(key) if isinstance(key, str) else ""
        if problem:
            yield f"{where}: {problem}"
        problem = line_problem(str(entry))
        if problem:
            yield f"{where}.{key}: found {problem}, expected one line"


def _object(keys: Mapping[str, Check], required: tuple[str, ...] = ()) -> Check:
    def check(value: Any, where: str) -> Iterator[str]:
        if value is None and not required:
            return
        if not isinstance(value, dict):
            yield _wrong(value, where, "a mapping")
            return
        prefix = f"{where}." if where else ""
        for key, entry in value.items():
            if key not in keys:
                yield f"unknown key '{prefix}{key}'; {nearest(str(key), keys)}"
            else:
                yield from keys[key](entry, f"{prefix}{key}")
        for key in required:
            if not value.get(key):
                yield f"{prefix}{key} is missing"

    return check


def _meta(value: Any, where: str) -> Iterator[str]:
    known = {key: entry for key, entry in value.items() if key in META} if isinstance(value, dict) else value
    yield from _object(META)(known, where)
    for key in value if isinstance(value, dict) else ():
        near = None if key in META else misspelt(str(key), META_DECIDES)
        if near:
            yield f"unknown key '{where}.{key}'; nearest: {near!r}"


def either(kind: Any, simple: Check, other: Check) -> Check:
    """Return a check that is ``simple`` for values of a kind and ``other`` for the rest."""

    def check(value: Any, where: str) -> Iterator[str]:
        yield from (simple if isinstance(value, kind) else other)(value, where)

    return check


def _conditions(results: bool) -> Check:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield _wrong(value, where, "a mapping of conditions")
            return
        known = (*CONDITIONS, *RESULTS, QUANTIZATION) if results else CONDITIONS
        for name, wanted in value.items():
            if name not in known:
                yield f"unknown condition '{where}.{name}'; {nearest(str(name), known)}"
                continue
            try:
                # The same number is used for every kind of fact, because only the form of the condition is checked.
                holds(name, wanted, {name: {} if name in RESULTS else 1})
            except ValueError as exc:
                yield f"{where}.{name}: {exc}"

    return check


TEXT = _of(str, "a text")
NUMBER = _positive((int, float), "a number")
INTEGER = _positive(int, "a whole number")
BOOLEAN = _of(bool, "true or false")
NAMES = _list(_scalar, "a list of names")
WORDS = _list(_scalar, "a list of words, each flag and each value one of them")
ENV = _env

_WHEN = {"when": _conditions(False), "unless": _conditions(False), "because": TEXT}


def _block(args: str, env: str, more: Mapping[str, Check]) -> dict[str, Check]:
    """Return the keys of a block that adds arguments and variables; ``args`` and ``env`` are their names in it."""
    rules = _list(_object({**_WHEN, args: WORDS, env: ENV}), "a list of rules")
    return {args: WORDS, env: ENV, "rules": rules, **more}


# A number for all hardware, or a map by hardware.
SIZE = either(dict, _map(INTEGER), INTEGER)
# Numbers by strategy and by hardware, the one in the other, or none.
FLOOR = either((dict, type(None)), _map(INTEGER), INTEGER)
BY_HARDWARE = _map(_scalar)
MODELS_BY_NAME = _map(NAMES)
EXTRA = _block("extra_args", "extra_env", {})
IMAGE = either(dict, _map(either(dict, _map(TEXT), TEXT)), TEXT)

VARIANT_OVERRIDE = _object(
    {
        **EXTRA,
        "docker_image": TEXT,
        "docker_serve_command": TEXT,
        "install": _map(_anything),
        "vram_minimum_gb": NUMBER,
        "tp": INTEGER,
    }
)
VARIANT = _object(
    {
        **EXTRA,
        "model_id": _repository,
        "label": TEXT,
        "precision": TEXT,
        "precision_hardware": _object({"brand": TEXT, "generation": _anything}),
        "vram_minimum_gb": NUMBER,
        "description": TEXT,
        "tp": SIZE,
        "hardware_overrides": _map(VARIANT_OVERRIDE),
        "supported_hardware": NAMES,
        "default_modes": _map(TEXT),
        "min_vllm_version": _least_version,
        "nightly_required": BOOLEAN,
        "docker_image": IMAGE,
    }
)
FEATURE_OVERRIDE = _object(_block("args", "env", {}))
MODE = _object(
    _block(
        "args",
        "env",
        {
            "label": TEXT,
            "description": TEXT,
            "hardware": BY_HARDWARE,
            "hardware_overrides": _map(FEATURE_OVERRIDE),
            "variants": NAMES,
        },
    )
)
FEATURE = _object(
    _block(
        "args",
        "env",
        {
            "label": TEXT,
            "description": TEXT,
            "modes": _map(MODE),
            "default_mode": TEXT,
            "hardware": BY_HARDWARE,
            "hardware_overrides": _map(FEATURE_OVERRIDE),
            "strategies": NAMES,
            "companion": _map(_anything),
        },
    )
)
STRATEGY_OVERRIDE = _object(
    {
        **EXTRA,
        "vllm_args": WORDS,
        "env": ENV,
        "tp": SIZE,
        "hardware_overrides": _map(_object(EXTRA)),
        # Of pd_cluster, which is not composed.
        "prefill": _map(_anything),
        "decode": _map(_anything),
        "router": _map(_anything),
        "pool_modes": NAMES,
    }
)
UPSTREAM_PRESET = (
    "label", "hardware", "strategy", "variants", "workload", "default", "source", "image", "select", "args", "env",
    "json_args", "remove_args", "roles", "points", "runbook",
)  # fmt: skip
PRESET = _object(
    {
        **EXTRA,
        "description": TEXT,
        "tp": SIZE,
        "hardware_overrides": _map(_object({**EXTRA, "tp": INTEGER})),
        **dict.fromkeys(UPSTREAM_PRESET, _anything),
    }
)
META: dict[str, Check] = {
    **dict.fromkeys(("title", "slug", "provider", "description", "difficulty", "performance_headline"), TEXT),
    **dict.fromkeys(("date_added", "date_updated"), _scalar),
    "tasks": NAMES,
    "hardware": BY_HARDWARE,
    "default_hardware": TEXT,
    "default_variant": BY_HARDWARE,
    "related_recipes": NAMES,
    "platforms": _list(_map(_anything), "a list of platforms"),
}
# The keys of meta that a plan follows.
META_DECIDES = ("hardware", "default_variant")
_JUDGE = {"when": _conditions(True), "unless": _conditions(True)}
_INSTEAD = _object({"args": _map(_scalar), "strategy": TEXT})
_GUARD = {**_JUDGE, "refuse": TEXT, "warn": TEXT, "instead": _list(_INSTEAD, "a list of keys of an instance")}
_ISSUE = {**_JUDGE, "symptom": TEXT, "advice": TEXT}
RECIPE = _object(
    {
        "meta": _meta,
        "model": _object(
            {
                "model_id": _repository,
                "min_vllm_version": _least_version,
                "docker_image": IMAGE,
                "docker_source": _map(_anything),
                "nightly_required": BOOLEAN,
                "install": _map(_anything),
                "architecture": TEXT,
                "parameter_count": _scalar,
                "active_parameters": _scalar,
                "context_length": INTEGER,
                "kv_cache_bytes_per_token": INTEGER,
                "base_args": WORDS,
                "base_env": ENV,
                "rules": EXTRA["rules"],
                "default_frontend": TEXT,
                "rust_frontend": TEXT,
                "flashinfer_autotune": BOOLEAN,
                "supports_dcp": BOOLEAN,
                "smg_grpc": _map(_anything),
            },
            required=("model_id",),
        ),
        "dependencies": _list(_map(_anything), "a list of steps"),
        "features": _map(FEATURE),
        "opt_in_features": NAMES,
        "hardware_opt_in_features": _map(NAMES),
        "variants": _map(VARIANT),
        "presets": _map(PRESET),
        "compatible_strategies": NAMES,
        "default_strategy": TEXT,
        "strategy_hardware": _map(BY_HARDWARE),
        "strategy_min_gpus": either((dict, type(None)), _map(FLOOR), INTEGER),
        "strategy_overrides": _map(STRATEGY_OVERRIDE),
        "hardware_overrides": _map(_object({**EXTRA, "install_note": TEXT})),
        "hardware_notes": _map(_anything),
        "kv_offload_support": _map(_anything),
        "kv_cache_strategy_hardware": _map(_anything),
        "omni": _map(_anything),
        "guide": TEXT,
        "release_fixes": EXTRA["rules"],
        "guards": _list(_object(_GUARD), "a list of guards"),
        "known_issues": _list(_object(_ISSUE, required=("symptom", "advice")), "a list of issues"),
    },
    required=("model",),
)


def _pattern(value: Any, where: str) -> Iterator[str]:
    yield from TEXT(value, where)
    try:
        re.compile(value if isinstance(value, str) else "")
    except re.error as exc:
        yield f"{where}: found the text {value!r}, expected a regular expression of Python: {exc}"


# What is known of families of models, of which catalog/families.yml holds the entries.
_FAMILY = {"models": _list(_pattern, "a list of regular expressions"), "source": TEXT}
FAMILIES = _object(
    {
        "release_fixes": _list(
            _object({**_WHEN, "extra_args": WORDS, "extra_env": ENV, **_FAMILY}, required=("models", "source")),
            "a list of rules",
        ),
        "guards": _list(_object({**_GUARD, **_FAMILY}, required=("models", "source")), "a list of guards"),
        "known_issues": _list(
            _object({**_ISSUE, **_FAMILY}, required=("models", "source", "symptom", "advice")), "a list of issues"
        ),
        "packages": _list(
            _object({"any_of": NAMES, "architectures": NAMES, "kinds": NAMES}, required=("any_of",)),
            "a list of packages",
        ),
    }
)
