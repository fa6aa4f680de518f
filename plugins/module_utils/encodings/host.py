# SPDX-License-Identifier: GPL-3.0-or-later
"""Inspect the encodings of a host, and install them from a mirror, the publisher or a wheel."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from typing import Any, Callable, Sequence

from ..common.files_host import make_directories, publish, sha256_of
from ..transfer.connections import FetchError
from ..transfer.fetch import (
    Settings,
    check_base,
    check_location,
    check_size,
    fetch_file,
    is_url,
    join_location,
    probe_size,
    read_small_file,
)
from .files import PROJECT, WHEEL_LIMIT, EncodingsError, Published, expected_files, newest_wheel
from .wheel_host import from_wheel

INDEX, WHEEL = "index:", ".whl"


@dataclass(frozen=True)
class EncodingState:
    """A file on the host: its path, the published file, and the sha256 of the file there (empty if it is missing)."""

    name: str
    path: str
    published: Published
    found: str

    @property
    def changed(self) -> bool:
        """Whether it is missing or not the published file."""
        return self.found != self.published.sha256


@dataclass(frozen=True)
class EncodingOutcome:
    """What was done for a file, or would be: the source, and why each one before it was skipped."""

    state: EncodingState
    source: str = ""
    skipped: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for a module's result."""
        return {
            "name": self.state.name,
            "path": self.state.path,
            "changed": self.state.changed,
            "source": self.source,
            "skipped_sources": list(self.skipped),
        }

    def diff(self) -> dict[str, str]:
        """Return both sides of Ansible's diff."""
        state = self.state
        return {
            "before_header": state.path,
            "after_header": state.path,
            "before": f"sha256 {state.found}\n" if state.found else "",
            "after": f"sha256 {state.published.sha256}\n",
        }


def inspect_encodings(directory: str, names: Sequence[str]) -> list[EncodingState]:
    """Return the state of each named file. Raises EncodingsError for a name that is not published."""
    return [
        EncodingState(name, os.path.join(directory, name), published, _sha256_of(os.path.join(directory, name)))
        for name, published in expected_files(names).items()
    ]


def check_sources(sources: Sequence[str]) -> None:
    """Raise EncodingsError for a source that is none of: a path, a URL, a wheel, ``index:`` and a URL."""
    for source in sources:
        try:
            if source.endswith(WHEEL):
                check_location(source)
            else:
                check_base(source[len(INDEX) :] if source.startswith(INDEX) else source)
        except FetchError as exc:
            raise EncodingsError(f"encodings_sources: {exc}") from exc


def choose_source(state: EncodingState, sources: Sequence[str], settings: Settings) -> EncodingOutcome:
    """Return the first source that has the file; nothing is written. Raises EncodingsError when none has."""
    if not state.changed:
        return EncodingOutcome(state)
    return _try_sources(EncodingOutcome(state), sources, lambda source: _check_source(state, source, settings))


def fetch_encoding(chosen: EncodingOutcome, sources: Sequence[str], settings: Settings) -> EncodingOutcome:
    """Put the file into its place, from the chosen source or one after it. Raises EncodingsError when none is left."""
    state = chosen.state
    if not state.changed:
        return chosen
    make_directories(os.path.dirname(state.path))
    rest = sources[sources.index(chosen.source) :]
    return _try_sources(
        chosen, rest, lambda source: _fetch_from(state, source, replace(settings, has_fallback=source != rest[-1]))
    )


def _try_sources(before: EncodingOutcome, sources: Sequence[str], attempt: Callable[[str], None]) -> EncodingOutcome:
    """Return the first source with which the attempt succeeds. Raises EncodingsError when none does."""
    state, skipped = before.state, list(before.skipped)
    for source in sources:
        try:
            attempt(source)
        except (EncodingsError, FetchError) as exc:
            skipped.append(str(exc))
        else:
            return EncodingOutcome(state, source, tuple(skipped))
    raise EncodingsError(
        f"no source has {state.name} (sha256 {state.published.sha256}): "
        f"{'; '.join(skipped) or 'encodings_sources is empty'}"
    )


def _check_source(state: EncodingState, source: str, settings: Settings) -> None:
    wheel = _wheel_address(source, settings)
    if wheel is None:
        location = join_location(source, state.name)
        check_size(location, probe_size(location, settings), state.published.size)
    elif is_url(wheel):
        probe_size(wheel, settings)
    else:
        _from_wheel_at(wheel, state.name, settings)


def _fetch_from(state: EncodingState, source: str, settings: Settings) -> None:
    wheel = _wheel_address(source, settings)
    if wheel is None:
        fetch_file(
            join_location(source, state.name), state.path, state.published.size, state.published.sha256, settings
        )
    else:
        publish(state.path, _from_wheel_at(wheel, state.name, settings))


def _wheel_address(source: str, settings: Settings) -> str | None:
    """Return where the wheel of a source lies, None for a source that holds the files themselves."""
    if source.startswith(INDEX):
        page = join_location(source[len(INDEX) :], PROJECT) + "/"
        # The page of a project with hundreds of releases has some 100 KB.
        content = read_small_file(page, WHEEL_LIMIT, settings)
        return newest_wheel(content.decode("utf-8", "replace"), page).url
    return source if source.endswith(WHEEL) else None


def _from_wheel_at(wheel: str, name: str, settings: Settings) -> bytes:
    return from_wheel(io.BytesIO(read_small_file(wheel, WHEEL_LIMIT, settings)), name, wheel)


def _sha256_of(path: str) -> str:
    """Return the sha256 of a file, empty where there is none."""
    try:
        return sha256_of(path)
    except FileNotFoundError:
        return ""
