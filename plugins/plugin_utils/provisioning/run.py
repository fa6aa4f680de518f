# SPDX-License-Identifier: GPL-3.0-or-later
"""Take all hosts of a run from where they are to a system that has proved itself, in one process.

One request lists all nodes; each host's next step follows from its own node (states.py). What one host's step costs,
the others do not wait for.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Mapping, Sequence

from ..redfish.ask import Bmc
from .ironic import BusyError, IronicError
from .job import Job, Settings, World
from .node import config_drive, description, new_node, order_of, patch
from .preflight import check_hosts
from .record import Record
from .server import read_power
from .states import (
    ABORT,
    CHECK,
    CREATE,
    DESCRIBE_AND_DEPLOY,
    FAIL,
    MANAGE,
    PROVIDE,
    UNDEPLOY,
    Node,
    Step,
    next_step,
)

AT_ONCE = 32
# How often the BMCs of servers that are being written are asked for their power, and for how long Ironic may be silent.
POWER_SECONDS = 20
IRONIC_SECONDS = 180


def provision(jobs: Sequence[Job], settings: Settings, world: World, check: bool) -> None:
    """Carry out the jobs; each ends with an outcome, or in check mode with a plan."""
    check_hosts(jobs, settings.ironic.nodes(), world)
    for job in jobs:
        if job.outcome == "failed":
            _show(job, world, f"refused before anything was written: {job.text}")
    if check:
        return
    open_jobs = [job for job in jobs if not job.outcome]
    for job in open_jobs:
        job.progress.since = world.now()
    _Loop(settings, world).run(open_jobs)


class _Loop:
    """Polls Ironic until every job has its outcome."""

    def __init__(self, settings: Settings, world: World) -> None:
        self._settings = settings
        self._world = world
        self._answered = world.now()
        self._powers_read = world.now()

    def run(self, jobs: Sequence[Job]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while True:
                open_jobs = [job for job in jobs if not job.outcome]
                if not open_jobs:
                    return
                nodes = self._nodes(open_jobs)
                if nodes is not None:
                    self._read_powers(open_jobs, nodes)
                    own = [nodes.get(job.entry.host) for job in open_jobs]
                    list(pool.map(self._advance, open_jobs, own))
                self._world.sleep(self._settings.poll)

    def _nodes(self, jobs: Sequence[Job]) -> Mapping[str, Any] | None:
        """Return the nodes; None while Ironic does not answer, which systemd starts again."""
        try:
            nodes = self._settings.ironic.nodes()
        except BusyError as exc:
            if self._world.now() - self._answered > IRONIC_SECONDS:
                for job in jobs:
                    job.fail(
                        job.progress.phase, f"{exc}, for {IRONIC_SECONDS} s; run again when it does, the order goes on"
                    )
            return None
        except IronicError as exc:
            for job in jobs:
                job.fail(job.progress.phase, str(exc))
            return None
        self._answered = self._world.now()
        return nodes

    def _read_powers(self, jobs: Sequence[Job], nodes: Mapping[str, Any]) -> None:
        """Ask the BMCs for the power of servers that are being written: Ironic does not look at it meanwhile."""
        now = self._world.now()
        if now - self._powers_read < POWER_SECONDS:
            return
        asked = [job for job in jobs if job.server and job.progress.phase != "boot"]
        bmcs = [self._power_question(job) for job in asked]
        for job, answer in zip(asked, self._world.ask_bmcs(bmcs) if bmcs else []):
            progress = job.progress
            if answer.found is None:
                progress.silent_since = now if progress.silent_since is None else progress.silent_since
                continue
            progress.silent_since = None
            node = nodes.get(job.entry.host)
            waits = bool(node) and Node.from_dict(node or {}).state == "wait call-back"
            off = waits and answer.found == "Off"
            progress.off_since = (now if progress.off_since is None else progress.off_since) if off else None
        self._powers_read = self._world.now()

    def _power_question(self, job: Job) -> Bmc:
        path = job.server.path if job.server else ""
        entry, account = job.entry, job.account
        return Bmc(entry.host, entry.bmc, account.username, account.password, lambda: read_power(path))

    def _advance(self, job: Job, node: Mapping[str, Any] | None) -> None:
        """Take the next step of one host; a failure ends its job only."""
        now = self._world.now()
        step = next_step(
            Node.from_dict(node) if node is not None else None, job.progress, now, self._settings.deadlines
        )
        before = job.progress.phase
        if job.progress.enter(step.phase, now):
            took = f" ({before} took {job.progress.seconds[before]:g} s)" if before else ""
            _show(job, self._world, step.phase + took)
        try:
            self._carry_out(job, step)
        except BusyError:
            return  # the next poll shows what has become of it
        except IronicError as exc:
            self._fail(job, step.phase, str(exc))
        except Exception as exc:  # a job must not end the others; its text may hold what a server sent
            self._fail(job, step.phase, f"unexpected {type(exc).__name__}")

    def _carry_out(self, job: Job, step: Step) -> None:
        ironic, host = self._settings.ironic, job.entry.host
        if step.do == FAIL:
            self._fail(job, step.phase, step.reason)
        elif step.do == CREATE:
            ironic.create({**new_node(job.entry), **self._description(job, "")}, job.entry.mac)
        elif step.do == MANAGE:
            ironic.change(host, patch(self._description(job, "")))
            ironic.order(host, "manage")
            job.progress.managed += 1
        elif step.do == PROVIDE:
            ironic.order(host, "provide")
        elif step.do == DESCRIBE_AND_DEPLOY:
            self._deploy(job)
        elif step.do == ABORT:
            _show(job, self._world, f"aborting: {step.reason}")
            ironic.order(host, "abort")
            if step.cut:
                job.progress.cuts += 1
                job.progress.off_since = None
            else:
                job.progress.given_up = step.reason
        elif step.do == UNDEPLOY:
            ironic.order(host, "deleted")
            job.progress.erased = True
        elif step.do == CHECK:
            self._check(job)

    def _fail(self, job: Job, phase: str, reason: str) -> None:
        job.progress.enter(phase, self._world.now())
        job.fail(phase, reason)
        _show(job, self._world, f"failed in the phase {phase}: {reason}")

    def _description(self, job: Job, order: str) -> dict[str, Any]:
        path = job.server.path if job.server else job.entry.system
        return description(job.entry, path, job.account, self._settings.bmc_ca, job.image, order, job.released)

    def _deploy(self, job: Job) -> None:
        """Note the order, then give it: a run that is killed in between has noted an order that nothing follows."""
        ironic, entry = self._settings.ironic, job.entry
        key = self._world.make_host_key(entry.host)
        order = order_of(entry, job.image, key.public)
        serial = job.server.serial if job.server else ""
        job.record = Record(order, key.public, serial, entry.disk, job.image.name, job.image.build_id)
        self._settings.record_file.note(entry.host, job.record)
        ironic.change(entry.host, patch(self._description(job, order)))
        if entry.mac not in ironic.ports(entry.host):
            ironic.add_port(entry.host, entry.mac)
        job.progress.order, job.progress.expected = order, True
        ironic.order(
            entry.host, "active", config_drive(entry, order, key, self._settings.ssh_keys, self._settings.user)
        )
        job.progress.deploys += 1

    def _check(self, job: Job) -> None:
        """End the job if its new system answers, and is the one that was ordered."""
        proof = self._world.prove(job.entry, job.record.host_key)
        job.proof = proof
        if proof.reason or not proof.settled:
            return
        if proof.order != job.record.order or proof.build_id != job.record.build_id:
            self._fail(
                job, "boot", f"the system at {job.entry.address.ip} has build {proof.build_id!r}, expected "
                f"{job.record.build_id!r} of image {job.image.name}; the provisioner's list of images is out of date"
            )  # fmt: skip
            return
        self._world.trust(self._settings.known_hosts, job.names, job.record.host_key)
        self._settings.record_file.finish(job.entry.host, self._world.date())
        if not self._settings.keep_node:
            # Ironic never acts on a host that serves, and its database forgets the BMC's password.
            self._settings.ironic.forget(job.entry.host)
        job.progress.enter("done", self._world.now())
        job.record = replace(job.record, done="yes")
        job.finish("written", f"answers SSH with build {proof.build_id}, after {_total(job)} s")
        _show(job, self._world, job.text)


def _total(job: Job) -> int:
    return round(sum(job.progress.seconds.values()))


def _show(job: Job, world: World, text: str) -> None:
    world.show(f"{job.entry.host}: {text}")
