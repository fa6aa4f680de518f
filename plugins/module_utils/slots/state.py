# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of an instance, its name as a slot, and the choice of slots to keep."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Iterable, Mapping

from ..common.foreign_json import load_json
from ..instance.marks import STATE_DIR
from ..vllm.files import QUADLET, TEMPLATE, UNIT, extra_files, instance_files
from ..vllm.plan_document import PlanDocument

SCHEMA = 1
GOOD, PREVIOUS = "good", "previous"
DIGEST = re.compile(r"[0-9a-f]{16}\Z", re.ASCII)
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*\Z", re.ASCII)

# The fields of a plan that are reported besides its arguments and environment.
SHOWN = ("release", "vllm_version", "model", "revision", "image", "runtime")

# A plan and settings for each kind of unit, so that only instance_files decides the list of files.
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    TEMPLATE: ("venv", {}),
    UNIT: ("container", {"engine": "docker"}),
    QUADLET: ("container", {"engine": "podman", "quadlet": True}),
}
# Options of an engine's `run` that take no value, see run_words.
_BARE = {"--rm", "--init", "--replace", "--read-only"}


class SlotError(ValueError):
    """A state cannot be kept or restored; the message lacks only host and instance."""


@dataclass(frozen=True)
class Entry:
    """A file of a state: its path on the host, its content, mode and owner."""

    path: str
    sha256: str
    mode: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Image:
    """The image of an instance: its name in the files, its id in the store (empty: missing), the engine's command."""

    ref: str
    id: str
    engine: str


@dataclass(frozen=True)
class SlotState:
    """Everything that decides what an instance serves: its files, its link to the weights, the image behind a name."""

    kind: str
    files: tuple[Entry, ...]
    model: str
    image: Image | None = None
    venv: str = ""

    @property
    def digest(self) -> str:
        """The name of this state; equal states have equal names on all hosts with the same numbers of users."""
        parts = [[entry.path, entry.sha256, entry.mode, entry.uid, entry.gid] for entry in self.files]
        image = bare_id(self.image.id) if self.image else ""
        return hashlib.sha256(json.dumps([sorted(parts), self.model, image]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Slot:
    """A kept state with its metadata."""

    digest: str
    state: SlotState
    plan: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    kept_at: str = ""
    # Whether the weights had the stamp of the role weights.
    stamped: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the reported data of the slot."""
        return {"digest": self.digest, "plan": self.plan, "record": self.record, "kept_at": self.kept_at}


@dataclass(frozen=True)
class Launch:
    """How the files of an instance start vLLM: a virtual environment, or an image and the engine.

    by_module: vLLM is started as a Python module, because the `vllm` command of its environment does not work.
    """

    venv: str = ""
    by_module: bool = False
    ref: str = ""
    engine: str = ""


def summarize_plan(plan: PlanDocument) -> dict[str, Any]:
    """Return the part of a plan that is kept with a slot and compared in reports; a plan holds no secrets."""
    return {**{key: plan.get(key) for key in SHOWN}, "args": plan.get("args") or {}, "env": plan.get("env") or {}}


def files_of_kind(name: str, kind: str) -> list[dict[str, Any]]:
    """Return the files of an instance with this kind of unit, as instance_files does."""
    runtime, settings = _KINDS[kind]
    return instance_files({"instance": name, "runtime": runtime}, {"user": "", **settings})


def foreign_paths(name: str, kind: str) -> list[str]:
    """Return the paths of the instance's own files that other kinds of unit have and this kind lacks."""
    own = {entry["path"] for entry in files_of_kind(name, kind)}
    others = [entry for other in _KINDS for entry in files_of_kind(name, other)]
    return sorted({entry["path"] for entry in others if not entry["shared"]} - own)


def link_of(name: str) -> str:
    """Return the path of an instance's symlink to its weights."""
    return f"{STATE_DIR}/{name}/model"


def slots_of(name: str) -> str:
    """Return the directory of an instance's slots."""
    return f"{STATE_DIR}/{name}/slots"


def launch_of(name: str, kind: str, texts: Mapping[str, str]) -> Launch:
    """Return how vLLM is started, from the texts of an instance's files by their paths."""
    if kind == QUADLET:
        text = next((text for path, text in texts.items() if path.endswith(".container")), "")
        found = re.search(r"^Image=(.+)$", text, re.MULTILINE)
        return Launch(ref=found[1].strip() if found else "", engine="podman")
    words = _split_command(texts.get(f"{STATE_DIR}/{name}/serve", ""))
    if not words:
        return Launch()
    if kind == TEMPLATE:
        return Launch(venv=words[0].rpartition("/bin/")[0], by_module=words[1:2] == ["-m"])
    position = 2
    while position < len(words) and words[position].startswith("--"):
        position += 1 if words[position] in _BARE else 2
    return Launch(ref=words[position] if position < len(words) else "", engine=words[0])


def _split_command(script: str) -> list[str]:
    """Return the words after `exec` in a script of the role."""
    _before, found, command = script.replace("\\\n", " ").partition("\nexec ")
    try:
        return shlex.split(command) if found else []
    except ValueError:
        return []


def bare_id(identity: str) -> str:
    """Return an image's id in podman's form; docker puts the algorithm before it."""
    return identity.rpartition(":")[2]


def document(slot: Slot) -> str:
    """Return the text of slot.json."""
    state = slot.state
    content = {
        "schema": SCHEMA,
        **slot.as_dict(),
        "kind": state.kind,
        "model": state.model,
        "stamped": slot.stamped,
        "venv": state.venv,
        "image": asdict(state.image) if state.image else None,
        "files": {entry.path: {k: v for k, v in asdict(entry).items() if k != "path"} for entry in state.files},
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def parse(text: str, name: str, digest: str) -> Slot:
    """Return the slot of an instance from the text of its slot.json. Raises SlotError for an invalid text."""
    try:
        found = load_json(text)
        if found["schema"] != SCHEMA:
            raise SlotError(f"slot.json has the format {found['schema']}, expected {SCHEMA}")
        files = tuple(Entry(path, **entry) for path, entry in sorted(found["files"].items()))
        image = Image(**found["image"]) if found["image"] else None
        state = SlotState(found["kind"], files, found["model"], image, found["venv"])
        known = {entry["path"] for entry in [*files_of_kind(name, state.kind), *extra_files(name)]}
        slot = Slot(
            digest, state, dict(found["plan"]), dict(found["record"]), str(found["kept_at"]), bool(found["stamped"])
        )
    except SlotError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise SlotError(f"slot.json cannot be read ({exc})") from exc
    if state.digest != digest or {entry.path for entry in files} - known:
        raise SlotError("slot.json is not what was written when it was kept")
    return slot


def choose(wanted: str, good: str, previous: str, there: Iterable[str]) -> str:
    """Return the digest of the state to restore. Raises SlotError where there is none."""
    known = sorted(there)
    if wanted in (GOOD, PREVIOUS):
        found = good if wanted == GOOD else previous
        if found:
            return found
        kept = f"only the good one is kept, {good}" if good else "nothing was kept yet"
        raise SlotError(
            f"there is no {wanted} slot to go back to: {kept}. A state is kept when it has served in a run of "
            "site.yml or of a rollout"
        )
    if wanted in known:
        return wanted
    raise SlotError(f"there is no slot {wanted}; there are: {', '.join(known) or 'none'}")


def surplus(kept_at: Mapping[str, str], good: str, previous: str, keep: int) -> list[str]:
    """Return the digests of the slots to remove: the oldest beyond ``keep``, never the good one or the one before."""
    ranked = sorted(kept_at, key=lambda digest: (digest in (good, previous), kept_at[digest], digest), reverse=True)
    return sorted(digest for digest in ranked[max(keep, 1) :] if digest not in (good, previous))


def is_stale(started: float | None, changed: float, verified: float | None) -> bool:
    """Return whether a process runs with other files than the installed ones.

    ``started``: when it was started, None where nothing runs. ``changed``: when the newest of the files changed last.
    ``verified``: when exactly the installed state was kept, None where another one or none was. A process of that time
    has run with these files, even if they were touched since.
    """
    if started is None or started >= changed:
        return False
    return verified is None or started >= verified


def differences(name: str, before: SlotState, after: SlotState) -> list[str]:
    """Return the paths, and the image, in which two states of an instance differ; nothing of their contents."""
    old, new = ({entry.path: entry for entry in state.files} for state in (before, after))
    found = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    if before.model != after.model:
        found.append(link_of(name))
    ids = [bare_id(state.image.id) if state.image else "" for state in (before, after)]
    if ids[0] != ids[1]:
        found += sorted({f"image {state.image.ref}" for state in (before, after) if state.image})
    return found


def timestamp(text: str) -> float | None:
    """Return the seconds since 1970 of systemd's ``us+utc`` form, None for any other text."""
    found = re.search(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) UTC", text)
    if found is None:
        return None
    form = "%Y-%m-%d %H:%M:%S.%f" if "." in found[1] else "%Y-%m-%d %H:%M:%S"
    return datetime.strptime(found[1], form).replace(tzinfo=timezone.utc).timestamp()


def utc(seconds: float) -> str:
    """Return a time in the form of messages and slot.json."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float | None:
    """Return the seconds since 1970 of a text by ``utc``, None for anything else."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
