# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove hosts that provision.yml wrote: wipe the named disks, switch them off, forget them (loop.py, removal.py)."""

from dataclasses import replace
from typing import Any, Mapping, Sequence

from .job import Job, Settings, World
from .locks import Lock, describe_removal, removal_refusal
from .loop import Loop, show, total
from .node import description, patch, wipe_order_of, wipe_steps
from .preflight import listen, read_servers
from .removal import CLEAN_FAILED, WIPING, next_removal_step
from .states import ABORT, DONE, WAIT, WIPE, Node, Step


def deprovision(jobs: Sequence[Job], settings: Settings, world: World, check: bool) -> None:
    """Carry out the jobs; each ends with an outcome, or in check mode with a plan."""
    check_removals(jobs, settings.ironic.nodes(), world)
    _Removing(settings, world).run(jobs, check)


def check_removals(jobs: Sequence[Job], nodes: Mapping[str, Mapping[str, Any]], world: World) -> None:
    """Decide for each job whether it is absent, refused or planned."""
    listen(jobs, world)
    for job in jobs:
        if not job.record.order and not job.released:
            again = f"to wipe this server all the same: -e provision_release={job.entry.host}"
            job.finish("absent", f"has no record of provision.yml, so nothing is done; {again}")
    for job in read_servers(jobs, world):
        _judge(job, nodes.get(job.entry.host))


def _judge(job: Job, node: Mapping[str, Any] | None) -> None:
    job.progress.order = job.record.removing
    known = Node.from_dict(node or {})
    own = bool(known.order) and known.order == job.record.removing and known.state in (*WIPING, CLEAN_FAILED)
    if not job.server:
        return
    lock = Lock(answers=job.answers, released=job.released, at_ironic=own, deed="removed")
    serial = {"bmc_serial": job.record.bmc_serial}
    refused = removal_refusal(job.entry, job.server, serial, lock, job.disks)
    if refused:
        job.fail("bmc", refused)
    else:
        job.plan = describe_removal(job.entry, job.server, job.disks, job.secure)


class _Removing(Loop):
    """Wipes disks, and switches servers off."""

    def next_step(self, job: Job, node: Node | None, now: float) -> Step:
        return next_removal_step(node, job.progress, now, self.settings.deadlines, bool(job.disks))

    def carry_out(self, job: Job, step: Step) -> None:
        ironic, host = self.settings.ironic, job.entry.host
        if step.do == WIPE:
            self._wipe(job)
        elif step.do == WAIT and step.phase == "wipe":
            job.progress.wipes = max(job.progress.wipes, 1)  # also one that an earlier run ordered
        elif step.do == ABORT:
            show(job, self.world, f"aborting: {step.reason}")
            ironic.order(host, "abort")
            job.progress.given_up = f"{step.reason}; run again"
        elif step.do == DONE:
            self._forget(job)
        else:
            super().carry_out(job, step)

    def description(self, job: Job, order: str = "") -> dict[str, Any]:
        path = job.server.path if job.server else job.entry.system
        # Who allowed to write over a serving host also allowed it for the host's own mark on a disk.
        released = job.released or bool(job.record.order)
        return description(job.entry, path, job.account, self.settings.bmc_ca, order, released)

    def _wipe(self, job: Job) -> None:
        """Note the order, then give it."""
        ironic, entry = self.settings.ironic, job.entry
        order = wipe_order_of(entry, job.disks, job.secure)
        job.record = replace(job.record, removing=order)
        self.settings.record_file.note(entry.host, job.record)
        ironic.change(entry.host, patch(self.description(job, order)))
        if entry.mac not in ironic.ports(entry.host):
            ironic.add_port(entry.host, entry.mac)
        job.progress.order = order
        ironic.clean(entry.host, wipe_steps(job.disks, job.secure))
        job.progress.wipes += 1

    def _forget(self, job: Job) -> None:
        """Forget the host everywhere; the record last, because it says that there is something to forget."""
        self.settings.ironic.forget(job.entry.host)
        self.world.trust(self.settings.known_hosts, job.names, "")
        self.settings.record_file.remove(job.entry.host)
        job.progress.enter("done", self.world.now())
        wiped = f"{'completely ' if job.secure else ''}wiped {', '.join(job.disks)}" if job.disks else "wiped no disk"
        job.finish("removed", f"is switched off and forgotten, {wiped}, after {total(job)} s")
        show(job, self.world, job.text)
