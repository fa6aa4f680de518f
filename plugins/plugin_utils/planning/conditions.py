# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions of rules and guards in recipes: releases, hardware, facts of a host, and choices."""

from typing import Any, Iterable, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.versions import in_spec
from ..common.versions import satisfies

VERSIONS = ("vllm", "driver", "cuda", "release_cuda")
NUMBERS = ("tensor_parallel_size", "count", "memory_gib", "mec_firmware")
NAMES = ("accelerator", "generation", "stack", "architecture", "runtime", "preset", "variant", "strategy")
LISTS = ("features",)
# These are known only after all layers are combined, so only guards and known issues may use them.
RESULTS = ("args", "env", "instance", "secrets", "config")
# The number format of the weights and how they are quantized, in lower case with underscores: also for guards only.
QUANTIZATION = "quantization"
CONDITIONS = (*VERSIONS, *NUMBERS, *NAMES, *LISTS)

ABSENT = "absent"
PRESENT = "present"
# What vLLM chooses itself, as without the flag.
AUTO = "auto"
# Spellings of one setting: a flag, a key of a JSON flag (vllm/engine/arg_utils.py), a variable of old releases.
_SPELLINGS = (
    ("attention-backend", "attention-config.backend", "VLLM_ATTENTION_BACKEND"),
    ("cudagraph-capture-sizes", "compilation-config.cudagraph_capture_sizes"),
    ("linear-backend", "kernel-config.linear_backend"),
    ("max-cudagraph-capture-size", "compilation-config.max_cudagraph_capture_size"),
    ("moe-backend", "kernel-config.moe_backend"),
    ("spec-method", "speculative-config.method"),
    ("spec-model", "speculative-config.model"),
    ("spec-tokens", "speculative-config.num_speculative_tokens"),
)


def _number(value: Any) -> float:
    return float(value)


def holds(name: str, wanted: Any, facts: Mapping[str, Any]) -> bool | None:
    """Return whether one condition holds, None where its fact is unknown. Raises ValueError for a malformed one."""
    if name in RESULTS:
        if not isinstance(wanted, Mapping):
            raise ValueError(f"found {show_value(wanted)}, expected a mapping of names to requirements")
        return _results_hold(name, wanted, facts)
    fact = facts.get(name)
    if fact is None:
        return None
    if name in VERSIONS:
        return any(satisfies(str(fact), str(spec)) for spec in _listed(wanted))
    if name in NUMBERS:
        return any(in_spec(fact, spec, _number) for spec in _listed(wanted))
    have = {str(item) for item in _listed(fact)}
    if name in LISTS:
        return all(str(item) in have for item in _listed(wanted))
    return any(str(item) in have for item in _listed(wanted))


def applies(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return whether a rule is in force: all conditions of ``when`` hold, and those of ``unless`` do not all hold.

    A condition on an unknown fact does not hold, so an unknown fact never disables a rule by ``unless``.
    """
    if not all(holds(name, wanted, facts) for name, wanted in (rule.get("when") or {}).items()):
        return False
    exception = rule.get("unless") or {}
    return not (exception and all(holds(name, wanted, facts) for name, wanted in exception.items()))


def quantizations(args: Mapping[str, Any], precision: Any) -> list[str]:
    """Return what the argument quantization and the number format of the weights name."""
    return [str(_folded(name)) for name in (args.get(QUANTIZATION), precision) if name]


def _results_hold(kind: str, wanted: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    found = facts.get(kind) or {}
    if kind not in ("args", "instance"):
        return all(_result_holds(spec, *_look_up(key, found)) for key, spec in wanted.items())
    have = {**(facts.get("env") or {}), **found} if kind == "args" else found
    return all(_result_holds(_folded(spec), *argument(key, have)) for key, spec in wanted.items())


def argument(name: str, have: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether an argument is there in any spelling, and its value, of a name in lower case with underscores."""
    names = next((group for group in _SPELLINGS if name in group), (name,))
    values = [_folded(value) for _there, value in (_look_up(each, have) for each in names) if value is not None]
    return bool(values), next((value for value in values if value != AUTO), AUTO)


def _folded(value: Any) -> Any:
    """Return names in one form: where vLLM takes another case, or a dash for an underscore, it means the same."""
    if isinstance(value, (list, tuple)):
        return [_folded(each) for each in value]
    return value.lower().replace("-", "_") if isinstance(value, str) and value[:1] not in "<>=!-" else value


def _look_up(name: str, found: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether a result is there, and its value; a dotted name is a key in the JSON of a flag."""
    if name in found:
        return True, found[name]
    value: Any = found
    for key in str(name).split("."):
        if not isinstance(value, Mapping) or key not in value:
            return False, None
        value = value[key]
    return True, value


def _result_holds(spec: Any, there: bool, value: Any) -> bool:
    if isinstance(spec, (list, tuple)):
        return any(_result_holds(each, there, value) for each in spec)
    if spec in (ABSENT, PRESENT):
        return (there and value != AUTO) is (spec == PRESENT)
    if not there:
        return False
    if isinstance(spec, bool) or isinstance(value, bool):
        return spec is value
    if isinstance(spec, str) and spec[:1] in "<>=!":
        try:
            return in_spec(value, spec, _number)
        except (TypeError, ValueError):
            return False
    return str(value) == str(spec)


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple, set, frozenset)) else [value]
