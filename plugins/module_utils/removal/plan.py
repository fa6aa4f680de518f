# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what to remove from a host, and refuse anything that is still in use."""

from __future__ import annotations

import re
from typing import Callable, Iterable, Sequence

from ..common.spelling import misspelt, nearest
from .model import (
    BASE,
    DRIVER,
    ENCODINGS,
    ENVIRONMENT,
    EVERYTHING,
    IMAGE,
    INSTANCE,
    MODEL,
    PACKAGES,
    SERVICE,
    USER,
    Contents,
    Directory,
    Item,
    Model,
    Plan,
    RemovalError,
    Request,
    StoredImage,
    Use,
)

# Repositories of the images that serve vLLM: any release's, on any registry.
SERVING = re.compile(r"(^|/)(vllm/vllm-openai(-\w+)?|ascend/vllm-ascend|rocm/vllm-dev)[:@]")
_GROUPS = {"gateway": "gateways", "mirror": "mirrors", "provisioner": "provisioner"}


def decide(request: Request, contents: Contents) -> Plan:
    """Return what to remove. Raises RemovalError if a named item is in use or misspelt; then nothing may be removed."""
    if contents.rollout:
        raise RemovalError(
            f"{contents.rollout}; wait until it has ended, or continue it with rollout.yml. If nobody "
            "will continue it, delete that file"
        )
    return _DECIDERS[request.kind](request, contents)


def _instances(request: Request, contents: Contents) -> Plan:
    known = contents.instances
    items, kept = [], []
    absent: dict[str, str] = {}
    mistaken = []
    for name in request.names:
        copies = _copies(name, request.declared, known)
        found = [each for each in (name, *copies) if each in known]
        if not found:
            absent[name] = _absent_sentence("instance", name, known)
            # Another host of the run may have an instance of this name.
            mistaken += [name] if name not in request.declared and _is_mistake(name, known) else []
        items += [Item(INSTANCE, each, f"vllm@{each}.service", known[each]) for each in found]
        if name in request.declared:
            kept.append(f"vllm_instances still declares {name}: the next run of site.yml installs it again")
        others = sorted(each for each in known if re.fullmatch(rf"{re.escape(name)}-\d+", each) and each not in found)
        if others and name not in request.declared:
            kept.append(f"{', '.join(others)} stay; if they are copies of {name}, name them too")
    return Plan(tuple(dict.fromkeys(items)), tuple(kept), absent, tuple(mistaken))


def _copies(name: str, declared: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the copies that an instance with replicas has: NAME-2 and so on, unless declared themselves."""
    if name not in declared:
        return []
    return sorted(each for each in known if re.fullmatch(rf"{re.escape(name)}-\d+", each) and each not in declared)


def _models(request: Request, contents: Contents) -> Plan:
    known = {model.name: model for model in contents.models}
    items: list[Item] = []
    kept: list[str] = []
    absent: dict[str, str] = {}
    for asked in request.names:
        name, _at, revision = asked.partition("@")
        model = known.get(name)
        if model is None:
            absent[asked] = _absent("model", name, known)
            continue
        chosen = [each for each in model.revisions if not revision or each.name == revision]
        if revision and not chosen:
            # Hashes have no siblings.
            absent[asked] = _absent(f"revision of {name}", revision, [each.name for each in model.revisions], False)
        # The inventory names a model, or a revision where it has a plan.
        planned = [use for use in request.planned if use.model == name and not revision]
        uses = [*planned, *_users_of(chosen, (*request.planned, *contents.uses), "model")]
        _refuse("model", asked, uses)
        if _is_shared(model, request):
            raise RemovalError(
                f"model {name}: other hosts may use {model.path}, which is on a shared file system; remove it "
                'there when no host serves it, or set weights_shared to "no" where this host alone uses it'
            )
        items += [_model_item(model, each) for each in chosen if not each.stays]
        kept += _staying(chosen)
    return Plan(tuple(items), tuple(kept), absent)


def _environments(request: Request, contents: Contents) -> Plan:
    items: list[Item] = []
    kept: list[str] = []
    absent: dict[str, str] = {}
    for name in request.names:
        chosen = [each for each in contents.environments if each.name == name or each.name.startswith(f"{name}-")]
        if not chosen:
            known = {_release_of(each.name) for each in contents.environments}
            absent[name] = _absent("environment", name, known)
        uses = [*_users_of(chosen, request.planned, "venv"), *_users_of(chosen, contents.uses, "venv")]
        _refuse("environment", name, uses, "; name one of them to remove it alone" if len(chosen) > 1 else "")
        items += [Item(ENVIRONMENT, each.name, each.path, each.size) for each in chosen if not each.stays]
        kept += _staying(chosen)
    return Plan(tuple(items), tuple(kept), absent)


def _images(request: Request, contents: Contents) -> Plan:
    items: list[Item] = []
    absent: dict[str, str] = {}
    if contents.trouble:
        raise RemovalError(f"{'; '.join(contents.trouble)}; start the engine first, so that its images are known")
    for name in request.names:
        found = [image for image in contents.images if _is_called(image, name)]
        if not found:
            absent[name] = _absent("image", name, {each for image in contents.images for each in image.names})
        for image in found:
            planned = [use for use in request.planned if use.image and _is_called(image, use.image)]
            _refuse("image", name, [*planned, *_image_users(image, contents.uses)])
            if image.containers:
                raise RemovalError(
                    f"image {name}: {', '.join(image.containers)} of {image.engine} uses it; remove the container first"
                )
            items.append(Item(IMAGE, name, name, image.size, image.engine))
    return Plan(tuple(items), (), absent)


def _everything(request: Request, contents: Contents) -> Plan:
    _refuse_declared(request, contents)
    items = [Item(INSTANCE, name, f"vllm@{name}.service", size) for name, size in sorted(contents.instances.items())]
    items += [Item(SERVICE, role, role, size) for role, size in contents.services.items()]
    kept = [f"images stay where an engine does not answer: {each}" for each in contents.trouble]
    others = [use for use in contents.uses if use.instance not in contents.instances]
    for model in contents.models:
        if _is_shared(model, request):
            kept.append(f"{model.path} stays: other hosts may use its file system (weights_shared)")
            continue
        kept += _staying(model.revisions)
        for each in model.revisions:
            used = _users_of([each], others, "model")
            if used:
                kept.append(f"{each.path} stays: {_users(used)} uses it")
            elif not each.stays:
                items.append(_model_item(model, each))
    kept += _staying(contents.environments)
    for each in contents.environments:
        used = _users_of([each], others, "venv")
        if used:
            kept.append(f"{each.path} stays: {_users(used)} uses it")
        elif not each.stays:
            items.append(Item(ENVIRONMENT, each.name, each.path, each.size))
    items += _serving_images(contents, kept)
    items += [Item(ENCODINGS, path, path, size) for path, size in contents.encodings.items()]
    items += [Item(BASE, path, path, size) for path, size in contents.base.items()]
    items += _packages(request, contents, kept)
    items += [Item(USER, name, name) for name in contents.users]
    return Plan(tuple(items), tuple(kept))


def _packages(request: Request, contents: Contents, kept: list[str]) -> list[Item]:
    """Return a driver or an engine if it is requested and not used by others."""
    items = []
    for switch in request.also:
        name, users = switch.replace("_", " "), contents.busy.get(switch, ())
        packages, settings = contents.packages.get(switch, ()), contents.settings.get(switch, ())
        if users:
            kept.append(f"the {name} stays: {', '.join(users)}")
        elif packages or settings:
            items.append(Item(PACKAGES, switch, " ".join(packages) or "(files only)", 0, ", ".join(settings)))
            if switch == DRIVER and packages:
                kept.append("the driver's loaded modules stay until the next boot")
    return items


def _serving_images(contents: Contents, kept: list[str]) -> list[Item]:
    """Return the images of vLLM that nothing but the host's own instances uses; the others are added to ``kept``."""
    items = []
    own = {f"vllm-{name}" for name in contents.instances}
    for image in contents.images:
        needed = [name for name in image.names if SERVING.search(name)]
        needed = needed or (list(image.names) if _image_users(image, contents.uses) else [])
        others = [name for name in image.containers if name not in own]
        if needed and others:
            kept.append(f"image {needed[0]} stays: the container {', '.join(others)} uses it")
            continue
        items += [
            Item(IMAGE, name, name, image.size if index == 0 else 0, image.engine) for index, name in enumerate(needed)
        ]
    return items


def _refuse_declared(request: Request, contents: Contents) -> None:
    """Raise RemovalError for anything that the inventory still declares for this host."""
    declared = [
        name
        for name in contents.instances
        if name in request.declared or re.sub(r"-[0-9]+\Z", "", name) in request.declared
    ]
    if declared:
        them, names = "it" if len(declared) == 1 else "them", ",".join(sorted(declared))
        raise RemovalError(
            f"{', '.join(sorted(declared))}: vllm_instances still declares {them} for this host; take the host out "
            f"of the inventory first, or remove {them} by name with -e remove_instance={names} "
            f"(`inference remove HOST --instance {names}`)"
        )
    for role in contents.services:
        if _GROUPS.get(role) in request.groups:
            raise RemovalError(f"the host is still in the group {_GROUPS[role]}; take it out of the group first")


def _model_item(model: Model, each: Directory) -> Item:
    return Item(
        MODEL, model.name, each.path, each.size, "left by a run that was killed" if each.state == "abandoned" else ""
    )


def _staying(chosen: Iterable[Directory]) -> list[str]:
    return [f"{each.path} stays: {each.stays}" for each in chosen if each.stays]


def _is_shared(model: Model, request: Request) -> bool:
    return model.shared if request.shared is None else request.shared


def _is_called(image: StoredImage, name: str) -> bool:
    """Return whether a name means this image; docker leaves out its own registry."""
    short = re.sub(r"^docker\.io/(library/)?", "", name)
    return bool({name, short, f"docker.io/{short}", f"docker.io/library/{short}"} & set(image.names))


def _image_users(image: StoredImage, uses: Iterable[Use]) -> list[Use]:
    bare = image.id.rpartition(":")[2]
    return [use for use in uses if use.image and (_is_called(image, use.image) or use.image.rpartition(":")[2] == bare)]


# How many names at the end of a path identify a directory: organisation, model and revision; an environment's name.
_TELLING = {"model": 3, "venv": 1}


def _users_of(chosen: Iterable[Directory], uses: Iterable[Use], kind: str) -> list[Use]:
    """Return the users of one of these directories.

    The last names of their paths decide, because another path may lead to the same directory. A use may name a revision
    alone.
    """
    ends = [_end(each.path, kind) for each in chosen if each.state == "complete"]
    return [use for use in uses if any(_ends_so(end, _end(getattr(use, kind), kind)) for end in ends)]


def _end(path: str, kind: str) -> list[str]:
    return [name for name in path.split("/") if name][-_TELLING[kind] :]


def _ends_so(end: list[str], used: list[str]) -> bool:
    return bool(used) and end[-len(used) :] == used


def _refuse(kind: str, name: str, uses: Sequence[Use], advice: str = "") -> None:
    """Raise RemovalError if it is in use."""
    if uses:
        verb = "uses" if len({use.by for use in uses}) == 1 else "use"
        raise RemovalError(f"{kind} {name}: {_users(uses)} {verb} it; remove or change that first{advice}")


def _users(uses: Iterable[Use]) -> str:
    return ", ".join(dict.fromkeys(use.by for use in uses))


def _absent(kind: str, name: str, known: Iterable[str], have_siblings: bool = True) -> str:
    """Return a sentence about a name that the host does not have. Raises RemovalError if it looks misspelt."""
    sentence = _absent_sentence(kind, name, known)
    if _is_mistake(name, known, have_siblings):
        raise RemovalError(f"{sentence}. Nothing was removed")
    return sentence


def _absent_sentence(kind: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return f"{kind} {name!r} is not on this host; {nearest(name, names) if names else 'the host has none'}"


def _is_mistake(name: str, known: Iterable[str], have_siblings: bool = True) -> bool:
    """Return whether a name that the host does not have looks like a misspelt one of those that it has."""
    names = sorted(known)
    close = misspelt(name, names) or next((each for each in names if sorted(each) == sorted(name)), None)
    return bool(close) and not (have_siblings and _are_siblings(name, str(close)))


def _are_siblings(name: str, other: str) -> bool:
    """Return whether two names differ only in numbers or a suffix: a second run may name what was already removed."""
    short, long = sorted((name, other), key=len)
    if long.startswith(short) and re.match(r"[-.@\d]", long[len(short) :]):
        return True
    return re.sub(r"\d+", "", name) == re.sub(r"\d+", "", other)


def _release_of(environment: str) -> str:
    """Return the release of an environment, which is called RELEASE-STACK-HASH."""
    return environment.partition("-")[0]


_DECIDERS: dict[str, Callable[[Request, Contents], Plan]] = {
    INSTANCE: _instances,
    MODEL: _models,
    ENVIRONMENT: _environments,
    IMAGE: _images,
    EVERYTHING: _everything,
}
