# SPDX-License-Identifier: GPL-3.0-or-later
"""Restore a kept state of an instance from this host alone."""

from __future__ import annotations

import contextlib
import json
import os
from functools import partial
from typing import Any, Callable, Iterable, Tuple

from ..common.files_host import create, make_directories, publish_link, sync_directory, target_of
from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json
from ..instance.systemd import parse_properties
from ..vllm.files import QUADLET, extra_files, firewall_path, firewall_tables
from ..weights.files_host import MAX_STAMP_BYTES
from ..weights.plan import STAMP_NAME, parse_stamp
from .host import Slots, is_full
from .installed_host import Host
from .state import (
    Image,
    Slot,
    SlotError,
    SlotState,
    bare_id,
    differences,
    foreign_paths,
    is_stale,
    link_of,
    seconds_of,
    timestamp,
)

# Exit status, output and error output of a command.
CommandResult = Tuple[int, str, str]

_PROPERTIES = "LoadState,ActiveState,SubState,UnitFileState,MainPID,ExecMainStartTimestamp,NeedDaemonReload"


class Engine:
    """Ask the container engines of this host about images."""

    def __init__(self, run: Callable[..., CommandResult]) -> None:
        # Without this option Ansible ends the module where the command is missing.
        self._run = partial(run, handle_exceptions=False)
        self.trouble = ""

    def image_id(self, command: str, ref: str) -> str:
        """Return the id of an image, empty where the store has none or cannot be asked (``trouble`` says why)."""
        try:
            rc, out, err = self._run([command, "image", "inspect", ref])
        except OSError as exc:
            self.trouble = f"{command} cannot be run: {exc.strerror}"
            return ""
        if rc:
            self.trouble = f"{command} said: {err.strip()[-200:]}"
            return ""
        return str(json.loads(out)[0]["Id"])

    def running(self, command: str, name: str) -> str:
        """Return the id of the image of an instance's container, empty where the engine does not know it."""
        try:
            rc, out, _err = self._run([command, "inspect", "--format", "{{.Image}}", f"vllm-{name}"])
        except OSError:
            return ""
        # Looked up in the same way as the other ids, because a store may have several ids for one image.
        return self.image_id(command, out.strip()) if rc == 0 and out.strip() else ""

    def tag(self, image: Image) -> None:
        """Tag the image with its name again. Raises SlotError."""
        rc, out, err = self._run([image.engine, "tag", bare_id(image.id), image.ref])
        if rc:
            raise SlotError(f"{image.engine} tag {bare_id(image.id)} {image.ref}: {(err or out).strip()[-300:]}")


class Service:
    """The unit of an instance."""

    def __init__(self, name: str, run: Callable[..., CommandResult]) -> None:
        self.unit, self._run = f"vllm@{name}.service", partial(run, handle_exceptions=False)
        show = ["systemctl", "show", "--no-pager", "--timestamp=us+utc", f"--property={_PROPERTIES}", "--", self.unit]
        try:
            rc, out, err = self._run(show)
        except OSError:
            # Without systemd there is no process of it.
            rc, out, err = 0, "", ""
        if rc:
            raise SlotError(f"systemctl show {self.unit}: {(err or out).strip()}")
        self._seen = parse_properties(out)

    @property
    def is_up(self) -> bool:
        """Return whether the unit runs or is starting."""
        return self._seen.get("ActiveState") in ("active", "activating", "reloading") and not self._between()

    @property
    def is_at_rest(self) -> bool:
        """Return whether the unit neither runs, nor starts by itself in a moment, nor has yet to end."""
        return self._seen.get("ActiveState", "inactive") in ("inactive", "failed")

    @property
    def is_enabled(self) -> bool:
        """Return whether the unit starts at boot; podman generates those of quadlets with their links."""
        return self._seen.get("UnitFileState") in ("enabled", "generated")

    @property
    def needs_reload(self) -> bool:
        """Return whether systemd has not read the unit as it is on disk now."""
        return self._seen.get("LoadState") != "loaded" or self._seen.get("NeedDaemonReload") == "yes"

    @property
    def description(self) -> str:
        """Return the unit's state for a message."""
        return f"{self._seen.get('ActiveState') or 'unknown'} ({self._seen.get('SubState') or 'unknown'})"

    @property
    def started(self) -> float | None:
        """Return when the unit's process was started, None without a process."""
        return timestamp(self._seen.get("ExecMainStartTimestamp", "")) if self._has_process() else None

    def stop(self) -> None:
        """Stop the unit through the unit that started it, so that requests finish. Raises SlotError on failure."""
        if self._seen.get("LoadState") == "loaded":
            self._do("stop", self.unit)

    def disable(self) -> None:
        """Disable the start at boot; do nothing without a unit."""
        self._run(["systemctl", "disable", "--quiet", self.unit])

    def remove_firewall(self, table: str) -> None:
        """Remove a table of nftables; do nothing without nftables or the table."""
        with contextlib.suppress(OSError):
            self._run(["nft", "delete", "table", "inet", table])

    def reload(self) -> None:
        """Reload systemd."""
        self._do("daemon-reload")

    def start(self, enable: bool) -> None:
        """Start the unit, now and at boot, even after repeated failures; do not wait until it is ready."""
        if enable:
            self._do("enable", "--quiet", self.unit)
        self._run(["systemctl", "reset-failed", self.unit])
        self._do("start", "--no-block", self.unit)

    def _do(self, *words: str) -> None:
        rc, out, err = self._run(["systemctl", *words])
        if rc:
            raise SlotError(f"systemctl {' '.join(words)}: {(err or out).strip()[-300:]}")

    def _between(self) -> bool:
        return self._seen.get("SubState") == "auto-restart"

    def _has_process(self) -> bool:
        return self._seen.get("MainPID", "0") != "0"


def stale(host: Host, slots: Slots, state: SlotState, service: Service, engine: Engine) -> bool:
    """Return whether the unit runs with other files or another image than those installed."""
    kept = next((slot for digest, slot, _damage in slots.all() if slot and digest == state.digest), None)
    verified = seconds_of(kept.kept_at) if kept else None
    if is_stale(service.started, host.changed(slots.name, state)[0], verified):
        return True
    if service.started is None or state.image is None or not state.image.id:
        return False
    running = engine.running(state.image.engine, slots.name)
    return bool(running) and running != state.image.id


def stale_ones(run: Callable[..., CommandResult], names: Iterable[str], root: str = "/") -> list[str]:
    """Return the instances that run with other files or another image than those installed. Raises SlotError."""
    engine = Engine(run)
    host = Host(root, engine.image_id)
    return [name for name in names if stale(host, Slots(host, name), host.state(name), Service(name, run), engine)]


def lacking(host: Host, slot: Slot) -> list[str]:
    """Return what a slot needs and the host lacks, each as a clause; each item would need a download."""
    state = slot.state
    return [
        *_weights_trouble(host, slot),
        *_venv_trouble(host, state),
        *_image_trouble(host, state),
    ]


def _weights_trouble(host: Host, slot: Slot) -> list[str]:
    directory = host.at(slot.state.model)
    advice = "download that revision with the role weights"
    for name in ["config.json", *([STAMP_NAME] if slot.stamped else [])]:
        if not os.path.exists(os.path.join(directory, name)):
            return [f"weights: {os.path.join(directory, name)} is not there; {advice}"]
    if not slot.stamped:
        return []
    try:
        stamp = ForeignDirectory(os.path.realpath(directory)).read(STAMP_NAME, MAX_STAMP_BYTES)
        files = parse_stamp(load_json(stamp))
    except (OSError, ValueError) as exc:
        return [f"weights: {os.path.join(directory, STAMP_NAME)} cannot be read ({exc}); {advice}"]
    wrong = [name for name, (seen, _sha256) in files.items() if _size(os.path.join(directory, name)) != seen.size]
    return [f"weights: {', '.join(sorted(wrong))} of {directory} missing or incomplete; {advice}"] if wrong else []


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _venv_trouble(host: Host, state: SlotState) -> list[str]:
    if not state.venv:
        return []
    python = f"{host.at(state.venv)}/bin/python"
    if os.access(python, os.X_OK):
        return []
    return [f"environment: {python} is not there; set vllm_release back and run site.yml, which makes it again"]


def _image_trouble(host: Host, state: SlotState) -> list[str]:
    image = state.image
    if image is None or host.image_id(image.engine, image.ref) == image.id:
        return []
    if "@" not in image.ref and image.id and host.image_id(image.engine, image.id):
        return []
    return [
        f"image: the store of {image.engine} has no {image.ref} with the id {image.id or '(none)'}; "
        "pull or load it with the engine"
    ]


class Restore:
    """Restore a slot: ``differences`` lists the changes, ``run`` makes them."""

    def __init__(self, host: Host, slots: Slots, slot: Slot, service: Service, engine: Engine) -> None:
        self.host, self.slots, self.slot, self.service, self.engine = host, slots, slot, service, engine
        self.name = slots.name
        self.before = host.state(self.name)
        kept = {entry.path for entry in slot.state.files}
        # Those of a group are foreign to a state of one host alone, those of shared chips to one with its own.
        extras = [entry["path"] for entry in extra_files(self.name) if not entry["shared"]]
        foreign = [*foreign_paths(self.name, slot.state.kind), *(path for path in extras if path not in kept)]
        self.foreign = [path for path in foreign if os.path.lexists(host.at(path))]
        # Files shared by several instances may be right already. Writing them again would make the other instances
        # appear stale.
        self.wrong = [entry for entry in slot.state.files if host.entry(entry.path) != entry]
        right = {entry.path for entry in slot.state.files} - {entry.path for entry in self.wrong}
        found = differences(self.name, self.before, slot.state)
        self.differences = [path for path in found if path not in right]
        # Remains of another kind of unit, which systemd ignores and the state does not list.
        self.differences += [path for path in self.foreign if path not in self.differences]
        self.is_stale = stale(host, slots, self.before, service, engine)

    @property
    def changed(self) -> bool:
        """Return whether there is anything to do: files to restore, or a unit that runs with other files."""
        return bool(self.differences) or self.is_stale or not self.service.is_up

    def run(self) -> None:
        """Restore the slot. Raises SlotError and OSError; a failure before the stop has changed nothing."""
        staged = self._stage()
        try:
            self.service.stop()
            self._switch(staged)
        finally:
            self._forget(staged)
        if firewall_path(self.name) in self.foreign:
            for table in firewall_tables(self.name):
                self.service.remove_firewall(table)
        self.service.reload()
        self.service.start(enable=self.slot.state.kind != QUADLET)

    def _stage(self) -> dict[str, str]:
        """Write the differing files beside their destinations, so that a full disk fails before anything stops."""
        staged: dict[str, str] = {}
        try:
            for entry in self.slot.state.files:
                final = self.host.at(entry.path)
                directory, name = os.path.split(final)
                temporary = os.path.join(directory, f".{name}.restored")
                # Left by a run that was killed.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
                if entry not in self.wrong:
                    continue
                make_directories(directory)
                staged[final] = temporary
                with open(f"{self.slots.directory}/{self.slot.digest}/files{entry.path}", "rb") as file:
                    create(temporary, file.read(), 0o600)
                os.chown(temporary, entry.uid, entry.gid)
                os.chmod(temporary, int(entry.mode, 8))
        except OSError as exc:
            self._forget(staged)
            what = "the disk is full; make room there" if is_full(exc) else "check that file system"
            raise SlotError(f"{exc.filename or ''}: {exc.strerror}: {what}. Nothing was changed") from exc
        return staged

    def _switch(self, staged: dict[str, str]) -> None:
        state = self.slot.state
        if self.before.kind not in (state.kind, QUADLET):
            self.service.disable()
        # Install every unit before removing another kind's: an interruption never leaves the instance without a unit.
        for final, temporary in staged.items():
            os.rename(temporary, final)
            sync_directory(os.path.dirname(final))
        link = self.host.at(link_of(self.name))
        if target_of(link) != state.model:
            publish_link(state.model, link)
        for path in self.foreign:
            os.unlink(self.host.at(path))
            sync_directory(os.path.dirname(self.host.at(path)))
        if state.image and self.host.image_id(state.image.engine, state.image.ref) != state.image.id:
            self.engine.tag(state.image)

    def _forget(self, staged: dict[str, str]) -> None:
        for temporary in staged.values():
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def describe(name: str, before: str, after: str, paths: list[str]) -> dict[str, Any]:
    """Return a diff that names files and shows none of their contents."""
    lines = "".join(f"differs: {path}\n" for path in paths)
    return {
        "before_header": name,
        "after_header": name,
        "before": f"{before or '(none)'}\n{lines}",
        "after": f"{after}\n",
    }
