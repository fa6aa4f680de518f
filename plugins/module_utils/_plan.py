# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accelerator x recipe x release x the site's wishes -> what vLLM is started with. No I/O."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Iterable, Mapping

from ansible_collections.baremetal.inference.plugins.module_utils._names import nearest
from ansible_collections.baremetal.inference.plugins.module_utils._words import (
    Words,
    merge,
    to_argv,
    to_config,
    words_to_args,
)

INSTANCE_KEYS = ("args", "env", "features", "host", "port", "preset", "recipe", "served_model_names", "variant")

# Arguments that follow from another key; given twice they could contradict each other.
OWNED_ARGS = {
    "model": "recipe",
    "revision": "the weights' manifest",
    "host": "host",
    "port": "port",
    "served-model-name": "served_model_names",
    "shutdown-timeout": "the role variable vllm_drain_timeout",
    "api-key": "the role variable vllm_secrets",
    "config": "args",
}
SECRET_ENV = ("VLLM_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "EXA_API_KEY")

GIB = 1024**3


class PlanError(ValueError):
    """The wishes cannot be served; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Site:
    """What the site decides for all instances of a host (paths on the host, times in seconds)."""

    release: str
    weights_root: str
    encodings_dir: str
    cache_root: str
    venv_root: str
    drain_timeout: int


@dataclass(frozen=True)
class Accelerator:
    """The accelerators of one host as the catalogue names them; ``memory_mib`` is one chip's (cpu: the host's)."""

    model: str
    stack: str
    generation: str
    vendor: str
    count: int
    memory_mib: int | None = None


@dataclass(frozen=True)
class ServePlan:
    """All that is needed to install and start one instance; ``as_dict`` is the document that people see."""

    host: str
    instance: str
    accelerator: str
    stack: str
    generation: str
    runtime: str
    vllm_version: str
    image: str | None
    model: str
    revision: str
    weights: str
    served_model_names: list[str]
    listen: dict[str, Any]
    env: dict[str, str]
    args: dict[str, Any]
    config: dict[str, Any]
    argv: list[str]
    launch: list[str]
    venv: dict[str, Any] | None
    libraries: list[str]
    devices: list[str]
    mounts: list[str]
    memory_required_gib: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, JSON-serialisable."""
        return asdict(self)


def check_instance(name: str, wishes: Mapping[str, Any]) -> None:
    """Raise PlanError for an instance that is malformed, before any file of the catalogue is read."""
    where = f"vllm_instances.{name}"
    for key in wishes:
        if key not in INSTANCE_KEYS:
            raise PlanError(f"{where}: unknown key {key!r}; {nearest(key, INSTANCE_KEYS)}")
    if not wishes.get("recipe"):
        raise PlanError(f"{where}: 'recipe' is missing; expected <org>/<model> of a file of the recipe catalogue")
    port = wishes.get("port", 8000)
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise PlanError(f"{where}.port: found {port!r}, expected a whole number from 1 to 65535")
    for key in ("args", "env"):
        if not isinstance(wishes.get(key, {}), Mapping):
            raise PlanError(f"{where}.{key}: found {wishes[key]!r}, expected a mapping of names to values")
    for key in wishes.get("args", {}):
        if key in OWNED_ARGS:
            raise PlanError(f"{where}.args.{key}: not set here; it comes from {OWNED_ARGS[key]}")
        if key.startswith("-") or "_" in key.split(".", 1)[0]:
            wanted = key.lstrip("-").replace("_", "-")
            raise PlanError(f"{where}.args: {key!r} is not how vLLM's --config file names a flag; expected {wanted!r}")
    for key in wishes.get("env", {}):
        if key in SECRET_ENV:
            raise PlanError(f"{where}.env.{key}: a secret does not belong here; put it into vllm_secrets.{name}.{key}")


def check_ports(instances: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise PlanError when two instances of one host want the same port."""
    taken: dict[int, str] = {}
    for name in sorted(instances):
        port = instances[name].get("port", 8000)
        if port in taken:
            raise PlanError(
                f"vllm_instances.{name}.port: {port} is the port of vllm_instances.{taken[port]} too; "
                "give one of them another"
            )
        taken[port] = name


def check_memory(plans: Iterable[ServePlan], accelerator: Accelerator) -> None:
    """Raise PlanError when the instances together want more memory than the host's accelerators have."""
    if accelerator.memory_mib is None:
        return
    wanted = {plan.instance: plan.memory_required_gib for plan in plans if plan.memory_required_gib}
    has = accelerator.memory_mib / 1024 * (1 if accelerator.stack == "cpu" else accelerator.count)
    need = sum(wanted.values())
    if need > has:
        parts = ", ".join(f"{name} {gib:g} GiB" for name, gib in sorted(wanted.items()))
        raise PlanError(
            f"too little memory: {parts} (vram_minimum_gb of the recipe) need {need:g} GiB, "
            f"{accelerator.count} x {accelerator.model} has {has:.1f} GiB; choose a smaller variant or another host"
        )


def plan(
    host: str,
    name: str,
    accelerator: Accelerator,
    recipe: Mapping[str, Any],
    release: Mapping[str, Any],
    manifest: Mapping[str, Any],
    wishes: Mapping[str, Any],
    site: Site,
) -> ServePlan:
    """Return what instance ``name`` of ``host`` is started with.

    ``recipe`` is a file of the recipe catalogue (upstream's schema), ``release`` one of ``catalog/releases``,
    ``manifest`` that of the weights, ``wishes`` the value of ``vllm_instances.<name>``. Raises PlanError.
    """
    check_instance(name, wishes)
    stack = _stack(release, site.release, accelerator)
    variant = _choose(recipe, "variants", wishes.get("variant", "default"), name)
    model = variant.get("model_id", recipe["model"]["model_id"])
    args, env = _compose(name, accelerator, recipe, variant, wishes)
    weights_path = f"{site.weights_root}/{manifest['repository']}/{manifest['revision']}"
    served = list(wishes.get("served_model_names") or [model])
    listen = {"host": wishes.get("host", "127.0.0.1"), "port": wishes.get("port", 8000)}
    config = {
        "model": weights_path,
        "served-model-name": served,
        **listen,
        **_release_args(release, site),
        **args,
    }
    venv = _venv(stack, release, accelerator, site)
    return ServePlan(
        host=host,
        instance=name,
        accelerator=accelerator.model,
        stack=accelerator.stack,
        generation=accelerator.generation,
        runtime=stack["runtime"],
        vllm_version=release["vllm"],
        image=stack.get("image"),
        model=model,
        revision=manifest["revision"],
        weights=weights_path,
        served_model_names=served,
        listen=listen,
        env=_environment(name, env, stack, site),
        args=args,
        config=to_config(config),
        argv=to_argv(config),
        launch=_launch(stack, venv),
        venv=venv,
        libraries=list(stack.get("libraries") or []),
        devices=[],
        mounts=[],
        memory_required_gib=variant.get("vram_minimum_gb"),
    )


def _stack(release: Mapping[str, Any], release_name: str, accelerator: Accelerator) -> Mapping[str, Any]:
    stacks = release["stacks"]
    if accelerator.stack not in stacks:
        raise PlanError(
            f"vllm_release {release_name!r} has nothing for stack {accelerator.stack!r} "
            f"(accelerator {accelerator.model!r}); "
            f"it serves: {', '.join(sorted(stacks))}"
        )
    found: Mapping[str, Any] = stacks[accelerator.stack]
    return found


def _choose(recipe: Mapping[str, Any], kind: str, wanted: str, name: str) -> Mapping[str, Any]:
    """Return one entry of ``variants`` or ``presets``, an error with the nearest name where it is not there."""
    entries = recipe.get(kind) or {}
    if wanted not in entries:
        key = f"vllm_instances.{name}.{kind[:-1]}"
        raise PlanError(
            f"{key}: recipe {recipe['model']['model_id']} has no {kind[:-1]} {wanted!r}; {nearest(wanted, entries)}"
        )
    found: Mapping[str, Any] = entries[wanted]
    return found


def _compose(
    name: str,
    accelerator: Accelerator,
    recipe: Mapping[str, Any],
    variant: Mapping[str, Any],
    wishes: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Lay the layers over each other, weakest first; a later one wins key by key, None removes a key."""
    args: dict[str, Any] = {}
    env: dict[str, Any] = {}
    for where, words, extra_env in _layers(name, accelerator, recipe, variant, wishes):
        try:
            args = merge(args, words if isinstance(words, Mapping) else words_to_args(words))
        except ValueError as exc:
            raise PlanError(f"recipe {recipe['model']['model_id']}, {where}: {exc}") from exc
        env = {**env, **extra_env}
    return args, {key: str(value) for key, value in env.items() if value is not None}


def _layers(
    name: str,
    accelerator: Accelerator,
    recipe: Mapping[str, Any],
    variant: Mapping[str, Any],
    wishes: Mapping[str, Any],
) -> Iterable[tuple[str, Words, Mapping[str, Any]]]:
    base = recipe["model"]
    yield "model", base.get("base_args") or [], base.get("base_env") or {}
    yield "variant", variant.get("extra_args") or [], variant.get("extra_env") or {}
    if wishes.get("preset"):
        preset = _choose(recipe, "presets", wishes["preset"], name)
        yield f"presets.{wishes['preset']}", preset.get("extra_args") or [], preset.get("extra_env") or {}
    overrides = recipe.get("hardware_overrides") or {}
    # Upstream's fall-back: a generation without a block of its own takes its vendor's; the exact model comes last.
    generation = accelerator.generation if accelerator.generation in overrides else accelerator.vendor
    for key in dict.fromkeys((generation, accelerator.model)):
        block = overrides.get(key) or {}
        yield f"hardware_overrides.{key}", block.get("extra_args") or [], block.get("extra_env") or {}
    for feature in _features(name, recipe, wishes):
        yield f"features.{feature}", recipe["features"][feature].get("args") or [], {}
    yield f"vllm_instances.{name}", wishes.get("args") or {}, wishes.get("env") or {}


def _features(name: str, recipe: Mapping[str, Any], wishes: Mapping[str, Any]) -> list[str]:
    """Return the features that are on: those wished for, else all that the recipe does not make opt-in."""
    offered = recipe.get("features") or {}
    if "features" not in wishes:
        return [key for key in offered if key not in (recipe.get("opt_in_features") or [])]
    for key in wishes["features"]:
        if key not in offered:
            raise PlanError(
                f"vllm_instances.{name}.features: recipe {recipe['model']['model_id']} has no feature {key!r}; "
                f"{nearest(key, offered)}"
            )
    return list(wishes["features"])


def _release_args(release: Mapping[str, Any], site: Site) -> dict[str, Any]:
    """Arguments that every instance gets where the release knows them."""
    options = release.get("supports") or []
    args: dict[str, Any] = {}
    if "shutdown-timeout" in options:
        args["shutdown-timeout"] = site.drain_timeout
    if "fail-on-environ-validation" in options:
        # vLLM ignores a VLLM_* variable that it does not know unless told to refuse it.
        args["fail-on-environ-validation"] = True
    return args


def _environment(name: str, env: Mapping[str, str], stack: Mapping[str, Any], site: Site) -> dict[str, str]:
    """Return the whole environment of an instance: caches that survive a restart, no network but the API's own."""
    cache = f"{site.cache_root}/{name}"
    whole = {
        "DO_NOT_TRACK": "1",
        "HF_HOME": f"{cache}/huggingface",
        "HF_HUB_OFFLINE": "1",
        "HOME": cache,
        # The environment is root's and comes without byte code; this halves the time of every start but the first.
        "PYTHONPYCACHEPREFIX": f"{cache}/pycache",
        "TIKTOKEN_ENCODINGS_BASE": site.encodings_dir,
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_CACHE_ROOT": f"{cache}/vllm",
        "VLLM_NO_USAGE_STATS": "1",
        **{key: str(value) for key, value in (stack.get("env") or {}).items()},
        **env,
    }
    return dict(sorted(whole.items()))


def _venv(
    stack: Mapping[str, Any], release: Mapping[str, Any], accelerator: Accelerator, site: Site
) -> dict[str, Any] | None:
    """Return where the virtual environment of a ``venv`` runtime lies; its name holds the lock's hash."""
    if stack["runtime"] != "venv":
        return None
    name = f"{release['vllm']}-{accelerator.stack}"
    return {
        "name": name,
        "path": f"{site.venv_root}/{name}-{stack['requirements_sha256'][:12]}",
        "requirements": stack["requirements"],
        "size_bytes": int(stack.get("venv_size_gib", 0) * GIB),
    }


def _launch(stack: Mapping[str, Any], venv: Mapping[str, Any] | None) -> list[str]:
    """Return the words that stand before vLLM's own arguments in this runtime."""
    if venv is None:
        raise PlanError(f"runtime {stack['runtime']!r} is not there yet; only 'venv' is")
    if stack.get("entrypoint") == "module":
        return [f"{venv['path']}/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    return [f"{venv['path']}/bin/vllm", "serve"]
