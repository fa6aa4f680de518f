# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that arguments name by a relative path, or need beside the weights: templates, parsers, quantization.

Upstream's recipes name them as they are in the working directory of vLLM's images. Whether they are elsewhere depends
on the runtime.
"""

import re
from typing import Any, Collection, Iterator, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import misspelt
from ...module_utils.vllm.files import CHAT_TEMPLATES, LIBRARY
from ..options.table import Doubt, Unknown
from .side_models import odd_places

TEMPLATE = "chat-template"
FLAGS = (TEMPLATE, "reasoning-parser-plugin", "tool-parser-plugin")
EXAMPLES = "examples/"
# A text that begins so is the path of a URL.
NO_FILES = ("root-path", "disable-access-log-for-endpoints")
# Stacks whose images have vLLM's examples in their working directory.
WITH_EXAMPLES = ("cuda", "cpu")
# Where vLLM looks for a method's own settings if config.json has none (get_config_filenames of each of its classes).
_METHODS = {
    "awq": ("quantize_config.json", "quant_config.json"),
    "gptq": ("quantize_config.json",),
    "modelopt": ("hf_quant_config.json",),
}


def named(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each flag with the path that it names; a chat template may be the text itself."""
    for flag in FLAGS:
        value = args.get(flag)
        if value is not None and not isinstance(value, bool) and not {*str(value)} & {*"{}\n"}:
            yield flag, str(value)


def with_files(
    args: Mapping[str, Any], manifest: Mapping[str, Any] | None, weights: str | None, examples: bool
) -> dict[str, Any]:
    """Return the arguments with the host's path of each file that comes with the weights or with this collection.

    ``examples`` says that the image has vLLM's examples.
    """
    found = dict(args)
    for flag, value in named(args):
        if value in ((manifest or {}).get("files") or {}):
            found[flag] = f"{weights}/{value}"
        elif flag == TEMPLATE and not examples and value in [EXAMPLES + name for name in CHAT_TEMPLATES]:
            found[flag] = f"{LIBRARY}/{value[len(EXAMPLES) :]}"
    return found


def file_problems(
    args: Mapping[str, Any], pinned: bool, examples: bool, templates: Collection[str], own: bool = False
) -> Iterator[str]:
    """Yield a sentence for each file that nothing has brought where vLLM starts; a Doubt without ``pinned`` weights.

    ``templates`` are the chat templates of the release, an Unknown one may be in a newer build. An image that is
    the site's ``own`` may have any file.
    """
    for flag, value in named(args):
        is_example = value.startswith(EXAMPLES)
        if value.startswith("/") or (flag == TEMPLATE and value in templates and (examples or not is_example)):
            continue
        if own:
            yield Doubt(f"{flag} names {value}, which vLLM finds only if it is in the working directory of the image")
            continue
        near = misspelt(value, templates) if flag == TEMPLATE and (examples or not is_example) else None
        nearby = f"nearest: {near!r}; or " if near else ""
        text = (
            f"{flag} names {value}, which nothing brings to the place where vLLM starts; {nearby}set args {flag} to "
            "the absolute path of a copy that vLLM can read there (of a container: in its image), or take it away with "
            "null"
        )
        yield Unknown(text) if near else text if pinned or is_example else Doubt(text)
    for flag, value in odd_places(args):
        yield f"{flag} names {show_value(value)}, expected an absolute path, or the ORGANISATION/NAME of a repository"


def unmounted(where: str, args: Mapping[str, Any], mounts: Sequence[str]) -> list[str]:
    """Return a warning for each argument with a path that no mount of the container holds; without one for none."""
    held = (LIBRARY, *(mount.split(":")[1] for mount in mounts))
    return [
        f"{where}.args.{name}: names {value}, which no mount of the container holds; vLLM finds it in the image only"
        for name, value in args.items()
        if mounts and name not in NO_FILES and str(value).startswith("/")
        if not any(f"{value}/".startswith(f"{path}/") for path in held)
    ]


def quantization_problems(args: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for a method of quantization whose settings are nowhere in the weights, as config.json says."""
    method = str(args.get("quantization") or "")
    files = next((files for name, files in _METHODS.items() if re.match(rf"(?:auto_)?{name}(?:_|\Z)", method)), ())
    if files and manifest.get("config") and not manifest.get("precision") and not {*files} & {*manifest["files"]}:
        text = (
            f"quantization is {method}, and the weights are not quantized: neither their config.json nor "
            f"{' or '.join(files)} describes it; take it away with null, or name quantized weights"
        )
        # vLLM looks there too, and for a model of several parts in its text_config, of which the manifest says nothing.
        parts = "ForConditionalGeneration" in str(manifest["config"].get("architectures"))
        yield Doubt(text) if parts or "hf-overrides" in args else text
