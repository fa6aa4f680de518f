# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of what an instance has compiled, and on which hosts each may be used.

They hold code, so hosts trust the sha256 that the controller names, as for weights, and nothing that a source says.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from dataclasses import asdict, dataclass
from typing import Any, Iterable, Mapping, Sequence

from ..common.foreign_json import load_json
from ..common.kinds import show_value
from ..vllm.plan_document import PlanDocument

VERSION = 1
# Below the cache of an instance: vLLM's compiled graphs and startup plan, the kernels of torch, Triton, FlashInfer and
# the driver. Nothing else there is taken along.
PARTS = ("vllm", "torchinductor", "triton", ".cache/flashinfer", ".nv/ComputeCache")
# Larger ones are no caches of one instance.
MAX_BYTES, MAX_FILES = 16 << 30, 1_000_000
_KEY, _SHA256 = re.compile(r"[0-9a-f]{32}\Z"), re.compile(r"[0-9a-f]{64}\Z")


class CacheError(ValueError):
    """An archive cannot be made or used; the message is the whole sentence."""


@dataclass(frozen=True)
class Archive:
    """What the controller knows of an archive. ``size`` is its own, ``unpacked`` that of its files, in bytes."""

    key: str
    size: int
    sha256: str
    unpacked: int

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.key}.tar.gz"

    def manifest(self, made_from: Mapping[str, Any], made_by: str = "") -> str:
        """Return the text of its manifest; people see what it was made from, and which host of the inventory did."""
        document = {"version": VERSION, **asdict(self), "made_from": made_from, "made_by": made_by}
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def identity_of(plan: PlanDocument, software: str, host: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that compiled code depends on.

    ``software`` is the name of the virtual environment, which holds the hash of its lock, or the id of the image.
    ``host`` is what the host reports. Where an instance listens is left out.
    """
    fields = {name: dict(plan)[name] for name in ("instance", "vllm_version", "model", "revision", "args", "env")}
    chips = {"accelerator": plan["accelerator"], "chips": len(plan["chips"])}
    return {**fields, **chips, "software": software, "host": dict(host)}


def software_of(plan: PlanDocument, image: str) -> str:
    """Return the software of an instance for identity_of; ``image`` is the id of its image, where it has one."""
    return os.path.basename(str(plan["venv"]["path"])) if plan["venv"] else image


def key_of(identity: Mapping[str, Any]) -> str:
    """Return the name of the archive that fits."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def find_archive(texts: Sequence[str], key: str, identity: Mapping[str, Any] | None = None) -> Archive | None:
    """Return the archive with this key among manifests, None where no host has made one.

    Raises CacheError for a manifest that cannot be read, for two that differ, and where all of the identity's instance
    differ from it.
    """
    found = {archive for archive in map(_parsed, texts) if archive.key == key}
    if len(found) > 1:
        raise CacheError(f"manifests of {key}: found {len(found)} that differ, expected one; remove the others")
    if not found and identity and (difference := _difference_of(texts, identity)):
        raise CacheError(f"no archive fits; the nearest one differs in {difference}")
    return next(iter(found), None)


def _difference_of(texts: Iterable[str], identity: Mapping[str, Any]) -> str:
    """Return in what the nearest archive of the same instance differs; "" where no manifest is of that instance."""
    here = _flat(identity)
    made = [
        there
        for text in texts
        if (there := _flat(load_json(text).get("made_from"))).get("instance") == here["instance"]
    ]
    differing = [sorted(name for name in {**here, **there} if here.get(name) != there.get(name)) for there in made]
    fewest, there = min(zip(differing, made), key=lambda pair: (len(pair[0]), pair[0]), default=([], here))
    shown = [
        f"{name} (here {show_value(here.get(name))[:60]}, there {show_value(there.get(name))[:60]})" for name in fewest
    ]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def _flat(made_from: Any) -> dict[str, Any]:
    """Return all fields of an identity by their names, such as host.driver."""
    fields = made_from if isinstance(made_from, dict) else {}
    parts = [(f"{name}.", value) if isinstance(value, dict) else ("", {name: value}) for name, value in fields.items()]
    return {f"{begin}{name}": value for begin, part in parts for name, value in part.items()}


def _parsed(text: str) -> Archive:
    try:
        data = load_json(text)
    except ValueError as exc:
        raise CacheError(f"a manifest of a cache cannot be read ({exc}); make it again with caches.yml") from exc
    fields = data if isinstance(data, dict) else {}
    key, size, sha256, unpacked = (fields.get(name) for name in ("key", "size", "sha256", "unpacked"))
    texts = isinstance(key, str) and _KEY.match(key) and isinstance(sha256, str) and _SHA256.match(sha256)
    sizes = all(
        isinstance(number, int) and number is not True and 0 < number <= MAX_BYTES for number in (size, unpacked)
    )
    if fields.get("version") != VERSION or not texts or not sizes:
        raise CacheError(
            f"a manifest of a cache: found {show_value(fields)[:200]}, expected version {VERSION}, key, sha256, size "
            "and unpacked; make it again with caches.yml"
        )
    return Archive(str(key), int(size or 0), str(sha256), int(unpacked or 0))


def check_member(member: tarfile.TarInfo) -> None:
    """Raise CacheError for anything but a file in one of the parts."""
    parts = member.name.split("/")
    inside = any(member.name.startswith(f"{part}/") for part in PARTS)
    if not member.isreg() or not inside or any(part in ("", ".", "..") for part in parts):
        raise CacheError(
            f"{show_value(member.name)[:200]}: found in the archive, expected only files in {', '.join(PARTS)}"
        )
