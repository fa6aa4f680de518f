# SPDX-License-Identifier: GPL-3.0-or-later
"""The software that a recipe needs besides a release: a build of vLLM of its own, and packages beside vLLM.

Upstream's recipes name images (``docker_image``) and installation steps (``dependencies``, ``install``) that people
type. A plan uses the image, and refuses anything that neither the image nor the lock of wheels can have.
"""

import re
from dataclasses import dataclass
from typing import Any, Iterator, Mapping

from ...module_utils.containers.image_names import IMAGE
from ..common.versions import satisfies
from .hardware import BRANDS, Accelerator, exact_blocks, generation_blocks
from .inputs import PlanError, SiteSettings

# Repositories whose versions are the releases of vLLM. Any other tag there, and any other repository, is a build of its
# own.
_OFFICIAL = re.compile(r"(docker\.io/)?vllm/vllm-openai(-rocm|-cpu|-xpu)?\Z|quay\.io/ascend/vllm-ascend\Z")
_VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)(?![\d.])")
# Packages with kernels of CUDA alone, which recipes name without a brand.
_FOR_CUDA = re.compile(r"DeepGEMM|paddlepaddle-gpu")
# What an image runs before the arguments of the plan; another command would be code of the recipe's author.
COMMAND = ("vllm", "serve")
# Notes are written for people who install by hand; some are a page long.
_NOTE_LENGTH = 240

_BUILD_IMAGE = "build an image with it and set vllm_image"
_OPTIONAL = "or, if it already exists, mark the step `optional: true` in a recipe file of your own (vllm_recipe_path)"


@dataclass(frozen=True)
class Software:
    """The image that a recipe names in place of the release's, None where it names none, and warnings.

    ``command`` are the words that start vLLM in that image; empty where the release's do. ``build`` is the image that
    is used, where it is the recipe's own build of vLLM.
    """

    image: str | None = None
    warnings: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    build: str | None = None


@dataclass(frozen=True)
class _Asked:
    """One recipe with its variant, on one hardware, in one release and runtime."""

    recipe: Mapping[str, Any]
    variant: Mapping[str, Any]
    accelerator: Accelerator
    stack: Mapping[str, Any]
    runtime: str
    version: str
    release: str

    @property
    def model(self) -> str:
        return str(self.recipe["model"]["model_id"])

    @property
    def mode(self) -> str:
        """Upstream's name of the runtime, as ``install`` and ``install_modes`` have it."""
        return "docker" if self.runtime == "container" else "pip"

    @property
    def install(self) -> Any:
        """The entry of ``install`` for this runtime: a mapping, False if the recipe excludes it, None without one."""
        return (self.recipe["model"].get("install") or {}).get(self.mode)


def choose_software(
    recipe: Mapping[str, Any],
    variant: Mapping[str, Any],
    accelerator: Accelerator,
    stack: Mapping[str, Any],
    runtime: str,
    version: str,
    release: str,
    site: SiteSettings,
    where: str,
) -> Software:
    """Return the software of the instance. Raises PlanError if any is missing; without ``strict`` only for the runtime.

    The site's own image (``vllm_image``) is assumed to have everything that the recipe needs.
    """
    asked = _Asked(recipe, variant, accelerator, stack, runtime, version, release)
    problems = list(_of_omni(asked))
    named = _named_image(asked)
    if site.image:
        _refuse(problems, site.strict, where)
        build = site.image if named and runtime == "container" and _is_same_build(site.image, named) else None
        return Software(warnings=tuple(f"{where}.recipe: {problem}" for problem in problems), build=build)
    if named and not re.fullmatch(IMAGE, named):
        raise PlanError(
            f"{where}.recipe: docker_image of recipe {asked.model}: found {named[:100]!a}, expected the name of an "
            "image such as vllm/vllm-openai:v0.33.0; correct the recipe, or set vllm_image"
        )
    own = named if named and _is_own_build(named) else None
    if own and runtime != "container":
        raise PlanError(
            f"{where}.runtime: recipe {asked.model} names its own build of vLLM, {own}, which no virtual environment "
            "has; use the runtime 'container'"
        )
    problems += [*_too_old(asked, named), *_missing(asked)]
    _refuse(problems, site.strict, where)
    warnings = [*problems, *_of_build(asked, own), *_of_nightly(asked, named, own), *_assumed(asked), *_notes(asked)]
    commands = [block["docker_serve_command"] for _name, block in _exact(asked) if block.get("docker_serve_command")]
    command = tuple(str(commands[-1]).split()) if own and commands else ()
    if command and command != COMMAND:
        raise PlanError(
            f"{where}.recipe: docker_serve_command of recipe {asked.model}: found {' '.join(command)[:100]!a}, "
            "expected 'vllm serve', because a recipe alone runs no other command; build it into an image, and set "
            "vllm_image"
        )
    return Software(own, tuple(f"{where}.recipe: {text}" for text in warnings), command, own)


def _refuse(problems: list[str], strict: bool, where: str) -> None:
    if problems and strict:
        raise PlanError(f"{where}.recipe: {problems[0]}")


def _named_image(asked: _Asked) -> str | None:
    """Return the image that the recipe names for this hardware: the exact hardware's, the variant's, the model's."""
    exact = [block.get("docker_image") for _name, block in _exact(asked)]
    for entry in (*reversed(exact), asked.variant.get("docker_image"), asked.recipe["model"].get("docker_image")):
        # Upstream's rule: a plain text of a model or a variant is for NVIDIA only.
        if isinstance(entry, str) and entry not in exact and asked.accelerator.vendor != "nvidia":
            continue
        found = _of_cuda(asked, entry if isinstance(entry, str) else _of_brand(asked, entry))
        if found:
            # Some recipes have the command in front of the name.
            return str(found).split()[-1]
    return None


def _exact(asked: _Asked) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from exact_blocks(asked.accelerator, asked.variant.get("hardware_overrides"))


def _of_brand(asked: _Asked, entry: Any) -> Any:
    """Return the part of a map by brand for this hardware; a map by CUDA's version is NVIDIA's alone."""
    if not isinstance(entry, Mapping):
        return None
    if any(str(key).startswith("cu1") for key in entry):
        return entry if asked.accelerator.vendor == "nvidia" else None
    return asked.accelerator.pick(entry)


def _of_cuda(asked: _Asked, entry: Any) -> Any:
    """Return the image for the CUDA of the release, where a map has one for each (cu129, cu130); else the last."""
    if not isinstance(entry, Mapping):
        return entry
    wanted = "cu" + "".join(str(asked.stack.get("cuda") or "").split(".")[:2])
    return entry.get(wanted) or next((image for _name, image in sorted(entry.items(), reverse=True)), None)


def _parts(image: str) -> tuple[str, str]:
    """Return repository and tag of a reference; the tag is empty where it has none."""
    name = image.partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (name, "")


def _is_nightly(image: str) -> bool:
    repository, tag = _parts(image)
    return _OFFICIAL.match(repository) is not None and "nightly" in tag


def _is_own_build(image: str) -> bool:
    """Return whether an image is neither a release of vLLM nor its newest build."""
    repository, tag = _parts(image)
    if not _OFFICIAL.match(repository):
        return True
    return tag not in ("", "latest") and not _is_nightly(image) and not _VERSION.match(tag)


def _is_same_build(image: str, named: str) -> bool:
    """Return whether the site's image is the recipe's own build, such as by its digest or on a mirror."""
    return _is_own_build(named) and f"/{_parts(image)[0]}".endswith(f"/{_parts(named)[0]}")


def _too_old(asked: _Asked, image: str | None) -> Iterator[str]:
    """Yield a sentence where the recipe names the image of a release that is newer than the chosen one."""
    found = _VERSION.match(_parts(image)[1]) if image and not _is_own_build(image) else None
    if found and not satisfies(asked.version, f">={found.group(1)}"):
        yield (
            f"{asked.model} needs vLLM {found.group(1)} or newer (the recipe's docker_image is {image}), release "
            f"{asked.release!r} has {asked.version}; choose a newer vllm_release"
        )


def _of_omni(asked: _Asked) -> Iterator[str]:
    if asked.recipe.get("omni"):
        yield (
            f"{asked.model} is served by vLLM-Omni (vllm serve --omni), which this collection does not run; choose a "
            "recipe without `omni`"
        )


def _missing(asked: _Asked) -> Iterator[str]:
    """Yield what neither the release's image nor its lock has."""
    if asked.install is False:
        other = "set vllm_image to an image that has it" if asked.mode == "docker" else "use the runtime 'container'"
        yield f"upstream has no {'image' if asked.mode == 'docker' else 'wheels'} for {asked.model}; {other}"
    if asked.recipe["model"].get("docker_source") and asked.mode == "docker":
        yield f"{asked.model} needs sources beside its image (docker_source in the recipe); {_BUILD_IMAGE}"
    what = "the image" if asked.mode == "docker" else f"the lock of release {asked.release!r}"
    for step in _steps(asked):
        if asked.mode in _modes(step):
            yield f"{asked.model} needs more than {what} has: {_describe(step)}; {_BUILD_IMAGE}, {_OPTIONAL}"
    if asked.mode == "pip" and isinstance(asked.install, Mapping) and asked.install.get("command"):
        yield f"{asked.model} needs more than {what} has: {_describe(asked.install)}; use the runtime 'container'"


def _assumed(asked: _Asked) -> Iterator[str]:
    """Yield a warning for the packages that upstream expects in its images.

    Upstream's rule: a step without ``install_modes`` is for people without a container.
    """
    steps = [step for step in _steps(asked) if asked.mode == "docker" and "docker" not in _modes(step)]
    if steps:
        commands = ", ".join(f"`{' '.join(str(step.get('command') or '').split())}`" for step in steps)
        yield (
            f"without a container {asked.model} needs {commands}; the plan assumes that the image has it, else "
            f"{_BUILD_IMAGE}"
        )


def _steps(asked: _Asked) -> Iterator[Mapping[str, Any]]:
    """Yield the installation steps that this hardware needs."""
    brands = {asked.accelerator.vendor, BRANDS.get(asked.accelerator.vendor, asked.accelerator.vendor)}
    for step in asked.recipe.get("dependencies") or []:
        if asked.accelerator.stack != "cuda" and _FOR_CUDA.search(str(step.get("command"))):
            continue
        wanted = step.get("brand") or []
        listed = wanted if isinstance(wanted, list) else [wanted]
        if not step.get("optional") and (not listed or brands & {str(brand).lower() for brand in listed}):
            yield step


def _modes(step: Mapping[str, Any]) -> list[str]:
    modes = step.get("install_modes")
    return [str(mode) for mode in modes] if isinstance(modes, list) and modes else ["pip"]


def _describe(step: Mapping[str, Any]) -> str:
    command = " ".join(str(step.get("command") or "").split())
    note = _shorten(step.get("note"))
    return f"`{command}` ({note})" if note else f"`{command}`"


def _shorten(text: Any) -> str:
    line = " ".join(str(text or "").split())
    return line if len(line) <= _NOTE_LENGTH else f"{line[:_NOTE_LENGTH]} ..."


def _of_build(asked: _Asked, own: str | None) -> Iterator[str]:
    if own:
        yield (
            f"{asked.model} names its own build of vLLM, {own}, which is used instead of the release's image; its "
            f"flags are checked as those of release {asked.release!r}, and names that it lacks are warnings"
        )
        if "@" not in own and _parts(own)[1] in ("", "latest"):
            yield f"{own} may be another build on each host and tomorrow; set vllm_image to it with its digest"


def _of_nightly(asked: _Asked, named: str | None, own: str | None) -> Iterator[str]:
    image = named if named and _is_nightly(named) else None
    required = asked.recipe["model"].get("nightly_required") or asked.variant.get("nightly_required")
    if own or not (required or image):
        return
    hint = f"; to use it, set vllm_image to {image} with its digest" if image else ""
    yield f"{asked.model} was written for a nightly of vLLM; release {asked.release!r} may be too old for it{hint}"


def _notes(asked: _Asked) -> Iterator[str]:
    """Yield the recipe's notes on the installation."""
    blocks = asked.recipe.get("hardware_overrides")
    overrides = [*generation_blocks(asked.accelerator, blocks), *exact_blocks(asked.accelerator, blocks)]
    install = asked.install if isinstance(asked.install, Mapping) else {}
    for note in (install.get("note"), *(block.get("install_note") for _name, block in overrides)):
        if note:
            yield f"{asked.model}, on its installation: {_shorten(note)}"
