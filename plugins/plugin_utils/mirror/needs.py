# SPDX-License-Identifier: GPL-3.0-or-later
"""What a mirror needs for hosts, or for releases and models: weights, encodings, locks of wheels, images."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from ...module_utils.common.spelling import nearest
from ...module_utils.encodings.files import ENCODINGS
from ...module_utils.encodings.library import ENCODINGS_VARIABLE
from ...module_utils.mirror.bundle import weights_holds
from ...module_utils.vllm.plan_document import PlanDocument
from ...module_utils.weights.manifest import WeightsError, parse_manifest
from ..catalog.files import find, load_release, locks_of, lookup, read
from ..common.places import CATALOG, COLLECTION
from ..common.tables import hosts_in_words
from ..fleet.host_plans import plan_host
from ..fleet.plans import Fleet
from ..fleet.trial import without_weights
from ..planning.hardware import Accelerator
from ..planning.inputs import PlanError

MANIFESTS = (".yml", ".yaml")
_EVALUATION_BYTES = 1 << 30
_PROVISIONER_BYTES = 350 << 20


# The files of a repository that is read for its tokenizer or configuration only.
SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py")


class NeedsError(ValueError):
    """The needs are unknown; the message is the whole sentence for the user."""


@dataclass
class Needs:
    """The needs: manifests by their path, locks by their path with their installed size, images.

    ``unpinned`` has the models without a manifest by name, each with the options of weights_manifest that pin it; it
    stays None where such a model is an error. ``pin_dest`` is a directory that is searched for manifests after all
    others, empty for none.
    """

    manifests: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    locks: dict[str, int] = field(default_factory=dict)
    images: list[str] = field(default_factory=list)
    encodings: bool = False
    unpinned: dict[str, dict[str, Any]] | None = None
    pin_dest: str = ""

    def directories(self, site: Sequence[str]) -> list[str]:
        """Return the directories to search for manifests: the site's, then the one of new manifests."""
        return [*site, *([self.pin_dest] if self.pin_dest and os.path.isdir(self.pin_dest) else [])]

    def add_unpinned(self, name: str, **options: Any) -> None:
        """Note a model that is to be pinned first."""
        if self.unpinned is not None:
            model, _at, revision = name.partition("@")
            self.unpinned.setdefault(name, {"model": model, "revision": revision, **options})

    def add_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Add the weights of a manifest. Raises NeedsError where another one describes the same revision."""
        try:
            path = parse_manifest(manifest).path
        except WeightsError as exc:
            raise NeedsError(str(exc)) from exc
        if self.manifests.setdefault(path, manifest) != manifest:
            raise NeedsError(f"{path}: two manifests of one revision differ; let all hosts use the same one")

    def add_image(self, image: str) -> None:
        """Add an image."""
        if image not in self.images:
            self.images.append(image)

    def as_dict(self) -> dict[str, Any]:
        """Return it as sorted plain data for an action's result."""
        manifests = [self.manifests[path] for path in sorted(self.manifests)]
        names = sorted(ENCODINGS) if self.encodings else []
        holds: dict[str, Any] = {"weights": weights_holds(map(parse_manifest, manifests))}
        holds["encodings"] = {name: {f"encodings/{name}": ENCODINGS[name]._asdict()} for name in names}
        return {
            "models": manifests,
            "encodings": names,
            "locks": sorted(self.locks),
            "wheels_bytes": sum(self.locks.values()),
            "images": sorted(self.images),
            "holds": holds,
            "unpinned": list((self.unpinned or {}).values()),
        }


def plan_from_origin(host: str, accelerator: Accelerator, settings: Mapping[str, Any]) -> dict[str, PlanDocument]:
    """Return a host's plans with images from their publishers, not from the site's registry."""
    return plan_host(host, accelerator, {**settings, "registry": ""})


def add_fleet(needs: Needs, fleet: Fleet) -> None:
    """Add what the plans of hosts need. Raises NeedsError with everything that is not available."""
    problems: dict[str, list[str]] = {}
    for group in fleet.groups:
        directories = needs.directories(group.variables.get("vllm_weights_manifest_path") or [])
        for plan in group.plans.values():
            for model in plan["models"]:
                manifest = _manifest(model, directories)
                if manifest is not None:
                    needs.add_manifest(manifest)
                elif needs.unpinned is not None:
                    needs.add_unpinned(model, **_how_to_pin(plan, model))
                elif group.hosts[0] not in problems.setdefault(model, []):
                    problems[model] += group.hosts
            _add_runtime(needs, plan)
    if problems:
        lines = [
            f"{hosts_in_words(hosts)}: no manifest pins the weights of {model}; make one with "
            "playbooks/pin_weights.yml, or let this run make it with -e bundle_pin_dest=DIR"
            for model, hosts in sorted(problems.items())
        ]
        raise NeedsError("\n".join(lines))


def _how_to_pin(plan: PlanDocument, model: str) -> dict[str, Any]:
    """Return which files of a model a plan reads, as options of weights_manifest."""
    if model in without_weights(plan):
        return {"include": list(SMALL_FILES), "exclude": ["*.safetensors.index.json"]}
    own = model.partition("@")[0] == plan["model"]
    return {"load_format": "mistral"} if own and plan["args"].get("load-format") == "mistral" else {}


def _manifest(model: str, directories: Sequence[str]) -> Mapping[str, Any] | None:
    path = lookup("weights", model, MANIFESTS, directories)
    return read(path) if path else None


def _add_runtime(needs: Needs, plan: PlanDocument) -> None:
    if plan["image"]:
        needs.add_image(plan["image"])
    if plan["venv"]:
        needs.locks.update(dict.fromkeys(plan["venv"]["locks"], int(plan["venv"]["size_bytes"])))
    router = plan.get("group", {}).get("router")
    if router:
        needs.locks.update(dict.fromkeys(router["venv"]["locks"], int(router["venv"]["size_bytes"])))
    needs.encodings = needs.encodings or ENCODINGS_VARIABLE in plan["env"]


def add_release(needs: Needs, name: str, stacks: Sequence[str], directories: Sequence[str]) -> None:
    """Add images and locks of a release, of all its stacks or of those that are named. Raises PlanError, NeedsError."""
    release = load_release(name, directories)
    for stack in stacks:
        if stack not in release["stacks"]:
            raise NeedsError(
                f"bundle_stacks: release {name} has no stack {stack!r}; {nearest(stack, release['stacks'])}"
            )
    for stack, entry in release["stacks"].items():
        if stacks and stack not in stacks:
            continue
        for image in _images(entry):
            needs.add_image(image)
        for lock in locks_of(entry):
            needs.locks[lock] = int(entry.get("venv_size_gib", 0) * 1024**3)
    needs.encodings = True


def _images(stack: Mapping[str, Any]) -> list[str]:
    """Return every image of a stack of a release: one, one for each accelerator, or both."""
    found: list[str] = []
    single = stack.get("image")
    for entry in (single, *(stack.get("images") or {}).values()):
        values = entry.values() if isinstance(entry, Mapping) else [entry] if entry else []
        found += [str(value) for value in values]
    digest = stack.get("digest")
    return [f"{image}@{digest}" if digest and image == single and "@" not in image else image for image in found]


def add_models(needs: Needs, names: Sequence[str], directories: Sequence[str]) -> None:
    """Add the weights of manifests by name. Raises PlanError, NeedsError."""
    directories = needs.directories(directories)
    for name in names:
        if needs.unpinned is not None and lookup("weights", name, MANIFESTS, directories) is None:
            needs.add_unpinned(name)
            continue
        needs.add_manifest(read(find("weights", name, MANIFESTS, directories)))


def add_evaluation(needs: Needs) -> None:
    """Add the locks of the tools that playbooks/evaluate.yml installs on hosts, for every Python and machine."""
    for lock in sorted((CATALOG / "evaluation" / "requirements").glob("*.txt")):
        needs.locks[str(lock)] = _EVALUATION_BYTES


def add_provisioner(needs: Needs) -> None:
    """Add the locks of Ironic, one for each Python of a provisioner, and of the agent in its ramdisk."""
    files = COLLECTION / "roles/provisioner/files"
    for lock in (files / "agent.txt", *sorted(files.glob("ironic-*.txt"))):
        needs.locks[str(lock)] = _PROVISIONER_BYTES


def missing_wheel_bytes(locks: Mapping[str, int], root: str) -> int:
    """Return the bytes that wheels may still need: 0 for a complete lock, else its installed size."""
    return sum(
        size for lock, size in locks.items() if not os.path.exists(f"{root}/wheels/.{Path(lock).stem}.fetched.json")
    )


__all__ = [
    "Needs",
    "NeedsError",
    "PlanError",
    "add_evaluation",
    "add_fleet",
    "add_models",
    "add_provisioner",
    "add_release",
    "plan_from_origin",
]
