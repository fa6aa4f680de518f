# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory of wheels -> the pages of a simple index (PEP 503, 658)."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Iterable, Mapping
from urllib.parse import quote, unquote, urldefrag, urljoin

from ..common.foreign_html import read_links

# PEP 427. A dash separates the fields, so none holds one; a build tag starts with a digit, a python tag does not.
WHEEL_NAME = re.compile(
    r"(?P<project>[\w.+!]+)-(?P<version>\d[\w.+!]*)(?:-(?P<build>\d[\w.+!]*))?"
    r"-(?P<python>[\w.+!]+)-(?P<abi>[\w.+!]+)-(?P<platform>[\w.+!]+)\.whl",
    re.ASCII,
)
ROOT_PAGE = "index.html"


class WheelError(ValueError):
    """A wheel or its name is invalid; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class WheelName:
    """The parts of a wheel's file name; ``project`` is normalised, ``tags`` are expanded (python, abi, platform)."""

    project: str
    version: str
    build: str
    tags: frozenset[tuple[str, str, str]]


@dataclass(frozen=True)
class Wheel:
    """One wheel as its project's page shows it; both digests are in hex, ``metadata_sha256`` is that of METADATA."""

    filename: str
    sha256: str
    requires_python: str
    metadata_sha256: str


@dataclass(frozen=True)
class Link:
    """A file that a page of an index links to; ``url`` is absolute, ``sha256`` is None where the page gives none."""

    filename: str
    url: str
    sha256: str | None


def normalise_name(name: str) -> str:
    """Return a project's name as PEP 503 spells it in addresses."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_name(filename: str) -> WheelName:
    """Return the fields of a wheel's file name. Raises WheelError when it is not one by PEP 427."""
    match = WHEEL_NAME.fullmatch(filename)
    if match is None:
        raise WheelError(
            f"{filename}: not a wheel's file name; expected NAME-VERSION-PYTHON-ABI-PLATFORM.whl, each of ASCII "
            "letters, digits and _.+!; give the file its own name back or remove it"
        )
    tags = frozenset(
        (python, abi, platform)
        for python in match["python"].split(".")
        for abi in match["abi"].split(".")
        for platform in match["platform"].split(".")
    )
    return WheelName(normalise_name(match["project"]), match["version"].replace("_", "-"), match["build"] or "", tags)


def render_pages(wheels: Iterable[Wheel]) -> dict[str, str]:
    """Return path below ``simple/`` -> text for the root page and a page per project; files sorted by name."""
    projects: dict[str, list[Wheel]] = {}
    for wheel in sorted(wheels, key=lambda wheel: wheel.filename):
        projects.setdefault(parse_name(wheel.filename).project, []).append(wheel)
    names = sorted(projects)
    pages = {f"{name}/{ROOT_PAGE}": _page(f"Links for {name}", map(_file_link, projects[name])) for name in names}
    # The root page comes last, so that it never names a project without a page.
    pages[ROOT_PAGE] = _page("Simple index", (f'<a href="{quote(name)}/">{html.escape(name)}</a>' for name in names))
    return pages


def _page(title: str, links: Iterable[str]) -> str:
    lines = [
        "<!DOCTYPE html>",
        "<html>",
        f'<head><meta name="pypi:repository-version" content="1.0"><title>{html.escape(title)}</title></head>',
        "<body>",
        *(f"{link}<br>" for link in links),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _file_link(wheel: Wheel) -> str:
    attributes = {"href": f"../../wheels/{quote(wheel.filename)}#sha256={wheel.sha256}"}
    if wheel.requires_python:
        attributes["data-requires-python"] = wheel.requires_python
    # Not under its first name, data-dist-info-metadata: the pip of Debian 12 (23.0) reads that one, and then refuses a
    # project that is asked for in another spelling than its own (PEP 714).
    attributes["data-core-metadata"] = f"sha256={wheel.metadata_sha256}"
    text = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {text}>{html.escape(wheel.filename)}</a>"


def parse_links(page: str, url: str = "") -> list[Link]:
    """Return what a page that lies at url links to, in its order, without what cannot be read as an address."""
    found = []
    for href in read_links(page):
        try:
            address, fragment = urldefrag(urljoin(url, href))
        except ValueError:
            continue
        filename = unquote(address.rstrip("/").rsplit("/", 1)[-1])
        found.append(Link(filename, address, fragment[7:] if fragment.startswith("sha256=") else None))
    return found


def stale_pages(pages: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return the existing pages that are no longer needed, sorted."""
    return sorted(set(present) - set(pages))


def changed_pages(pages: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return the pages that are missing or differ, in the order of pages."""
    return [path for path, text in pages.items() if present.get(path) != text]


def list_files(pages: Mapping[str, str]) -> str:
    """Return the files that the pages of an index list, a line ``FILE sha256=...`` each: what a diff shows."""
    lines = {
        f"{link.filename} sha256={link.sha256}\n"
        for path, text in pages.items()
        if path != ROOT_PAGE
        for link in parse_links(text)
    }
    return "".join(sorted(lines))
