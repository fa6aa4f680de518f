# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose a recipe's variant for the hardware, and check hardware, driver and release against what they need."""

import re
from typing import Any, Iterable, Mapping

from ...module_utils.common.spelling import nearest
from ..common.versions import satisfies
from .chips import holds_estimate
from .hardware import Accelerator
from .inputs import PlanError, Serves, always

TRY_IT = (
    "; to try it anyway, set vllm_strict: false, or list the hardware in a recipe file of your own (vllm_recipe_path)"
)
# Number formats that upstream's builder offers for Blackwell only; catalog/accelerators states what each chip lacks.
# vLLM computes them in 16 bits on NVIDIA's other chips and AMD's, of which catalog/families.yml warns.
ONLY_BLACKWELL, IN_16_BITS = ("nvfp4", "fp4"), ("cuda", "rocm")
# Upstream lists many models for the processors only on which somebody tried them. Where a variant has plain weights and
# nothing of its own, nothing in it depends on the hardware, and these stacks run what vLLM runs. vllm-ascend's guides
# serve such models, and W8A8 weights that a recipe lists for one chip of Ascend on others, but not on a 310P, which
# needs weights of its own.
PLAIN_FORMATS = ("bf16", "fp16")
COMMON_STACKS = ("cuda", "rocm", "cann")
# What a variant may set and run on NVIDIA's other chips: their kernels serve all number formats that they do not lack.
COMMON_FLAGS = ("--kv-cache-dtype",)
W8A8, OWN_WEIGHTS = "int8", "ascend_310p"


def choose_variant(
    recipe: Mapping[str, Any],
    accelerator: Accelerator,
    requested: str | None,
    where: str,
    strict: bool = True,
    serves: Serves = always,
) -> str:
    """Return the requested variant, else the recipe's for this hardware. Raises PlanError with the reason.

    With ``strict`` False, hardware that the recipe does not list is no error: ``variant_doubts`` returns the warning.
    """
    variants = recipe.get("variants") or {"default": {}}
    model = recipe["model"]["model_id"]
    name = requested or accelerator.pick((recipe.get("meta") or {}).get("default_variant") or {}) or "default"
    if name not in variants:
        raise PlanError(f"{where}.variant: recipe {model} has no variant {name!r}; {nearest(str(name), variants)}")
    lacking, unlisted = (
        _lacking(variants[name] or {}, accelerator),
        _unlisted(recipe, variants[name] or {}, accelerator),
    )
    if lacking or (unlisted and strict):
        raise PlanError(
            f"{where}.variant: {name!r} of recipe {model} is not for {accelerator.model}: {lacking or unlisted}; "
            f"{_way_out(recipe, accelerator, serves)}{'' if lacking else TRY_IT}"
        )
    return str(name)


def variant_doubts(recipe: Mapping[str, Any], name: str, accelerator: Accelerator, where: str) -> list[str]:
    """Return a warning where the recipe does not list this hardware for its variant.

    That is permitted for plain weights on common hardware, and for everything on a lenient site.
    """
    variant = (recipe.get("variants") or {}).get(name) or {}
    model = recipe["model"]["model_id"]
    problem, supported = _unlisted(recipe, variant, accelerator), variant.get("supported_hardware")
    if problem is not None:
        return [f"{where}.variant: {name!r} of recipe {model} is not for {accelerator.model}: {problem}"]
    doubts = []
    if supported and not accelerator.is_listed(supported):
        listed = ", ".join(str(hardware) for hardware in supported)
        known = {W8A8: "its weights are in W8A8"} | dict.fromkeys(PLAIN_FORMATS, "its weights are plain")
        because = known.get(str(variant.get("precision")), "vLLM has kernels for its weights there")
        doubts.append(
            f"{where}.variant: recipe {model} lists {name!r} for {listed}, not for {accelerator.model}; {because}, so "
            "it is served all the same"
        )
    return doubts


def untried_hardware(recipe: Mapping[str, Any], accelerator: Accelerator, where: str) -> list[str]:
    """Return a warning where the recipe lists the hardware that it was tried on, and this is not among it."""
    listed = (recipe.get("meta") or {}).get("hardware") or {}
    if not listed or accelerator.pick(listed) is not None or accelerator.is_listed(list(listed)):
        return []
    names = ", ".join(str(name) for name in listed)
    return [f"{where}.recipe: {recipe['model']['model_id']} was tried on {names}, and not on {accelerator.model}"]


def check_format(
    recipe: Mapping[str, Any],
    model: str,
    manifest: Mapping[str, Any] | None,
    accelerator: Accelerator,
    where: str,
    serves: Serves = always,
) -> None:
    """Raise PlanError where the manifest gives the weights a number format that this hardware lacks.

    Many recipes, upstream's and a site's own, do not state the format; the manifest of the weights does.
    """
    found = str((manifest or {}).get("precision") or "")
    reason = dict(accelerator.lacks).get(found)
    if reason:
        raise PlanError(
            f"{where}: the weights of {model} are {found}, which {accelerator.model} does not support: {reason}; "
            f"{_way_out(recipe, accelerator, serves, model)}"
        )


def other_variants(
    recipe: Mapping[str, Any], chosen: str, accelerator: Accelerator, chips: int, serves: Serves = always
) -> list[str]:
    """Return the other variants that can be planned on this hardware and, by the recipe, fit into this many chips."""
    room = (accelerator.memory_mib or 0) / 1024 * chips
    return [
        _described(name, variant or {})
        for name, variant in (recipe.get("variants") or {}).items()
        if name != chosen
        and (variant or {}).get("vram_minimum_gb")
        and holds_estimate(variant, room)
        and not unsuited(recipe, variant or {}, accelerator)
        and serves(variant=name)
    ]


def _described(name: str, variant: Mapping[str, Any]) -> str:
    """Return the name of a variant, with its weights where it has its own."""
    return f"{name} (weights {variant['model_id']})" if variant.get("model_id") else name


def _way_out(recipe: Mapping[str, Any], accelerator: Accelerator, serves: Serves, besides: str = "") -> str:
    """Return the variants of a recipe that run on this hardware, with their own weights, as a clause.

    ``besides`` are weights that do not run on it, even if the recipe allows them.
    """
    own = recipe["model"]["model_id"]
    suited = {
        name: variant or {}
        for name, variant in (recipe.get("variants") or {}).items()
        if not unsuited(recipe, variant or {}, accelerator) and (variant or {}).get("model_id", own) != besides
    }
    fit = [_described(name, variant) for name, variant in suited.items() if serves(variant=name)]
    if suited and not fit:
        return f"no variant of this recipe can be served on {accelerator.count} of it"
    return f"the variants that run on it: {', '.join(fit)}" if fit else "no variant of this recipe runs on it"


def unsuited(recipe: Mapping[str, Any], variant: Mapping[str, Any], accelerator: Accelerator) -> str | None:
    """Return why a variant cannot run on this hardware, None where it can run."""
    return _lacking(variant, accelerator) or _unlisted(recipe, variant, accelerator)


def _lacking(variant: Mapping[str, Any], accelerator: Accelerator) -> str | None:
    """Return the catalogue's reason why the chips cannot serve the variant's number format."""
    return dict(accelerator.lacks).get(str(variant.get("precision") or ""))


def _unlisted(recipe: Mapping[str, Any], variant: Mapping[str, Any], accelerator: Accelerator) -> str | None:
    """Return why a variant is not for this hardware by the recipe, which lists the hardware that was tried."""
    precision = variant.get("precision")
    wanted = variant.get("precision_hardware")
    if wanted is None and precision in ONLY_BLACKWELL and accelerator.stack not in IN_16_BITS:
        wanted = {"generation": "blackwell"}
    if wanted and not all(_is_any(accelerator, _listed(names)) for names in wanted.values() if names):
        needs = " ".join(str(value) for value in wanted.values())
        return f"{precision} needs {needs}"
    if (recipe.get("meta") or {}).get("hardware", {}) and accelerator.pick(recipe["meta"]["hardware"]) == "unsupported":
        return "the recipe says that the model does not run there"
    supported = variant.get("supported_hardware")
    if supported and not accelerator.is_listed(supported) and not _is_portable(variant, accelerator):
        return f"it is for {', '.join(str(name) for name in supported)}"
    return None


def _is_portable(variant: Mapping[str, Any], accelerator: Accelerator) -> bool:
    """Return whether nothing in a variant depends on the hardware that its recipe lists, on a stack like this one."""
    if accelerator.generation == OWN_WEIGHTS:
        return False
    listed = variant.get("supported_hardware") or ()
    if accelerator.stack == "cann" and variant.get("precision") == W8A8:
        return all(str(name).startswith("ascend_") for name in listed)
    own = variant.get("extra_args") or variant.get("extra_env") or variant.get("model_id")
    if accelerator.stack == "cuda" and accelerator.kin(listed) and "arch:" not in str(listed):
        flags = {word for word in map(str, variant.get("extra_args") or ()) if word.startswith("-")}
        return flags <= {*COMMON_FLAGS} and not variant.get("extra_env")
    return accelerator.stack in COMMON_STACKS and variant.get("precision") in PLAIN_FORMATS and not own


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _is_any(accelerator: Accelerator, names: Iterable[Any]) -> bool:
    have = set(accelerator.names)
    return any(str(name).lower() in have for name in names)


def check_release(
    recipe: Mapping[str, Any], variant: Mapping[str, Any], version: str, release: str, where: str
) -> None:
    """Raise PlanError when the recipe needs a newer vLLM than the release has."""
    needs = variant.get("min_vllm_version") or recipe["model"].get("min_vllm_version")
    # Upstream also writes words such as "nightly" here.
    if needs and re.search(r"\d", str(needs)) and not satisfies(version, f">={str(needs).lstrip('>= ')}"):
        raise PlanError(
            f"{where}.recipe: {recipe['model']['model_id']} needs vLLM {needs} or newer, release {release!r} has "
            f"{version}; choose a newer vllm_release"
        )


def check_driver(stack: Mapping[str, Any], accelerator: Accelerator, release: str) -> None:
    """Raise PlanError when the host's driver is older than the release's images and wheels need."""
    needs = stack.get("minimum_driver")
    if needs and accelerator.driver_version and not satisfies(accelerator.driver_version, f">={needs}"):
        raise PlanError(
            f"vllm_release {release!r} needs driver {needs} or newer for {accelerator.stack}, the host has "
            f"{accelerator.driver_version}; upgrade the driver, or choose an older release"
        )
