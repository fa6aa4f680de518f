# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments and variables of an engine: composed from all layers, completed for its host, and checked."""

import re
from dataclasses import replace
from typing import Any, Mapping, Sequence

from ..common.versions import satisfies
from ..options.table import Foreign, Unknown
from ..options.values import decoded
from .checks import (
    FRONTEND,
    STOP_AT_VARIABLES,
    check_depth,
    check_frontend,
    doubts_of,
    errors_of,
    exclusions,
    flags_as_values,
    option_problems,
    placeholders,
    stopping_variables,
    together,
)
from .choices import Chosen, facts_of
from .compose import Composed, Layer, compose, layers_of
from .disaggregation import check_requested
from .disaggregation import layers as disaggregated
from .divisions import check_sizes, size_of
from .environment import base_env, needs_vocabulary
from .fit import length_layer, length_problem
from .groups import check_executor, environment
from .hardware import Accelerator
from .inputs import Library, Manifest, PlanError, SiteSettings
from .kernels import Kernels, plan_kernels
from .live_adapters import BECAUSE, live_env
from .named_files import TEMPLATE, WITH_EXAMPLES, file_problems, quantization_problems, with_files
from .offload import offload_layers
from .own_place import check_answers
from .permission import check_permission
from .preload import check_preload, preload_layers
from .residents import check_resident, residents_layers
from .runtime import venv_of
from .side_models import draft_problems, with_paths

# Arguments that other keys of the instance set.
PLACE = {
    "model": "recipe", "served-model-name": "served_model_names", "host": "host", "port": "port", "device-ids": "chips",
}  # fmt: skip
# Settings that a recipe or the site makes for graphs: vLLM refuses or ignores the collection's own beside them.
GRAPHS = (
    "enforce-eager", "cudagraph-capture-sizes", "max-cudagraph-capture-size", {"optimization-level": "0"},
    {"compilation-config.cudagraph_mode": ["NONE", "0"]}, "compilation-config.max_cudagraph_capture_size",
)  # fmt: skip
# The keys of a group of settings that name architectures of chips.
CHIPS = {"only_on", "not_on"}

# vLLM fetches pictures, films and sounds from these domains; without any, from every address.
MEDIA_DOMAINS, MEDIA_REDIRECTS = "allowed-media-domains", "VLLM_MEDIA_URL_ALLOW_REDIRECTS"
# No host has such a name (RFC 2606).
NO_DOMAIN = "none.invalid"
MEDIA_TASKS = {"multimodal", "omni"}
# A key in the configuration of such a model, and its class. More get it: it does nothing for a model of texts.
_MEDIA_KEY = re.compile(
    r"(^|_)(vi[st]|vision|visual|ima?ge?|audio|video|speech|media|mm|vq|thinker|patch|encoder|projector)(_|$)"
)
_MEDIA_CLASS = re.compile(
    r"VL|Vi(sion|deo)|Image|Audio|Speech|Omni|Multi[Mm]od|MM|Molmo|Llava|Pixtral|ConditionalGeneration"
)


def with_chips(entry: Chosen, accelerator: Accelerator) -> Chosen:
    """Return the entry with the chips that its arguments take: a recipe's may divide otherwise than its strategy."""
    if entry.group is not None or accelerator.stack == "cpu":
        return entry
    own = Layer(entry.where, entry.requested.get("args") or {})
    layers = [*layers_of(entry.recipe, accelerator, entry.choice, facts_of(entry, accelerator)), own]
    args = compose(layers, entry.table, f"recipe {entry.recipe['model']['model_id']}").args
    chips = size_of(args, "data-parallel-size-local", size_of(args, "data-parallel-size"))
    for name in ("tensor-parallel-size", "pipeline-parallel-size", "prefill-context-parallel-size"):
        chips *= size_of(args, name)
    return replace(entry, demand=replace(entry.demand, chips=max(1, chips)))


def compose_settings(
    entry: Chosen, accelerator: Accelerator, site: SiteSettings, library: Library, chips: int
) -> Composed:
    """Return the checked arguments and environment that all replicas of the instance share; each has so many chips."""
    facts = facts_of(entry, accelerator)
    requested = entry.requested
    own = Layer(entry.where, requested.get("args") or {}, requested.get("env") or {}, "set by the site")
    layers = [
        *layers_of(entry.recipe, accelerator, entry.choice, facts),
        *_chip_layers(accelerator),
        *_release_layers(entry, site, library.foreign(accelerator.stack)),
        *_group_layers(entry, accelerator, site),
        own,
        *residents_layers(entry),
        *preload_layers(entry, library),
    ]
    where = f"recipe {entry.recipe['model']['model_id']}"
    kernels = kernels_of(entry, accelerator, site)
    first = compose(layers, entry.table, where)
    check_depth(first.args, entry.where)
    # The site's own settings come after these too.
    chips_own = [*_graph_layers(entry, first, accelerator)]
    chips_own += _refused_kernels(entry, first, _relations_on(library, accelerator))
    layers = [layer for each in layers for layer in ([*chips_own, each] if each is own else [each])]
    because = "offline, quiet, and caches that survive a restart"
    base = Layer("collection", (), base_env(entry, accelerator, site, needs_vocabulary(entry, first.args)), because)
    compiling = Layer("collection", (), kernels.env, kernels.because)
    adapting = Layer("collection", (), live_env(entry, first), BECAUSE)
    layers = [
        base,
        compiling,
        adapting,
        *_media_layers(entry, library),
        *layers,
        *offload_layers(entry, first, accelerator, chips),
    ]
    layers += _removals(entry, first)
    composed = compose(layers, entry.table, where)
    length = length_layer(entry, composed, accelerator, library)
    if length:
        layers.append(length)
        composed = compose(layers, entry.table, where)
    unchanged = composed
    # The instance itself sets its address and its model; a recipe's value would be the same for all replicas.
    args = {name: value for name, value in composed.args.items() if name not in PLACE}
    manifest = library.manifest(entry.pinned)
    weights = weights_path(manifest, site) if manifest else None
    args = with_files(args, manifest, weights, _has_examples(entry, accelerator))
    composed = _with_local_paths(replace(composed, args=args), site, library)
    if entry.requested.get("residents"):
        check_resident(entry, composed, accelerator, library.others(entry.table.version))
    check_preload(entry, composed, accelerator)
    _check_options(entry, composed, accelerator, site, library)
    check_sizes(composed.args, config_of(entry, library), entry.where, entry.serves)
    if entry.group is not None and entry.group.disaggregated:
        check_requested(composed.args, entry.where)
    elif entry.group is not None:
        check_executor(composed.args, entry.where)
    check_frontend(composed.env, entry.where)
    # First: what nobody can allow needs no permission.
    check_answers(entry, unchanged)
    check_permission(entry, unchanged, layers, library.restrictions, (manifest or {}).get("files") or ())
    return composed


def _is_strict(entry: Chosen, site: SiteSettings) -> bool:
    """Return whether unknown names are refused: a lenient site permits them, and a recipe's own build may have them."""
    return site.strict and entry.software.build is None


def _release_layers(entry: Chosen, site: SiteSettings, foreign: Foreign) -> list[Layer]:
    """Return the arguments that every instance gets where the release supports them, each with its reason.

    vLLM's own check of variables knows no plugin, and would stop at each variable of one, and at those that are
    permitted although the release's table does not have them.
    """
    wanted: list[tuple[str, Any, str]] = [
        ("shutdown-timeout", site.drain_timeout, "requests finish before a stop"),
        (STOP_AT_VARIABLES, True, "by default vLLM ignores a VLLM_* variable that it does not know"),
    ]
    unchecked = {STOP_AT_VARIABLES} if foreign.plugin or not _is_strict(entry, site) else set()
    options = {*(entry.release.get("supports") or [])} - unchecked
    return [Layer("collection", {name: value}, {}, why) for name, value, why in wanted if name in options]


def _media_layers(entry: Chosen, library: Library) -> list[Layer]:
    """Return what keeps vLLM from asking any address that a client names, which it does for pictures by default."""
    tasks = {*((entry.recipe.get("meta") or {}).get("tasks") or [])}
    config = config_of(entry, library)
    known = any(map(_MEDIA_KEY.search, config)) or _MEDIA_CLASS.search(str(config.get("architectures")))
    if not tasks & MEDIA_TASKS and not known:
        return []
    args = {MEDIA_DOMAINS: [NO_DOMAIN]} if MEDIA_DOMAINS in entry.table.flags else {}
    env = {MEDIA_REDIRECTS: "0"} if MEDIA_REDIRECTS in entry.table.env else {}
    because = "pictures come as data: URLs; clients could read addresses of this network otherwise"
    return [Layer("collection", args, env, because)] if args or env else []


def _chip_layers(accelerator: Accelerator) -> list[Layer]:
    """Return what a chip needs, whatever a recipe says, which was written for others; the site may say otherwise."""
    if accelerator.generation != "ascend_310p":
        return []
    because = "this chip computes in float16 only (vllm-ascend's guides for the Atlas 300I Duo)"
    return [Layer("collection", {"dtype": "float16", "mamba-ssm-cache-dtype": "float16"}, {}, because)]


def _graph_layers(entry: Chosen, first: Composed, accelerator: Accelerator) -> list[Layer]:
    """Return the graphs that a 310P captures, by the mode and the sizes of vllm-ascend's guides (0.30.0rc2)."""
    read = accelerator.generation == "ascend_310p" and satisfies(entry.table.version, ">=0.30.0rc0")
    if not read or any(together(first.args, [setting]) for setting in GRAPHS):
        return []
    guesses = decoded(first.args.get("speculative-config"))
    tokens = 1 + (size_of(guesses, "num_speculative_tokens", 0) if isinstance(guesses, Mapping) else 0)
    shared = size_of(first.args, "tensor-parallel-size") > 1
    sizes = [tokens * size for size in ((1, 8) if shared else (1, 2, 4, 8, 16, 32))]
    because = "this chip captures graphs of decoding, of two sizes where it shares a model (vllm-ascend's guides)"
    graphs = {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": sizes}
    return [Layer("collection", {"compilation-config": graphs}, {}, because)]


def _relations_on(library: Library, accelerator: Accelerator) -> list[Mapping[str, Any]]:
    """Return the relations of settings that hold on these chips."""
    kinds = {name.partition(":")[2] for name in accelerator.architectures}

    def holds(group: Mapping[str, Any]) -> bool:
        able = kinds & {*group["only_on"]} if "only_on" in group else kinds - {*group.get("not_on", kinds)}
        elsewhere = not able and (bool(kinds) or not CHIPS & {*group})
        return elsewhere and group.get("stack", accelerator.stack) == accelerator.stack

    return [group for group in library.exclusive if holds(group)]


def _refused_kernels(entry: Chosen, first: Composed, groups: Sequence[Mapping[str, Any]]) -> list[Layer]:
    """Return the layers that remove kernels which a recipe names for all chips of a vendor, and vLLM refuses here."""
    found = [group for group in groups if CHIPS & {*group}]
    found = [group for group in found if any(exclusions(first.args, first.env, [group], entry.table))]
    return [Layer("collection", {name: None}, {}, group["because"]) for group in found for name in group["settings"]]


def _group_layers(entry: Chosen, accelerator: Accelerator, site: SiteSettings) -> list[Layer]:
    """Return the variables of an instance that spans hosts."""
    if entry.group is None:
        return []
    group, sizes = entry.group, entry.choice.sizes
    env = environment(group, accelerator.stack, site.fabric)
    own = [Layer("group", {}, env, "hosts of a group talk in their own network")]
    if group.disaggregated:
        place = {"address": group.address, "interface": group.interface, "port": group.port, "rank": group.rank}
        place |= {"tensor": sizes.tensor, "data": sizes.chips // sizes.tensor}
        own += disaggregated(entry.recipe, group.role, accelerator, place, site.fabric, entry.table.env)
    return own


def kernels_of(entry: Chosen, accelerator: Accelerator, site: SiteSettings) -> Kernels:
    """Return the settings for an instance's kernels; a container has its own compilers."""
    if entry.runtime != "venv":
        return Kernels()
    path = venv_of(entry.release, entry.stack, accelerator, site.venv_root)["path"]
    return plan_kernels(entry.stack, accelerator.stack, accelerator.generation, path)


def _removals(entry: Chosen, first: Composed) -> list[Layer]:
    """Return the layers that remove variables of a recipe which cannot have their effect here."""
    why = {FRONTEND: "vLLM's frontend in Rust refuses --middleware, by which this collection counts tokens"}
    if entry.runtime == "container" and ".bashrc" in str(entry.stack.get("entrypoint")):
        why["LD_PRELOAD"] = "the .bashrc of the image, which its start reads, sets it to jemalloc"
    names = set(first.env) - set(entry.requested.get("env") or {})
    return [Layer("collection", {}, {name: None}, text) for name, text in why.items() if name in names]


def _with_local_paths(composed: Composed, site: SiteSettings, library: Library) -> Composed:
    """Return the arguments with the paths of other pinned repositories, because hosts have no hub to ask."""

    def path_of(name: str) -> str | None:
        manifest = library.manifest(name)
        return weights_path(manifest, site) if manifest else None

    return replace(composed, args=with_paths(composed.args, path_of))


def _check_options(
    entry: Chosen, composed: Composed, accelerator: Accelerator, site: SiteSettings, library: Library
) -> None:
    table, foreign, strict = entry.table, library.foreign(accelerator.stack), _is_strict(entry, site)
    if errors_of(option_problems(composed.args, composed.env, table, foreign), strict):
        # Only an error message needs the other releases that have a name.
        others = library.others(table.version)
        problems = option_problems(composed.args, composed.env, table, foreign, others, library.replaced)
        raise PlanError(f"{entry.where}: {'; '.join(errors_of(problems, strict))}")
    problems = [*_unknown_removals(entry, composed, foreign, library)]
    problems += [*placeholders(composed.args, composed.env), *flags_as_values(composed.args)]
    problems += [*stopping_variables(composed.args, composed.env, table)]
    problems += [*_relations(entry, composed, accelerator, site, library)]
    for problem in errors_of(problems, strict):
        raise PlanError(f"{entry.where}: {problem}")


def _unknown_removals(entry: Chosen, composed: Composed, foreign: Foreign, library: Library) -> list[str]:
    """Return a problem for each name that the instance takes away with null, and that no layer and no release has.

    A misspelt name would take nothing away.
    """
    table = entry.table
    args, env = (
        [name for name, value in (entry.requested.get(key) or {}).items() if value is None] for key in ("args", "env")
    )
    args = [name for name in args if not table.canonical(f"--{name}") and len(composed.history.get(name, ())) < 2]
    env = [name for name in env if name.startswith("VLLM_") and len(composed.history.get(f"env.{name}", ())) < 2]
    env = [name for name in env if table.check_env([name], foreign)]
    if not args and not env:
        return []
    others = library.others(table.version)
    args = [name for name in args if not any(other.canonical(f"--{name}") for other in others)]
    env = [name for name in env if not any(name in other.env for other in others)]
    found = [*table.check_args(dict.fromkeys(args, True), others, library.replaced)]
    return [*found, *table.check_env(env, foreign, others, library.replaced)]


def _relations(
    entry: Chosen, composed: Composed, accelerator: Accelerator, site: SiteSettings, library: Library
) -> list[str]:
    """Return the problems of settings that do not go together, or not with the model and its files."""
    length = length_problem(entry, composed, config_of(entry, library))
    manifest, stack = library.manifest(entry.pinned), accelerator.stack
    groups = _relations_on(library, accelerator)
    examples, own = _has_examples(entry, accelerator), entry.runtime == "container" and bool(site.image)
    templates = library.foreign(stack).names_of(TEMPLATE, entry.table.version)
    return [
        *exclusions(composed.args, composed.env, groups, entry.table),
        *file_problems(composed.args, manifest is not None, examples, templates, own),
        *quantization_problems(composed.args, manifest or {}),
        *draft_problems(composed.args, config_of(entry, library)),
        *([length] if length else []),
    ]


def _has_examples(entry: Chosen, accelerator: Accelerator) -> bool:
    """Return whether vLLM starts in a directory that has its examples."""
    return entry.runtime == "container" and accelerator.stack in WITH_EXAMPLES


def doubts_about(
    entry: Chosen, composed: Composed, accelerator: Accelerator, site: SiteSettings, library: Library
) -> list[str]:
    """Return what remains after the check: unknown names that a lenient site permits, and unlisted values."""
    table, foreign = entry.table, library.foreign(accelerator.stack)
    problems = option_problems(composed.args, composed.env, table, foreign)
    doubts = doubts_of([*problems, *_relations(entry, composed, accelerator, site, library)])
    unknown = table.check_env([name for name in composed.env if not name.startswith("VLLM_")], foreign)
    build = entry.software.build
    having = f"; the recipe's image {build} may have it" if build else ""
    doubts = [f"{each}{having}" if isinstance(each, Unknown) else each for each in doubts]
    return [*(f"{entry.where}: {each}" for each in doubts), *(f"{entry.where}.env: {each}" for each in unknown)]


def config_of(entry: Chosen, library: Library) -> Mapping[str, Any]:
    """Return the configuration of the model in the manifest of its weights, empty where none has it."""
    return (library.manifest(entry.pinned) or {}).get("config") or {}


def weights_path(manifest: Manifest, site: SiteSettings) -> str:
    return f"{site.weights_root}/{manifest['repository']}/{manifest['revision']}"
