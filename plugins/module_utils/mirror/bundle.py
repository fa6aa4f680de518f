# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a carried directory, file by file, as its bundle.json lists it.

``holds`` maps a kind (weights, encodings, wheels, images, controller, caches) to its items, an item to its files, a
file's path below the directory to its bytes and sha256.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, Iterator, Mapping, NamedTuple

from ..common.foreign_json import load_json
from ..common.kinds import name_kind, show_value

NAME = "bundle.json"
VERSION = 1
# What the hosts need, and what people put there: for the controller, and archives of compiled caches for hosts.
SERVED = ("weights", "encodings", "wheels", "images")
CARRIED = ("controller", "caches")
KINDS = (*SERVED, *CARRIED)

# The advice for an incomplete directory.
AGAIN = "fill the directory again with playbooks/mirror.yml"

_SHA256 = re.compile(r"[0-9a-f]{64}")
# No segment starts with a dot: no "..", nothing hidden.
_PATH = re.compile(r"[\w+-][\w.+-]*(/[\w+-][\w.+-]*)+", re.ASCII)
# An inventory may have hidden files, and names with more characters; still no "..".
_CONTROLLER_PATH = re.compile(r"controller(/(?!\.\.?(/|$))[\w.+@=,-]([\w.+@=, -]*[\w.+@=,-])?)+", re.ASCII)


class BundleError(ValueError):
    """The carried directory is not what it should be; the message is the whole sentence for the user."""


class Content(NamedTuple):
    """Bytes and sha256 (in hex) of a file."""

    size: int
    sha256: str


Files = Dict[str, Content]
Holds = Dict[str, Dict[str, Files]]


def parse_holds(data: Any, where: str) -> Holds:
    """Return ``holds`` from plain data. Raises BundleError that names the wrong key."""
    if not isinstance(data, Mapping):
        raise BundleError(f"{where}: found {name_kind(data)}, expected a mapping of {', '.join(KINDS)}")
    unknown = sorted(set(map(str, data)) - set(KINDS))
    if unknown:
        raise BundleError(f"{where}: unknown kind {unknown[0]!r}; expected {', '.join(KINDS)}")
    return {
        kind: {str(item): _files(files, f"{where}.{kind}.{item}") for item, files in sorted(_mapping(items).items())}
        for kind, items in data.items()
    }


def _mapping(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, Mapping) else {}


def _files(data: Any, where: str) -> Files:
    if not isinstance(data, Mapping) or not data:
        raise BundleError(f"{where}: found {show_value(data)}, expected a mapping of at least one file")
    return {path: _content(path, entry, where) for path, entry in sorted(data.items())}


def _content(path: Any, entry: Any, where: str) -> Content:
    if not isinstance(path, str) or not is_path(path):
        raise BundleError(f"{where}: found the path {path!r}, expected one below the directory without leading dots")
    size, sha256 = (_mapping(entry).get(key) for key in ("size", "sha256"))
    whole = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    if not whole or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise BundleError(
            f"{where}.{path}: found {show_value(entry)}, expected size in bytes and sha256 in hexadecimal digits"
        )
    return Content(int(size or 0), sha256)


def is_path(path: str) -> bool:
    """Whether bundle.json can name a path."""
    return bool(_PATH.fullmatch(path) or _CONTROLLER_PATH.fullmatch(path))


def carried_holds(files: Files) -> Holds:
    """Return the items of what people put there: each file at the top of controller/ and caches/, each directory there.

    Raises BundleError for a name that bundle.json cannot hold.
    """
    holds: Holds = {}
    for path, content in files.items():
        if not is_path(path):
            raise BundleError(
                f"{path!r}: expected a name of ASCII letters, digits, spaces and _.+@=,- only, because "
                f"{NAME} lists it; rename the file"
            )
        kind, item = path.split("/")[:2]
        holds.setdefault(kind, {}).setdefault(item, {})[path] = content
    return holds


def parse_bundle(text: str, where: str) -> Holds:
    """Return the content of a bundle.json. Raises BundleError that names the file (``where``)."""
    try:
        data = load_json(text)
    except ValueError as exc:
        raise BundleError(f"{where}: cannot be read ({exc}); {AGAIN}") from exc
    version = data.get("version") if isinstance(data, Mapping) else None
    if version != VERSION:
        raise BundleError(
            f"{where}: version: found {show_value(version)}, expected {VERSION}, the only one that this release reads"
        )
    return parse_holds(data.get("holds"), f"{where}: holds")


def render_bundle(holds: Holds) -> str:
    """Return the text of a bundle.json: the same for the same content."""
    plain = {
        kind: {
            item: {path: content._asdict() for path, content in sorted(files.items())}
            for item, files in sorted(holds.get(kind, {}).items())
        }
        for kind in KINDS
        # Releases before 0.9.0 refuse a kind that they do not know.
        if kind != "caches" or holds.get(kind)
    }
    whole = {"version": VERSION, "bytes": size_of(holds), "holds": plain}
    return json.dumps(whole, indent=1) + "\n"


def all_files(holds: Holds) -> Files:
    """Return every file once: items may share some."""
    return {path: content for _kind, _item, files in walk(holds) for path, content in files.items()}


def walk(holds: Holds) -> Iterator[tuple[str, str, Files]]:
    """Yield kind, item and files."""
    for kind in KINDS:
        for item, files in sorted(holds.get(kind, {}).items()):
            yield kind, item, files


def size_of(holds: Holds) -> int:
    """Return the bytes of all files."""
    return sum(content.size for content in all_files(holds).values())


def merge_holds(new: Holds, before: Holds, sizes: Mapping[str, int | None]) -> tuple[Holds, list[str]]:
    """Return what a directory holds after a fill, and the items of an earlier one that are incomplete now.

    Items of an earlier fill are kept as long as each of their files has its size (``sizes``) and no new item
    describes the file differently. What people put there is that of now.
    """
    merged = {kind: dict(new.get(kind, {})) for kind in KINDS}
    known, dropped = all_files(new), []
    for kind, item, files in walk(before):
        if item in merged[kind] or kind in CARRIED:
            continue
        whole = all(sizes.get(path) == content.size for path, content in files.items())
        if whole and all(known.get(path, content) == content for path, content in files.items()):
            merged[kind][item] = files
        else:
            dropped.append(f"{kind} {item}")
    return merged, dropped


def summarise_holds(holds: Holds) -> list[str]:
    """Return a line for each kind: how many items, files and bytes."""
    lines = []
    for kind in KINDS:
        items = holds.get(kind) or {}
        files = all_files({kind: items})
        if items:
            lines.append(f"{kind}: {', '.join(sorted(items))} ({format_count(files.values())})")
    return lines


def format_count(contents: Iterable[Content]) -> str:
    """Return how many files of how many bytes these are."""
    found = list(contents)
    return f"{len(found)} file{'s' if len(found) != 1 else ''}, {format_bytes(sum(content.size for content in found))}"


def format_bytes(count: int) -> str:
    """Return bytes for people."""
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def weights_holds(manifests: Iterable[Any]) -> dict[str, Any]:
    """Return the items of weights by manifest (see _manifest.Manifest), as plain data."""
    found = {}
    for manifest in manifests:
        top = f"weights/{manifest.path}"
        found[manifest.path] = {
            f"{top}/{file.name}": {"size": file.size, "sha256": file.sha256} for file in manifest.files
        }
    return found
