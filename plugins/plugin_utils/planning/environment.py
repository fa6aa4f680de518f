# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of an instance, and the host paths that its container mounts."""

from typing import Any, Mapping, Sequence

from ...module_utils.encodings.library import ENCODINGS_VARIABLE
from ...module_utils.vllm.adapters import has_guard
from ...module_utils.vllm.files import LIBRARY, Middleware, metadata_path
from .choices import Chosen
from .compose import Composed
from .hardware import Accelerator
from .inputs import SiteSettings
from .own_place import cache_paths, check_place, reasons_of
from .runtime import ROOT_STACKS, visible_env
from .side_models import paths_in

# Parsers of vLLM that read the vocabulary of gpt-oss, whatever a model is called.
_HARMONY_PARSERS = {"tool-call-parser": ("openai",), "reasoning-parser": ("openai_gptoss",)}


def needs_vocabulary(entry: Chosen, args: Mapping[str, Any]) -> bool:
    """Return whether vLLM reads the vocabulary of gpt-oss for this instance: by the model's name or by its parsers."""
    names = (entry.recipe["model"]["model_id"], entry.variant.get("model_id"), entry.requested["recipe"])
    if any("gpt-oss" in str(name).lower() for name in names):
        return True
    return any(args.get(flag) in parsers for flag, parsers in _HARMONY_PARSERS.items())


def base_env(entry: Chosen, accelerator: Accelerator, site: SiteSettings, vocabulary: bool) -> dict[str, str]:
    """Return the variables that every instance starts with; recipe and site may override each of them."""
    own = entry.stack.get("env") if entry.runtime == "venv" else entry.stack.get("container_env")
    without = entry.stack.get("env_not_on") or {}
    return {
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        **({ENCODINGS_VARIABLE: site.encodings_dir} if vocabulary else {}),
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        **{key: str(value) for key, value in (own or {}).items() if accelerator.model not in without.get(key, ())},
    }


def environment_of(
    name: str,
    entry: Chosen,
    composed: Composed,
    accelerator: Accelerator,
    chips: Sequence[int],
    site: SiteSettings,
    middleware: Middleware,
) -> tuple[dict[str, str], list[str]]:
    """Return the whole environment of one instance, and warnings of variables that have no effect.

    It is made of the composed variables, its own caches, its own chips and its middleware.
    """
    cache = f"{site.cache_root}/{name}"
    caches = _caches(cache, entry, accelerator)
    visible = visible_env(accelerator, chips, entry.runtime, {})
    places = {**cache_paths(composed.env, cache), **caches}
    reasons = reasons_of(entry, accelerator, places, middleware.env)
    ignored, warnings = check_place(entry, composed, reasons, {**places, **visible, **middleware.env}, cache)
    kept = {key: value for key, value in composed.env.items() if key not in ignored}
    # A PYTHONPATH that only an image has would not be seen: what needs one has a shell that makes it at the start
    # (Ascend's), or names it in the instance's env.
    path = [LIBRARY, kept.get("PYTHONPATH", ""), metadata_path(name) if has_metadata(entry) else ""]
    own = {**middleware.env, "PYTHONPATH": ":".join(filter(None, path))}
    return dict(sorted({**caches, **kept, **visible, **own}.items())), warnings


def _caches(cache: str, entry: Chosen, accelerator: Accelerator) -> dict[str, str]:
    """Return the variables that place an instance's caches and its home."""
    caches = {
        "HF_HOME": f"{cache}/huggingface",
        # Torch's own choice is below /tmp, which ends with the unit. Where it compiles, it takes Triton's kernels there
        # too, those of the model's experts among them, and the next start would compile them again.
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torchinductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "VLLM_CACHE_ROOT": f"{cache}/vllm",
    }
    if entry.runtime == "container":
        # Images may lack bytecode, and bytecode written inside a container is lost with it. This cache halves the time
        # of every start but the first. A virtual environment has its own bytecode, which this variable would hide.
        caches["PYTHONPYCACHEPREFIX"] = f"{cache}/pycache"
    if entry.runtime == "container" and accelerator.stack in ROOT_STACKS:
        # These images find their libraries through files in /root, their home.
        caches["XDG_CACHE_HOME"] = cache
    else:
        caches["HOME"] = cache
    if entry.runtime == "container" and accelerator.stack not in ROOT_STACKS:
        # Images have no user with the host's number, and torch needs a name.
        caches["USER"] = "vllm"
    return caches


def has_metadata(entry: Chosen) -> bool:
    """Return whether the environment needs the metadata of a distribution called vllm.

    `vllm serve` asks for its version, and this build has another name.
    """
    return entry.runtime == "venv" and entry.stack.get("entrypoint") == "module"


def mounts_of(
    name: str,
    weights: str | None,
    composed: Composed,
    accelerator: Accelerator,
    site: SiteSettings,
    also: Sequence[str] = (),
) -> list[str]:
    """Return the host paths that a container mounts under the same names: inputs read-only, its cache writable."""
    encodings = composed.env.get(ENCODINGS_VARIABLE)
    inputs = [
        *([weights] if weights else []),
        *_side_paths(composed, site),
        # The container engine refuses to mount a missing path, and a host that needs no encodings has none.
        *([encodings] if encodings else []),
        f"{site.config_dir}/{name}.yaml",
        *accelerator.mounts,
        *also,
    ]
    cache = f"{site.cache_root}/{name}"
    return [*(f"{path}:{path}:ro" for path in dict.fromkeys(inputs)), f"{cache}:{cache}"]


def _side_paths(composed: Composed, site: SiteSettings) -> list[str]:
    """Return the paths of what an instance needs besides its model.

    A mount cannot be added to a running container. One that loads adapters while it runs has all weights instead.
    """
    paths = paths_in(composed.args)
    if not has_guard(composed.env):
        return paths
    below = f"{site.weights_root}/"
    return [site.weights_root, *(path for path in paths if not path.startswith(below))]
