# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The weights of a host: look at them, and bring them from a source into directories that are published whole."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Sequence

from ._connections import FetchError
from ._fetch import Settings, Wanted, check_location, check_size, fetch_all, join, probe, sync_directory
from ._manifest import File, Manifest, WeightsError
from ._weights import STAMP_NAME, Seen, blocks, check_space, listing, make_stamp, plan

CHUNK = 1024 * 1024


@dataclass(frozen=True)
class State:
    """A model on the host: its directory, the files that are right and those that are not, whether its stamp is."""

    manifest: Manifest
    directory: str
    right: tuple[File, ...]
    missing: tuple[File, ...]
    stamp_current: bool

    @property
    def partial(self) -> str:
        """The directory beside it in which it grows."""
        parent, revision = os.path.split(self.directory)
        return os.path.join(parent, f".{revision}.partial")

    @property
    def changed(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.missing) or not self.stamp_current


@dataclass(frozen=True)
class Site:
    """Where weights lie on the host, where they come from, and where the instances that use them are known."""

    root: str
    sources: tuple[str, ...]
    state_dir: str
    is_active: Callable[[str], bool]
    settings: Settings


@dataclass
class Outcome:
    """What was done for a model, or would be: the source, the ones passed over with the reason, bytes and seconds."""

    state: State
    source: str = ""
    skipped: tuple[str, ...] = ()
    transferred: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for a module's result."""
        manifest = self.state.manifest
        return {
            "repository": manifest.repository,
            "revision": manifest.revision,
            "path": self.state.directory,
            "changed": self.state.changed,
            "files_fetched": [file.name for file in self.state.missing],
            "bytes": self.transferred,
            "seconds": round(self.seconds, 1),
            "source": self.source,
            "skipped_sources": list(self.skipped),
        }

    def diff(self) -> dict[str, str]:
        """Return both sides of Ansible's diff: the files that are right, before and after."""
        return {
            "before_header": self.state.directory,
            "after_header": self.state.directory,
            "before": listing(self.state.right),
            "after": listing(self.state.manifest.files),
        }


def look(root: str, manifest: Manifest, full: bool = False) -> State:
    """Return what the host has of a manifest. Files that the stamp does not vouch for are read, with ``full`` all."""
    directory = os.path.join(root, manifest.path)
    seen, stamp = _observe(directory, manifest), _read_stamp(directory)
    todo = plan(manifest, seen, stamp, full)
    wrong = {file for file in todo.check if sha256_of(os.path.join(directory, file.name)) != file.sha256}
    missing = tuple(file for file in manifest.files if file in wrong or file in todo.fetch)
    right = tuple(file for file in manifest.files if file not in missing)
    return State(manifest, directory, right, missing, bool(missing) or make_stamp(manifest, seen) == stamp)


def check(states: Sequence[State], site: Site) -> None:
    """Raise WeightsError for what would stop the fetch: a directory in use, too little space."""
    todo = [state for state in states if state.missing]
    for state in todo:
        _check_unused(state, site)
    _check_space(todo)


def choose(state: State, site: Site) -> Outcome:
    """Return the first source that has every missing file with its size. Raises WeightsError when none has."""
    skipped: list[str] = []
    for source in site.sources if state.missing else ():
        try:
            for file in state.missing:
                location = join(source, *state.manifest.path.split("/"), *file.name.split("/"))
                check_size(location, probe(location, site.settings), file.size)
        except FetchError as exc:
            skipped.append(str(exc))
        else:
            return Outcome(state, source, tuple(skipped))
    if state.missing:
        raise _no_source(state, skipped)
    return Outcome(state)


def bring(chosen: Outcome, site: Site, log: Callable[[str], None]) -> Outcome:
    """Make the directory what its manifest says; start with the chosen source, go on with those after it.

    Raises WeightsError when no source is left; what was fetched is kept for the next run.
    """
    state = chosen.state
    started = time.monotonic()
    os.makedirs(os.path.dirname(state.directory), exist_ok=True)
    with _locked(os.path.dirname(state.directory)):
        if not state.missing:
            _write_stamp(state.directory, state.manifest)
            return chosen
        _link_right_files(state)
        result = _fetch_all(chosen, site, log)
        _sweep(state)
        _write_stamp(state.partial, state.manifest)
        _publish(state)
    result.seconds = time.monotonic() - started
    return result


def _fetch_all(chosen: Outcome, site: Site, log: Callable[[str], None]) -> Outcome:
    state, skipped, transferred = chosen.state, list(chosen.skipped), 0
    for source in site.sources[site.sources.index(chosen.source) :]:
        try:
            transferred += fetch_all(_wanted(state, source, log), site.settings)
        except FetchError as exc:
            skipped.append(str(exc))
        else:
            return Outcome(state, source, tuple(skipped), transferred)
    raise _no_source(state, skipped)


def _wanted(state: State, source: str, log: Callable[[str], None]) -> list[Wanted]:
    """Return the files that an earlier run, or the source before this one, has not brought."""
    found = []
    for file in state.missing:
        dest = os.path.join(state.partial, file.name)
        os.makedirs(os.path.dirname(dest), exist_ok=True)
        if os.path.exists(dest) and os.path.getsize(dest) == file.size and sha256_of(dest) == file.sha256:
            continue
        location = join(source, *state.manifest.path.split("/"), *file.name.split("/"))
        log(f"fetching {location} ({file.size} bytes)")
        found.append(Wanted(location, dest, file.size, file.sha256))
    return found


def _no_source(state: State, reasons: Sequence[str]) -> WeightsError:
    count = len(state.missing)
    return WeightsError(
        f"{state.manifest.repository} revision {state.manifest.revision}: no source gives its {count} missing "
        f"file{'s' if count > 1 else ''}: {'; '.join(reasons) or 'weights_sources is empty'}"
    )


def _check_unused(state: State, site: Site) -> None:
    if not os.path.isdir(state.directory):
        return
    for name in _users(state.directory, site.state_dir):
        if site.is_active(f"vllm@{name}.service"):
            raise WeightsError(
                f"{state.directory}: {', '.join(file.name for file in state.missing)} must be fetched again, but "
                f"vllm@{name}.service runs from this directory; stop it (systemctl stop vllm@{name}) and run again"
            )


def _users(directory: str, state_dir: str) -> list[str]:
    """Return the instances whose symlink ``model`` leads to the directory."""
    if not os.path.isdir(state_dir):
        return []
    wanted = os.path.realpath(directory)
    names = sorted(os.listdir(state_dir))
    return [name for name in names if os.path.realpath(os.path.join(state_dir, name, "model")) == wanted]


def _check_space(states: Iterable[State]) -> None:
    by_device: dict[int, list[State]] = {}
    for state in states:
        by_device.setdefault(os.stat(_existing(state.directory)).st_dev, []).append(state)
    for together in by_device.values():
        place = _existing(together[0].directory)
        figures = os.statvfs(place)
        needed = sum(_needed(state, figures.f_frsize) for state in together)
        names = [state.manifest.repository for state in together]
        check_space(_mount_point(place), needed, figures.f_bavail * figures.f_frsize, names)


def _needed(state: State, block: int) -> int:
    """Return the bytes that the missing files still take, those of an earlier run's partial files left out."""
    needed = sum(blocks(file.size, block) for file in state.missing)
    for parent, _directories, names in os.walk(state.partial):
        paths = (os.path.join(parent, name) for name in names)
        # A file with a second link is one that the published directory has too.
        needed -= sum(os.stat(path).st_blocks * 512 for path in paths if os.stat(path).st_nlink == 1)
    return max(needed, 0)


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _mount_point(path: str) -> str:
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Keep a second run out of a repository's directory. Raises WeightsError when one is there already."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as exc:
        raise WeightsError(
            f"{directory}: another run fetches weights into it; wait for that one, then run again"
        ) from exc
    finally:
        os.close(descriptor)


def _link_right_files(state: State) -> None:
    """Let the partial directory share the files that are right with the published one."""
    os.makedirs(state.partial, exist_ok=True)
    for file in state.right:
        dest = os.path.join(state.partial, file.name)
        os.makedirs(os.path.dirname(dest), exist_ok=True)
        if os.path.lexists(dest):
            os.unlink(dest)
        os.link(os.path.join(state.directory, file.name), dest)


def _sweep(state: State) -> None:
    """Remove what the manifest does not name, such as the rest of another manifest's file."""
    wanted = {os.path.join(state.partial, file.name) for file in state.manifest.files}
    for parent, _directories, names in os.walk(state.partial):
        for name in names:
            path = os.path.join(parent, name)
            if path not in wanted:
                os.unlink(path)


def _publish(state: State) -> None:
    """Put the partial directory in the place of the published one, which nothing uses."""
    parent, revision = os.path.split(state.directory)
    old = os.path.join(parent, f".{revision}.old")
    shutil.rmtree(old, ignore_errors=True)
    sync_directory(state.partial)
    if os.path.isdir(state.directory):
        os.rename(state.directory, old)
    os.rename(state.partial, state.directory)
    sync_directory(parent)
    shutil.rmtree(old, ignore_errors=True)


def _observe(directory: str, manifest: Manifest) -> dict[str, Seen]:
    seen = {}
    for file in manifest.files:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(os.path.join(directory, file.name))
            seen[file.name] = Seen(found.st_size, found.st_mtime_ns, found.st_ino)
    return seen


def sha256_of(path: str) -> str:
    """Return the sha256 of a file in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _read_stamp(directory: str) -> dict[str, Any]:
    """Return the stamp of a directory; empty when there is none that can be read."""
    try:
        with open(os.path.join(directory, STAMP_NAME), encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _write_stamp(directory: str, manifest: Manifest) -> None:
    path = os.path.join(directory, STAMP_NAME)
    partial = f"{path}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(make_stamp(manifest, _observe(directory, manifest)), file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(partial, 0o644)
    os.replace(partial, path)


def check_sources(sources: Iterable[str]) -> None:
    """Raise WeightsError for a source that is neither an absolute path nor a URL that can be fetched from."""
    for source in sources:
        try:
            check_location(source)
        except FetchError as exc:
            raise WeightsError(f"weights_sources: {exc}") from exc
