# SPDX-License-Identifier: GPL-3.0-or-later
"""Inspect the weights of a host, and download them into directories that are published complete."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Sequence

from ..common.files_host import make_directories
from ..common.foreign_trees_host import remove_tree, walk_tree
from ..common.mounts_host import MountedError
from ..transfer.connections import FetchError
from ..transfer.fetch import Settings, check_size, fetch_files, probe_sizes
from ..transfer.partial_file import DownloadRequest, TargetError, make_directory
from ..transfer.scheduler import Scheduler
from .files_host import (
    ModelState,
    confirm_verified_files,
    file_status,
    has_expected_hash,
    link_verified_files,
    publish_model,
    read_stamp,
    remove_unlisted_files,
    stat_files,
    write_stamp,
)
from .lock_host import lock_model_directory
from .manifest import Manifest, ManifestFile, WeightsError
from .owners_host import Owners
from .plan import STAMP_NAME, FileStatus, list_checksums, make_stamp, plan_fetch
from .progress import Progress
from .serving_host import REFUSE, describe_serving, find_serving, stopped
from .share_host import find_shared_files, link_shared_files
from .sources import NO_SOURCES, Access, Source, file_address, request_headers
from .space_host import check_place, check_room


@dataclass(frozen=True)
class WeightsStore:
    """The weights of a host: their directory, their sources, and the place that lists the instances that use them.

    ``access`` has an entry for each source. ``lock_timeout`` is in seconds. ``pushed`` is the controller's
    source whose files may already be in the partial directory of a model; empty for none. ``serving`` decides
    what happens to a damaged model that an instance uses, and ``systemctl`` stops and starts units.
    """

    root: str
    sources: tuple[Source, ...]
    access: tuple[Access, ...]
    state_dir: str
    is_active: Callable[[str], bool]
    settings: Settings
    lock_timeout: float = float("inf")
    pushed: str = ""
    serving: str = REFUSE
    systemctl: Callable[[str, str], str] = lambda _verb, _unit: "systemd is not available"

    def reach(self, number: int) -> Settings:
        """Return the transfer settings for a source."""
        source, access = self.sources[number], self.access[number]
        return replace(
            self.settings,
            headers=request_headers(source, access),
            probe_with_get=source.kind == "s3",
            has_fallback=number + 1 < len(self.sources),
        )


@dataclass
class FetchOutcome:
    """The result for a model, or the expected one: the source, the skipped ones with the reason, bytes and seconds."""

    state: ModelState
    source: str = ""
    skipped: tuple[str, ...] = ()
    transferred: int = 0
    seconds: float = 0.0
    # The source's place in the list.
    number: int = 0

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
        """Return both sides of Ansible's diff: the correct files, before and after."""
        return {
            "before_header": self.state.directory,
            "after_header": self.state.directory,
            "before": list_checksums(self.state.right),
            "after": list_checksums(self.state.manifest.files),
        }


@dataclass
class ProgressTracker:
    """The state behind a progress report; bytes and files are those of all models of a run."""

    total: int = 0
    files: int = 0
    model: str = ""
    source: str = ""
    waits_for: str = ""
    ended: int = 0
    files_ended: int = 0
    fetch: Scheduler | None = None
    # The bytes of the present model from earlier fetches.
    before: int = 0
    files_before: int = 0

    def report(self) -> Progress:
        """Return the present progress."""
        done, files = self.ended + self.before, self.files_ended + self.files_before
        if self.fetch:
            done += min(self.fetch.resumed + self.fetch.transferred, self.fetch.size)
            files += self.fetch.files_done
        return Progress(self.model, self.source, done, self.total, files, self.files, waits_for=self.waits_for)

    def begin(self, state: ModelState, source: str, wanted: Sequence[DownloadRequest]) -> None:
        """Record that the missing files of a model are fetched from a source."""
        self.model, self.source, self.waits_for, self.fetch = state.manifest.repository, source, "", None
        self.before = sum(file.size for file in state.missing) - sum(file.size for file in wanted)
        self.files_before = len(state.missing) - len(wanted)

    def end(self, state: ModelState) -> None:
        """Note that a model is complete."""
        self.fetch, self.before, self.files_before = None, 0, 0
        self.ended += sum(file.size for file in state.missing)
        self.files_ended += len(state.missing)

    def follow(self, fetch: Scheduler) -> None:
        """Record the fetch that begins."""
        self.fetch = fetch


def inspect_weights(root: str, manifest: Manifest, full: bool = False) -> ModelState:
    """Return which files of a manifest the host has. Files not confirmed by the stamp are read, with ``full`` all."""
    directory = os.path.join(root, manifest.path)
    seen, stamp = stat_files(directory, manifest), read_stamp(directory)
    owners = Owners(root)
    foreign = owners.find_foreign(directory, [STAMP_NAME, *seen])
    todo = plan_fetch(manifest, seen, stamp, full, foreign)
    lacking = {file.name for file in todo.fetch}
    lacking.update(file.name for file in todo.check if not has_expected_hash(os.path.join(directory, file.name), file))
    if lacking:
        # The directory is replaced: nothing of another user's goes into the new one.
        lacking.update(foreign & set(seen))
    missing = tuple(file for file in manifest.files if file.name in lacking)
    right = tuple(file for file in manifest.files if file.name not in lacking)
    # Root writes no stamp where another user could exchange it: each run reads these files again.
    is_current = bool(missing) or owners.is_exposed(directory) or make_stamp(manifest, seen) == stamp
    return ModelState(manifest, directory, right, missing, is_current, seen, foreign)


def check_preconditions(states: Sequence[ModelState], site: WeightsStore) -> None:
    """Raise WeightsError for what would stop the fetch: a directory of others or in use, too little space."""
    todo = [state for state in states if state.missing]
    owners = Owners(site.root)
    for state in todo:
        check_place(state)
        owners.check_parent(state.directory)
        units = find_serving(state, site.state_dir, site.is_active) if site.serving == REFUSE else []
        if units:
            raise WeightsError(describe_serving(state, units))
    check_room(todo, {state.directory: find_shared_files(site.root, state) for state in todo})


class NoSourceError(WeightsError):
    """No source has the missing files of a model."""

    def __init__(self, state: ModelState, reasons: Sequence[str]) -> None:
        count = len(state.missing)
        super().__init__(
            f"{state.manifest.repository} revision {state.manifest.revision}: no source has its {count} missing "
            f"file{'s' if count > 1 else ''}: {'; '.join(reasons) or NO_SOURCES}"
        )
        self.state = state


def choose_source(state: ModelState, site: WeightsStore) -> FetchOutcome:
    """Return the first source that has every missing file with its size. Raises NoSourceError when none has.

    The partial directory is the first: a run that was killed before the publication has left all of them there.
    """
    if not state.missing:
        return FetchOutcome(state)
    if _is_downloaded(state):
        return FetchOutcome(state, site.pushed or state.partial)
    skipped: list[str] = []
    for number, source in enumerate(site.sources):
        try:
            places = [file_address(source, state.manifest, file, site.access[number]) for file in state.missing]
            for place, found, file in zip(places, probe_sizes(places, site.reach(number)), state.missing):
                check_size(place, found, file.size)
        except FetchError as exc:
            skipped.append(str(exc))
        else:
            return FetchOutcome(state, source.text, tuple(skipped), number=number)
    raise NoSourceError(state, skipped)


def _is_downloaded(state: ModelState) -> bool:
    """Whether every missing file is in the partial directory with its size; publishing checks the content."""
    paths = {os.path.join(state.partial, file.name): file.size for file in state.missing}
    return all(os.path.isfile(path) and os.path.getsize(path) == size for path, size in paths.items())


def fetch_weights(
    chosen: FetchOutcome, site: WeightsStore, log: Callable[[str], None], track: ProgressTracker
) -> FetchOutcome:
    """Make the directory match its manifest; begin with the chosen source, then use those after it.

    If another run, on this host or one that shares the file system, has done it in the meantime, nothing is left to do.
    Raises WeightsError when no source is left; downloaded files are kept for the next run.
    """
    started = time.monotonic()
    parent = os.path.dirname(chosen.state.directory)
    owners = Owners(site.root)
    owners.check_parent(chosen.state.directory)
    try:
        make_directories(parent)
    except OSError as exc:
        raise WeightsError(f"{parent}: cannot be created: {exc.strerror}") from exc
    # Another user may have been faster. After this check, nobody can exchange a directory on the way.
    owners.check_parent(chosen.state.directory, is_made=True)
    track.model = chosen.state.manifest.repository

    def waiting(holder: str) -> None:
        if not track.waits_for:
            log(f"{parent}: waiting for {holder}")
        track.waits_for = holder

    with lock_model_directory(parent, waiting, site.lock_timeout):
        state = chosen.state
        if any(owners.is_exposed(directory) for directory, _below, _names in walk_tree(state.partial)):
            # Left from when another user owned its parent, who may still exchange what is written into it.
            remove_tree(state.partial)
        # Another run has changed it since it was inspected.
        if stat_files(state.directory, state.manifest) != state.seen:
            state = inspect_weights(site.root, state.manifest)
        try:
            result = _fetch_and_publish(replace(chosen, state=state), site, log, track)
        except TargetError as exc:
            raise WeightsError(str(exc)) from exc
        except MountedError:
            raise
        except OSError as exc:
            advice = "; free some space there, then run again" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise WeightsError(f"{state.partial}: cannot be published: {exc.strerror or exc}{advice}") from exc
    track.end(chosen.state)
    result.seconds = time.monotonic() - started
    return result


def _fetch_and_publish(
    chosen: FetchOutcome, site: WeightsStore, log: Callable[[str], None], track: ProgressTracker
) -> FetchOutcome:
    state = chosen.state
    if not state.changed:
        return replace(chosen, source="")
    if not state.missing:
        write_stamp(state.directory, state.manifest, state.seen)
        return chosen
    link_verified_files(state)
    shared = link_shared_files(site.root, state)
    if shared:
        log(f"{state.manifest.path}: {len(shared)} files are those of other models here: {', '.join(shared)}")
    verified = {file.name: state.seen[file.name] for file in state.right}
    touched: dict[str, int] = {}
    result = _fetch_missing_files(chosen, site, log, track, verified, touched)
    remove_unlisted_files(state)
    confirm_verified_files(state, verified, touched)
    write_stamp(state.partial, state.manifest, verified)
    with stopped(find_serving(state, site.state_dir, site.is_active), site.systemctl):
        publish_model(state)
    return result


def _fetch_missing_files(
    chosen: FetchOutcome,
    site: WeightsStore,
    log: Callable[[str], None],
    track: ProgressTracker,
    verified: dict[str, FileStatus],
    touched: dict[str, int],
) -> FetchOutcome:
    """Fetch the missing files from the chosen source and those after it, until all are complete.

    ``verified`` gets the stat of each file when its hash was confirmed, ``touched`` the time of its last change.
    """
    state, skipped, transferred = chosen.state, list(chosen.skipped), 0
    missing = _files_to_fetch(state, verified)

    def published(request: DownloadRequest, found: os.stat_result) -> None:
        name = os.path.relpath(request.dest, state.partial)
        verified[name], touched[name] = file_status(found), 0
        with contextlib.suppress(OSError):
            # After its rename, which counts as a change.
            touched[name] = os.lstat(request.dest).st_ctime_ns

    if not missing:
        pushed = sum(file.size for file in state.missing) if site.pushed and chosen.source == site.pushed else 0
        return replace(chosen, transferred=pushed)
    if chosen.source and chosen.source in (site.pushed, state.partial):
        skipped.append(
            f"{chosen.source}: {', '.join(file.name for file in missing)}: the sha256 is not that of the manifest"
        )
    for number in range(chosen.number, len(site.sources)):
        source, access = site.sources[number], site.access[number]
        wanted = [
            _download_request(state, file, file_address(source, state.manifest, file, access)) for file in missing
        ]
        track.begin(state, source.text, wanted)
        log(f"fetching {len(wanted)} files of {state.manifest.path} from {source.text}")
        try:
            transferred += fetch_files(wanted, site.reach(number), track.follow, published)
        except TargetError:
            # The host's own disk: no other source can help.
            raise
        except FetchError as exc:
            skipped.append(str(exc))
            transferred += track.fetch.transferred if track.fetch else 0
            # The files from this source were hashed while they arrived.
            missing = [file for file in missing if file.name not in verified]
        else:
            return replace(chosen, source=source.text, skipped=tuple(skipped), transferred=transferred)
    raise NoSourceError(state, skipped)


def _files_to_fetch(state: ModelState, verified: dict[str, FileStatus]) -> list[ManifestFile]:
    """Return the files that an earlier run has not downloaded; its files are read and, if wrong, removed."""
    found = []
    for file in state.missing:
        path = os.path.join(state.partial, file.name)
        if os.path.lexists(path):
            status = file_status(os.lstat(path))
            if not os.path.islink(path) and status.size == file.size and has_expected_hash(path, file):
                _sync_pushed_file(path)
                verified[file.name] = status
                continue
            os.unlink(path)
        found.append(file)
    return found


def _sync_pushed_file(path: str) -> None:
    """Sync a file that another program has written, and make it readable for all."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o644)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _download_request(state: ModelState, file: ManifestFile, location: str) -> DownloadRequest:
    dest = os.path.join(state.partial, file.name)
    make_directory(os.path.dirname(dest), os.path.dirname(state.partial))
    return DownloadRequest(location, dest, file.size, file.sha256)
