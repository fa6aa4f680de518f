# SPDX-License-Identifier: GPL-3.0-or-later
"""The bill of materials of a carried directory, in CycloneDX 1.6 (JSON): what each file is, with its sha256.

The same content gives the same text, apart from the time of its first writing.
"""

from __future__ import annotations

import calendar
import json
import re
import time
import uuid
from typing import Any, Mapping, NamedTuple
from urllib.parse import quote

from ..common.foreign_json import load_json
from .bundle import Content, Files, Holds, walk

NAME = "bundle.cdx.json"
TIME = "%Y-%m-%dT%H:%M:%SZ"

_WHEEL = re.compile(r"(?P<name>[^-/]+)-(?P<version>[^-/]+)(?:-\d[^-/]*)?-[^-/]+-[^-/]+-[^-/]+\.whl")
_DEBIAN = re.compile(r"(?P<name>[^_/]+)_(?P<version>[^_/]+)_(?P<machine>[^_/]+)\.deb")
_COLLECTION = re.compile(r"(?P<name>[a-z0-9_]+-[a-z0-9_]+)-(?P<version>\d[^/]*)\.tar\.gz")
# A shorter licence is its name; a longer one is its text, of which the file itself has a copy.
_LONGEST_LICENCE = 100


class Known(NamedTuple):
    """What a file or an image says of itself: an SPDX expression, else names of licences; an image's digest."""

    expression: str = ""
    licences: tuple[str, ...] = ()
    digest: str = ""


# By the path of a file, or by the name of an image.
Knowledge = Mapping[str, Known]


def render_bill(holds: Holds, known: Knowledge, version: str, now: str, before: str = "") -> str:
    """Return the text of the bill.

    ``version`` is the one of this collection, ``now`` the time in UTC (2026-01-31T12:00:00Z). The time in ``before``,
    the former text, is kept where nothing else differs.
    """
    try:
        written = str(load_json(before)["metadata"]["timestamp"])
    except (ValueError, LookupError, TypeError):
        written = now
    text = _render(holds, known, version, written)
    return text if text == before else _render(holds, known, version, now)


def written_at(text: str) -> int | None:
    """Return when the content that a bill lists was last changed, in seconds since 1970; None for anything else."""
    try:
        return calendar.timegm(time.strptime(str(load_json(text)["metadata"]["timestamp"]), TIME))
    except (ValueError, LookupError, TypeError):
        return None


def _render(holds: Holds, known: Knowledge, version: str, written: str) -> str:
    components = _components(holds, known)
    content = json.dumps(components, sort_keys=True)
    subject = {"type": "data", "bom-ref": "bundle", "name": "What a site without internet needs"}
    tool = {"type": "application", "name": "baremetal.inference", "version": version}
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"timestamp": written, "tools": {"components": [tool]}, "component": subject},
        "components": components,
        "dependencies": [{"ref": "bundle", "dependsOn": [component["bom-ref"] for component in components]}],
    }
    return json.dumps(bill, indent=1) + "\n"


def _components(holds: Holds, known: Knowledge) -> list[dict[str, Any]]:
    """Return a component for each item, or for each file where files stand for themselves."""
    found: dict[str, dict[str, Any]] = {}
    for kind, item, files in walk(holds):
        if kind == "weights":
            found[f"{kind}:{item}"] = {**_model(item), "components": _nested(files)}
        elif kind == "images" and ":" in item:
            found[f"{kind}:{item}"] = {**_image(item, known.get(item, Known())), "components": _nested(files)}
        else:
            found.update({path: _describe_file(path, content, known) for path, content in files.items()})
    return [{"bom-ref": ref, **found[ref]} for ref in sorted(found)]


def _nested(files: Files) -> list[dict[str, Any]]:
    return [{"type": "file", "name": path, "hashes": _hashes(content)} for path, content in sorted(files.items())]


def _hashes(content: Content) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": content.sha256}]


def _model(item: str) -> dict[str, Any]:
    """Describe weights/ORGANISATION/NAME/REVISION."""
    name, _slash, revision = item.rpartition("/")
    purl = f"pkg:huggingface/{quote(name)}@{quote(revision.lower(), safe='')}"
    return {"type": "machine-learning-model", "name": name, "version": revision, "purl": purl}


def _image(item: str, known: Known) -> dict[str, Any]:
    """Describe REPOSITORY:TAG; a package URL needs its digest."""
    repository, _colon, tag = item.partition(":")
    described = {"type": "container", "name": repository, "version": tag, **_licences(known)}
    if known.digest:
        last = quote(repository.rpartition("/")[2].lower(), safe="")
        described["purl"] = f"pkg:oci/{last}@{quote(known.digest, safe='')}?tag={quote(tag, safe='')}"
    return described


def _describe_file(path: str, content: Content, known: Knowledge) -> dict[str, Any]:
    """Describe a file that stands for itself: a wheel, a package, a collection, or anything else."""
    last = path.rpartition("/")[2]
    described = _package(last) or {"type": "data" if path.startswith("encodings/") else "file", "name": last}
    where = [{"name": "baremetal.inference:path", "value": path}]
    return {**described, "hashes": _hashes(content), **_licences(known.get(path, Known())), "properties": where}


def _package(last: str) -> dict[str, Any]:
    """Describe a package by its file's name; empty for anything else."""
    wheel, debian, collection = (pattern.fullmatch(last) for pattern in (_WHEEL, _DEBIAN, _COLLECTION))
    if wheel:
        name, version = re.sub(r"[-_.]+", "-", wheel["name"]).lower(), wheel["version"]
        purl = f"pkg:pypi/{quote(name)}@{quote(version, safe='')}?file_name={quote(last, safe='')}"
        return {"type": "library", "name": name, "version": version, "purl": purl}
    if debian:
        name, version, machine = (quote(debian[part], safe="") for part in ("name", "version", "machine"))
        purl = f"pkg:deb/debian/{name}@{version}?arch={machine}"
        # A colon in a version is %3a in a file's name.
        return {"type": "library", "name": debian["name"], "version": debian["version"], "purl": purl}
    if collection:
        name = collection["name"].replace("-", ".", 1)
        return {"type": "application", "name": name, "version": collection["version"]}
    return {}


def _licences(known: Known) -> dict[str, Any]:
    """Return the key of licences, or nothing: an unknown licence is not listed."""
    if known.expression:
        return {"licenses": [{"expression": known.expression}]}
    if known.licences:
        return {"licenses": [{"license": {"name": name}} for name in known.licences]}
    return {}


def read_metadata(headers: Mapping[str, list[str]]) -> Known:
    """Return what a wheel's METADATA says of its licence; ``headers`` maps names to values in lower-case letters."""
    expressions = headers.get("license-expression") or [""]
    if expressions[0]:
        return Known(expression=expressions[0].strip())
    trove = [entry.rpartition(" :: ")[2] for entry in headers.get("classifier", []) if entry.startswith("License ::")]
    named = [name for name in trove if name != "OSI Approved"]
    free = (headers.get("license") or [""])[0].strip()
    if not named and free and "\n" not in free and len(free) <= _LONGEST_LICENCE and free != "UNKNOWN":
        named = [free]
    return Known(licences=tuple(sorted(set(named))))
