# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove what a plan lists. The next run completes a run that was killed."""

from __future__ import annotations

import contextlib
import errno
import os
from functools import partial
from typing import Callable, Iterable, Mapping

from ..common.files_host import LockedError, listed, locked, sync_directory
from ..common.foreign_trees_host import remove_tree
from ..common.mounts_host import MountedError, check_unmounted
from ..instance.marks import CACHE_DIR, STATE_DIR
from ..slots.restore_host import Service
from ..weights.owners_host import Owners
from ..weights.retention_host import ABANDONED, REVISION, ROOTS_ALONE, OldDirectory, remove_old
from .engine_host import CommandResult
from .inspect_host import Inspection, instance_paths
from .model import BASE, ENCODINGS, ENVIRONMENT, IMAGE, INSTANCE, MODEL, PACKAGES, SERVICE, USER, Item, RemovalError
from .packages import afterwards, packages_of
from .places import SERVICES, fixed_paths

# Empty files that hold a lock while something works in a directory.
LOCK_FILES = (".lock", "tune.json.lock")
KEEPALIVED = "/etc/keepalived/keepalived.conf"
# The first line of the role gateway's keepalived.conf has this; one without it is the site's own.
KEEPALIVED_MARK = "role baremetal.inference.gateway"


class Removal:
    """Removes items of a plan from the host of an inspection; ``kept`` are sentences about what was not removed."""

    def __init__(self, inspection: Inspection, run: Callable[..., CommandResult]) -> None:
        self.inspection, self.at, self._run = inspection, inspection.at, partial(run, handle_exceptions=False)
        self._owners = Owners(self.at(inspection.site.weights_root))
        self.removed: list[Item] = []
        self.kept: list[str] = []
        self._do: Mapping[str, Callable[[Item], bool]] = {
            INSTANCE: self._instance,
            SERVICE: self._service,
            MODEL: self._model,
            ENVIRONMENT: self._environment,
            IMAGE: self._image,
            ENCODINGS: self._path,
            BASE: self._path,
            PACKAGES: self._packages,
            USER: self._user,
        }

    def remove(self, items: Iterable[Item]) -> None:
        """Remove the items in order, and record those that are removed. Raises RemovalError, SlotError, OSError."""
        for item in items:
            try:
                gone = self._do[item.kind](item)
            except MountedError as exc:
                self.kept.append(f"{item.target} stays: {exc.mount} is mounted there")
                gone = False
            if gone:
                self.removed.append(item)

    def tidy(self) -> None:
        """Remove the directories of the roles in which nothing is left."""
        site = self.inspection.site
        for directory in (site.weights_root, site.venv_root, site.encodings_dir, CACHE_DIR, STATE_DIR):
            if self._remove_empty(directory):
                self.removed.append(Item(BASE, directory, directory))

    def _instance(self, item: Item) -> bool:
        service = Service(item.name, self._run)
        service.stop()
        service.disable()
        if Service(item.name, self._run).is_up:
            raise RemovalError(f"{service.unit} runs though it was stopped; stop it by hand and run this again")
        self.inspection.engines.remove_container(f"vllm-{item.name}")
        paths = instance_paths(item.name)
        units = [path for path in paths if path.startswith(("/etc/systemd/", "/etc/containers/"))]
        gone = [self._remove_path(path) for path in units]
        if any(gone):
            service.reload()
        # A unit that has failed stays in systemd's memory.
        self._systemctl("reset-failed", service.unit)
        for path in paths[len(units) :]:
            self._remove_path(path)
        return True

    def _service(self, item: Item) -> bool:
        found = next(service for service in SERVICES if service.role == item.target)
        paths = [path for path in fixed_paths(found.role) if path != found.marker]
        stopped = list(found.stopped)
        if found.role == "gateway" and not self._is_ours(KEEPALIVED):
            paths.remove(KEEPALIVED)
            stopped.remove("keepalived.service")
        for unit in stopped:
            # A unit that an earlier run has removed, or that was never installed.
            if self._systemctl("cat", unit) == 0 and self._systemctl("disable", "--now", unit):
                raise RemovalError(f"systemctl disable --now {unit} failed; see systemctl status {unit}")
        for path in paths:
            self._remove_path(path)
        self._systemctl("daemon-reload")
        for unit in found.restarted:
            self._systemctl("try-restart", unit)
        self._remove_path(found.marker)
        for directory in {os.path.dirname(path) for path in (*paths, found.marker)}:
            if directory.endswith((".service.d", "/haproxy/certs")):
                self._remove_empty(directory)
        self._systemctl("daemon-reload")
        return True

    def _model(self, item: Item) -> bool:
        path = self.at(item.target)
        directory, name = os.path.split(path)
        is_lock = listed(path) == [".lock"]
        exposure = self._owners.exposure(path if is_lock else directory)
        if exposure:
            self.kept.append(f"{item.target} stays: another user can change it ({exposure}); {ROOTS_ALONE}")
            return False
        if is_lock:
            self._tidy_model(path)
            return True
        used = self._users(item.target)
        if used:
            self.kept.append(f"{item.target} stays: {', '.join(used)} uses it")
            return False
        kind = ABANDONED if name.startswith(".") else REVISION
        gone = remove_old(OldDirectory(path, kind, item.size), self._owners)
        if not gone and os.path.lexists(path):
            self.kept.append(f"{item.target} stays: another run is working in {os.path.dirname(item.target)}")
            return False
        self._tidy_model(directory)
        return gone

    def _tidy_model(self, directory: str) -> None:
        """Remove the lock and the directories of a model that has nothing else left."""
        if set(listed(directory)) - {".lock"}:
            return
        with contextlib.suppress(LockedError, OSError):
            with locked(os.path.join(directory, ".lock"), wait=0):
                os.unlink(os.path.join(directory, ".lock"))
            os.rmdir(directory)
            os.rmdir(os.path.dirname(directory))

    def _environment(self, item: Item) -> bool:
        path = self.at(item.target)
        used = self._users(item.target)
        if used:
            self.kept.append(f"{item.target} stays: {', '.join(used)} uses it")
            return False
        top, name = os.path.split(path)
        doomed = path
        check_unmounted(path)
        if not name.startswith("."):
            # After this rename, no unit can start from it.
            doomed = os.path.join(top, f".{name}.removed")
            remove_tree(doomed, ignore_errors=True)
            os.rename(path, doomed)
            sync_directory(top)
        remove_tree(doomed)
        return True

    def _image(self, item: Item) -> bool:
        self.inspection.engines.remove_image(item.detail, item.target)
        return True

    def _packages(self, item: Item) -> bool:
        switch, host = item.name, self.inspection
        users = host.users_of(switch, ())
        if users:
            self.kept.append(f"the {switch.replace('_', ' ')} stays: {', '.join(users)}")
            return False
        names = packages_of(switch, host.packages.installed)
        if names:
            host.packages.remove(names)
        paths = [path for path in host.settings(switch) if self._remove_path(path)]
        for path in paths:
            if os.path.dirname(path).endswith(".service.d"):
                self._remove_empty(os.path.dirname(path))
        self._systemctl("daemon-reload")
        for words in afterwards(host.packages.manager, paths):
            host.packages.call(words)
        return True

    def _path(self, item: Item) -> bool:
        return self._remove_path(item.target)

    def _user(self, item: Item) -> bool:
        rc, out, err = self._run(["userdel", item.target])
        # 6: no such user; 8: processes of it run; 12: no mailbox to remove.
        if rc == 8:
            self.kept.append(f"the user {item.target} stays: processes of it still run")
            return False
        if rc not in (0, 6, 12):
            raise RemovalError(f"userdel {item.target}: {(err or out).strip()}")
        # userdel takes the group along only with USERGROUPS_ENAB in /etc/login.defs. groupdel refuses a group that is
        # another user's own.
        self._run(["groupdel", item.target])
        return rc != 6

    def _users(self, path: str) -> list[str]:
        """Return the processes that use a directory now."""
        return [each.description for each in self.inspection.processes() if each.uses(self.at(path))]

    def _remove_path(self, path: str) -> bool:
        """Remove a file, a link or a directory; return whether there was one."""
        real = self.at(path)
        directory, name = os.path.split(real)
        # Of writers that were killed; such a file may hold secrets.
        for left in listed(directory):
            if left.startswith(f".{name[:80]}.") and left.endswith((".partial", ".restored")):
                # Its writer may live after all.
                with contextlib.suppress(IsADirectoryError, FileNotFoundError):
                    os.unlink(os.path.join(directory, left))
        if not os.path.lexists(real):
            return False
        try:
            if os.path.isdir(real) and not os.path.islink(real):
                remove_tree(real)
            else:
                os.unlink(real)
        except OSError as exc:
            if exc.errno != errno.EBUSY:
                raise
            # Or a mount was moved into it meanwhile.
            problem = f"{exc.mount} is mounted there" if isinstance(exc, MountedError) else str(exc)
            self.kept.append(f"{path} stays: {problem}")
            return False
        sync_directory(os.path.dirname(real))
        return True

    def _remove_empty(self, directory: str) -> bool:
        path = self.at(directory)
        try:
            left = listed(path)
            if set(left) <= set(LOCK_FILES):
                for name in left:
                    os.unlink(os.path.join(path, name))
            os.rmdir(path)
        except OSError:
            return False
        return True

    def _is_ours(self, path: str) -> bool:
        try:
            with open(self.at(path), encoding="utf-8", errors="replace") as file:
                return KEEPALIVED_MARK in file.read()
        except OSError:
            return False

    def _systemctl(self, *words: str) -> int:
        try:
            return self._run(["systemctl", *words])[0]
        except OSError:
            return 0
