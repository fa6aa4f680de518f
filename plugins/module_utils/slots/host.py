# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the states of an instance of this host in slots."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from typing import Any, Iterator, Mapping

from ..common.files_host import (
    LockedError,
    create,
    listed,
    locked,
    make_directories,
    make_directory,
    publish,
    publish_link,
    sync_directory,
    sync_tree,
    target_of,
)
from ..common.foreign_trees_host import remove_tree
from .installed_host import Host
from .state import DIGEST, GOOD, PREVIOUS, Slot, SlotError, SlotState, document, parse, slots_of, surplus, utc


class Slots:
    """The kept states of one instance."""

    def __init__(self, host: Host, name: str) -> None:
        self.host, self.name = host, name
        self.directory = host.at(slots_of(name))

    def link(self, which: str) -> str:
        """Return the digest that the link ``good`` or ``previous`` points to, empty without a slot there."""
        digest = target_of(os.path.join(self.directory, which))
        return digest if DIGEST.match(digest) and os.path.isdir(os.path.join(self.directory, digest)) else ""

    @property
    def good(self) -> str:
        """The digest of the last good state, empty where none was kept."""
        return self.link(GOOD)

    @property
    def previous(self) -> str:
        """The digest of the good state before the last one, empty where there is none."""
        digest = self.link(PREVIOUS)
        return "" if digest == self.good else digest

    def digests(self) -> list[str]:
        """Return the digests of all finished slots."""
        return [name for name in listed(self.directory) if DIGEST.match(name)]

    def read(self, digest: str) -> Slot:
        """Return a slot. Raises SlotError for an unusable slot.json."""
        try:
            with open(os.path.join(self.directory, digest, "slot.json"), encoding="utf-8") as file:
                return parse(file.read(), self.name, digest)
        except FileNotFoundError as exc:
            raise SlotError("slot.json is missing") from exc

    def damage(self, slot: Slot) -> list[str]:
        """Return the changes in a slot since it was kept."""
        top = os.path.join(self.directory, slot.digest)
        found = []
        for entry in slot.state.files:
            copy = f"{top}/files{entry.path}"
            try:
                with open(copy, "rb") as file:
                    if hashlib.sha256(file.read()).hexdigest() != entry.sha256:
                        found.append(f"{copy} has changed since it was kept (sha256)")
            except OSError as exc:
                found.append(f"{copy}: {exc.strerror}")
        if target_of(f"{top}/model") != slot.state.model:
            found.append(f"{top}/model does not lead to {slot.state.model}")
        return found

    def whole(self, digest: str) -> Slot:
        """Return an undamaged slot. Raises SlotError that describes the damage."""
        try:
            slot = self.read(digest)
            problems = self.damage(slot)
        except SlotError as exc:
            slot, problems = None, [f"{os.path.join(self.directory, digest)}: {exc}"]
        if slot is None or problems:
            raise SlotError(f"the slot {digest} is damaged: {'; '.join(problems)}")
        return slot

    def all(self) -> list[tuple[str, Slot | None, list[str]]]:
        """Return every slot by its digest with its faults; None instead of a Slot for an unusable slot.json."""
        found: list[tuple[str, Slot | None, list[str]]] = []
        for digest in self.digests():
            try:
                slot = self.read(digest)
                found.append((digest, slot, self.damage(slot)))
            except SlotError as exc:
                found.append((digest, None, [str(exc)]))
        return found

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the slots: two runs would mix up good and previous. Raises SlotError where another run holds them."""
        make_directories(self.directory, 0o700)
        os.chmod(self.directory, 0o700)
        try:
            # _clear removes names with a dot.
            with locked(os.path.join(self.directory, "lock"), wait=0):
                yield
        except LockedError as exc:
            raise SlotError(
                f"another run is working in {self.directory}: {exc.holder}; wait until it has ended"
            ) from exc

    def keep(self, state: SlotState, plan: dict[str, Any], record: dict[str, Any] | None, most: int) -> None:
        """Record the installed state as the good one; the caller holds the lock. Raises SlotError, OSError."""
        digest, good = state.digest, self.good
        known = self._known(digest)
        slot = Slot(
            digest,
            state,
            plan or (known.plan if known else {}),
            (known.record if known else {}) if record is None else record,
            known.kept_at if known and good == digest else utc(time.time()),
            # The stamp that the weights had when the state was kept stays valid; a state that was only prepared has not
            # been checked yet.
            known.stamped if known and known.kept_at else self._is_stamped(state),
        )
        self._clear()
        if known is None:
            self._build(slot)
        elif document(known) != document(slot):
            self._write_document(slot)
        if good != digest:
            # In this order an interrupted run leaves the old state as the good one.
            if good:
                self._point(PREVIOUS, good)
            self._point(GOOD, digest)
        for old in self._superfluous(most):
            self._remove(old)

    def add(self, slot: Slot, contents: Mapping[str, bytes]) -> None:
        """Create the slot of a state that is not installed; the caller holds the lock. The links do not change.

        Raises SlotError, OSError.
        """
        self._clear()
        if self._known(slot.digest) is None:
            self._build(slot, contents)

    def would_change(self, state: SlotState, plan: dict[str, Any], record: dict[str, Any] | None, most: int) -> bool:
        """Return whether keep would change a slot or a link."""
        known = self._known(state.digest)
        if known is None or self.good != state.digest or self._superfluous(most):
            return True
        return (plan or known.plan) != known.plan or (known.record if record is None else record) != known.record

    def _superfluous(self, most: int) -> list[str]:
        ages = {digest: slot.kept_at if slot else "" for digest, slot, _damage in self.all()}
        return surplus(ages, self.good, self.previous, most)

    def _known(self, digest: str) -> Slot | None:
        try:
            return self.whole(digest)
        except SlotError:
            return None

    def _is_stamped(self, state: SlotState) -> bool:
        return os.path.exists(os.path.join(self.host.at(state.model), ".verified.json"))

    def _clear(self) -> None:
        """Remove the remains of a killed run."""
        for name in listed(self.directory):
            if name.startswith("."):
                path = os.path.join(self.directory, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    remove_tree(path)
                else:
                    os.unlink(path)

    def _build(self, slot: Slot, contents: Mapping[str, bytes] | None = None) -> None:
        """Create a slot; it gets its final name once all of it is on the disk.

        ``contents`` are the files of a state that is not installed, by path.
        """
        partial, final = (os.path.join(self.directory, name) for name in (f".{slot.digest}.partial", slot.digest))
        try:
            make_directory(partial, 0o700)
            for entry in slot.state.files:
                copy = f"{partial}/files{entry.path}"
                make_directories(os.path.dirname(copy), 0o700)
                content = self._installed(entry.path) if contents is None else contents[entry.path]
                if hashlib.sha256(content).hexdigest() != entry.sha256:
                    raise SlotError(f"{entry.path} was changed during the run; run this again")
                create(copy, content, 0o600)
            os.symlink(slot.state.model, f"{partial}/model")
            create(f"{partial}/slot.json", document(slot), 0o600)
            for parent, _directories, _names in os.walk(partial):
                os.chmod(parent, 0o700)
            sync_tree(partial)
        except BaseException:
            remove_tree(partial, ignore_errors=True)
            raise
        if os.path.lexists(final):
            # A damaged slot has this name, and rename cannot replace a directory that is not empty.
            os.rename(final, os.path.join(self.directory, f".{slot.digest}.damaged"))
        os.rename(partial, final)
        sync_directory(self.directory)
        self._clear()

    def _installed(self, path: str) -> bytes:
        with open(self.host.at(path), "rb") as file:
            return file.read()

    def _write_document(self, slot: Slot) -> None:
        publish(os.path.join(self.directory, slot.digest, "slot.json"), document(slot), 0o600)

    def _point(self, which: str, digest: str) -> None:
        publish_link(digest, os.path.join(self.directory, which))

    def _remove(self, digest: str) -> None:
        doomed = os.path.join(self.directory, f".{digest}.removed")
        os.rename(os.path.join(self.directory, digest), doomed)
        remove_tree(doomed)


def is_full(exc: OSError) -> bool:
    """Return whether the error means a full disk or quota."""
    return exc.errno in (errno.ENOSPC, errno.EDQUOT)
