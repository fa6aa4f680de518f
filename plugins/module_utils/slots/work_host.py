# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep what an instance serves with as a slot, and restore a slot."""

from __future__ import annotations

from typing import Any

from ..common.kinds import show_value
from ..common.module import Module
from .host import Slots, is_full
from .installed_host import Host, turn_of
from .restore_host import Engine, Restore, Service, describe, lacking, stale
from .state import NAME, SlotError, SlotState, choose, link_of, summarize_plan
from .status_host import status_of, status_of_host


class Work:
    """What the module does for one instance."""

    def __init__(self, module: Module, host: Host, engine: Engine, name: str) -> None:
        self.module, self.host, self.engine, self.name = module, host, engine, name
        self.slots = Slots(host, name)
        self.service = Service(name, module.run_command)

    def status(self) -> dict[str, Any]:
        """Return the installed and the kept states."""
        params = self.module.params
        plan = params["plans"].get(self.name)
        return status_of(self.host, self.name, self.slots, self.service, self.engine, plan, params["keep"])

    def keep(self) -> dict[str, Any]:
        """Keep the installed state as the good one."""
        params = self.module.params
        state, before = self.host.state(self.name), self.slots.good
        self._refuse_unproven(state)
        plan = summarize_plan(params["plan"]) if params["plan"] else {}
        arguments = (state, plan, params["record"], params["keep"])
        rewritten = self.module.check_mode and params["rewritten"]
        # This run writes other files. If the installed ones differ from the good state, they were changed by hand, and
        # the run restores the good state; otherwise it makes a new one.
        changed = before in ("", state.digest) if rewritten else self.slots.would_change(*arguments)
        if changed and not self.module.check_mode:
            try:
                with self.slots.locked():
                    self.slots.keep(*arguments)
            except OSError as exc:
                what = "the disk is full; make room there" if is_full(exc) else "check that file system"
                raise SlotError(
                    f"{self.slots.directory}: {exc.strerror}: {what}. The earlier slots are unchanged, and "
                    "the instance keeps running"
                ) from exc
        after = state.digest if not rewritten else "(what this run writes)" if changed else before
        return {"changed": changed, **self.status(), "diff": describe(self.slots.directory, before, after, [])}

    def _refuse_unproven(self, state: SlotState) -> None:
        missing = self.host.missing(self.name, state)
        # In check mode, the same run may be about to complete the host.
        if self.module.check_mode:
            return
        if missing:
            raise SlotError(
                f"{', '.join(missing)} missing, so the instance is incomplete; run site.yml on this host first. "
                "Nothing was kept"
            )
        if state.image and not state.image.id:
            raise SlotError(
                f"the image {state.image.ref} is not in the store of {state.image.engine} ({self.engine.trouble}), so "
                "a rollback to it would fail. Nothing was kept"
            )
        if not self.service.is_up:
            raise SlotError(
                f"{self.service.unit} is {self.service.description}, expected active: only what runs is kept as good"
            )
        if stale(self.host, self.slots, state, self.service, self.engine):
            _when, path = self.host.changed(self.name, state)
            raise SlotError(
                f"{self.service.unit} runs with older files or another image than those installed (newest: {path}); "
                "run site.yml, which restarts it. Nothing was kept"
            )

    def restore(self) -> dict[str, Any]:
        """Restore a kept state."""
        slots = self.slots
        digest = choose(self.module.params["to"], slots.good, slots.previous, slots.digests())
        slot = slots.whole(digest)
        missing = lacking(self.host, slot)
        if missing:
            raise SlotError(f"the slot {digest} cannot be restored: {'; '.join(missing)}. Nothing was changed")
        work = Restore(self.host, slots, slot, self.service, self.engine)
        if work.changed and not self.module.check_mode:
            with slots.locked():
                work.run()
            self.service = Service(self.name, self.module.run_command)
        return {
            "changed": work.changed,
            "differences": work.differences,
            **self.status(),
            "diff": describe(link_of(self.name), work.before.digest, digest, work.differences),
        }


def do(module: Module) -> dict[str, Any]:
    """Return the module's result. Raises SlotError."""
    name, state = module.params["instance"], module.params["state"]
    if module.params["keep"] < 1:
        raise SlotError(f"keep: found {module.params['keep']}, expected 1 or more")
    if name is not None and not NAME.match(name):
        raise SlotError(f"instance: found {show_value(name)}, expected a name such as chat")
    if name is None:
        found = status_of_host(module.run_command, module.params["root"], module.params["plans"], module.params["keep"])
        return {"changed": False, **found}
    engine = Engine(module.run_command)
    host = Host(module.params["root"], engine.image_id)
    work = Work(module, host, engine, name)
    if state == "kept":
        return work.keep()
    if state == "restored":
        return work.restore()
    return {"changed": False, **work.status(), "turn": turn_of(host)}
