# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the Harmony library of an instance accepts the encodings: the command to ask it, and what its answer means.

The library runs in its own place, the virtual environment or the image. The release decides which library that is,
and what it accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ..common.foreign_json import load_json
from ..containers.image_names import reference
from ..vllm.plan_document import PlanDocument
from .files import ENCODINGS

ENCODINGS_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
# The one that gpt-oss is served with.
NEEDED = "o200k_base.tiktoken"

# What the library's own Python runs. Its answer is one line of JSON.
QUESTION = """
import json
said = {}
try:
    from importlib import metadata
    for name in ("oss-harmony", "openai-harmony"):
        try:
            said["library"] = name + " " + metadata.version(name)
            break
        except metadata.PackageNotFoundError:
            pass
    import openai_harmony
except ImportError as exc:
    said["missing"] = str(exc)
else:
    try:
        openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
        said["loaded"] = "HarmonyGptOss"
    except BaseException as exc:
        said["refused"] = str(exc) or type(exc).__name__
print(json.dumps(said))
"""


# An image may contain a Python that vLLM does not use. vLLM uses the one in the first line of its command.
QUESTION_IN_IMAGE = """
python=$(sed -n '1s/^#! *//p' "$(command -v vllm)")
case $python in *python*) ;; *) python=python3 ;; esac
exec $python -c "$1"
"""


class RefusedError(ValueError):
    """A library does not load the encodings; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Use:
    """A directory of encodings that instances read with one library: that of ``python`` or, where not empty, ``image``.

    ``user`` is ``root`` for an image that serves as root only, else empty.
    """

    directory: str
    release: str
    python: str
    image: str
    user: str
    instances: tuple[str, ...]

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Use:
        """Return the use of an entry of list_uses."""
        return cls(**{**entry, "instances": tuple(entry["instances"])})

    @property
    def place(self) -> str:
        """Where the library lies."""
        return self.image or self.python

    @property
    def key(self) -> str:
        """The key that distinguishes this use from others of the same host."""
        return f"{self.directory} {self.place}"


@dataclass(frozen=True)
class FoundFile:
    """What lies where an encoding should: bytes and sha256, -1 and empty where nothing does."""

    path: str
    size: int
    sha256: str


def list_uses(plans: Mapping[str, PlanDocument]) -> list[dict[str, Any]]:
    """Return the uses of all plans that point vLLM to encodings, each once with its instances, as plain data."""
    found: dict[str, dict[str, Any]] = {}
    for name, plan in plans.items():
        directory = plan["env"].get(ENCODINGS_VARIABLE)
        if not directory:
            continue
        container, venv = plan["container"] or {}, plan["venv"] or {}
        use = Use(
            directory=str(directory),
            release=str(plan["release"]),
            python="" if container else f"{venv['path']}/bin/python",
            image=str(container.get("image") or ""),
            user="root" if container.get("user") == "root" else "",
            instances=(),
        )
        found.setdefault(use.key, {**use.__dict__, "instances": []})["instances"].append(name)
    return list(found.values())


def container_command(use: Use, engine: str, user: str) -> list[str]:
    """Return the command that asks the library in its image, without network and privilege; ``user`` is UID:GID."""
    return [
        *(engine, "run", "--rm", "--pull", "never", "--network", "none", "--log-driver", "none", "--user", user),
        *("--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--cap-drop", "ALL"),
        *("--mount", f"type=bind,source={use.directory},target={use.directory},readonly"),
        *("--env", f"{ENCODINGS_VARIABLE}={use.directory}", "--entrypoint", "sh"),
        *(reference(use.image), "-c", QUESTION_IN_IMAGE, "ask", QUESTION),
    ]


def parse_answer(output: str) -> dict[str, str]:
    """Return what the library answered, nothing where the output ends with no answer."""
    lines = output.strip().splitlines()
    try:
        answer = load_json(lines[-1]) if lines else None
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in answer.items()} if isinstance(answer, dict) else {}


def describe_refusal(use: Use, answer: Mapping[str, str], found: FoundFile, user: str) -> str:
    """Return the sentence about encodings that the library does not load; ``found`` is the file that it needs."""
    library = f"{answer.get('library') or 'the Harmony library'} of release {use.release} ({use.place})"
    names = ", ".join(use.instances)
    return (
        f"{found.path}: {library} does not load HarmonyGptOss with it: {_reason(answer, found)}; "
        f"{_advice(use, found, user)}; nothing was restarted, and {names} would not start"
    )


def _reason(answer: Mapping[str, str], found: FoundFile) -> str:
    size, sha256 = ENCODINGS[NEEDED]
    if found.size < 0:
        return f"the file is missing, expected {size} bytes"
    if found.size != size:
        return f"found {found.size} bytes, expected {size}"
    if found.sha256 != sha256:
        return f"found sha256 {found.sha256}, expected {sha256}"
    return f"it said: {answer.get('refused', 'nothing')}"


def _advice(use: Use, found: FoundFile, user: str) -> str:
    if found.sha256 != ENCODINGS[NEEDED].sha256:
        return f"run the role encodings on this host with encodings_dir {use.directory}, which installs the right file"
    return (
        f"the content is correct, so check that {use.user or user} may read the file and every directory "
        f"above it, or choose a release whose library accepts it"
    )


def describe_no_answer(use: Use, answer: Mapping[str, str], said: str) -> str:
    """Return the warning about a library that gave no answer; ``said`` is its other output."""
    reason = answer.get("missing") or " ".join(said.split())[-400:] or "no answer"
    return (
        f"{use.place}: its Harmony library could not be asked whether it accepts {use.directory}/{NEEDED}: {reason}; "
        f"gpt-oss needs that library, so check the release {use.release} if {', '.join(use.instances)} does not start"
    )
