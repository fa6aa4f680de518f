# SPDX-License-Identifier: GPL-3.0-or-later
"""Poll Ironic for all hosts of a run in one process, and take each to its outcome.

One request lists all nodes; each host's next step follows from its own node (states.py, removal.py). What one host's
step costs, the others do not wait for.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Mapping, Sequence

from ..redfish.ask import Bmc
from .ironic import BusyError, IronicError
from .job import Job, Settings, World
from .node import new_node, patch
from .server import read_power
from .states import CREATE, FAIL, MANAGE, POWER_OFF, RENEW, STOP, WAITS_FOR_AGENT, Node, Step

AT_ONCE = 32
# How long a system may take to stop, and a server to switch its power (seconds).
STOP_SECONDS = 120
OFF_SECONDS = 60
# How often the BMCs of servers that are being written are asked for their power, and for how long Ironic may be silent.
POWER_SECONDS = 20
IRONIC_SECONDS = 180


def show(job: Job, world: World, text: str) -> None:
    """Show a line about a host."""
    world.show(f"{job.entry.host}: {text}")


def total(job: Job) -> int:
    """Return the seconds of all phases of a job."""
    return round(sum(job.progress.seconds.values()))


class Loop:
    """Polls Ironic until every job has its outcome. A subclass decides what is next for a job, and carries it out."""

    def __init__(self, settings: Settings, world: World) -> None:
        self.settings = settings
        self.world = world
        self._answered = world.now()
        self._powers_read = world.now()

    def next_step(self, job: Job, node: Node | None, now: float) -> Step:
        """Return the next step of a job."""
        raise NotImplementedError

    def description(self, job: Job, order: str = "") -> dict[str, Any]:
        """Return the fields of a job's node for one order."""
        raise NotImplementedError

    def before_stop(self, job: Job) -> None:
        """Note what a system is stopped for."""

    def carry_out(self, job: Job, step: Step) -> None:
        """Carry out a step that several loops have."""
        ironic, host = self.settings.ironic, job.entry.host
        if step.do == FAIL:
            self.fail(job, step.phase, step.reason)
        elif step.do == CREATE:
            ironic.create({**new_node(job.entry), **self.description(job)}, job.entry.mac)
        elif step.do == RENEW:
            ironic.forget(host)
        elif step.do == MANAGE:
            ironic.change(host, patch(self.description(job)))
            ironic.order(host, "manage")
            job.progress.managed += 1
        elif step.do == STOP:
            self.before_stop(job)
            ironic.power(host, "soft power off", STOP_SECONDS)
            job.progress.stops += 1
        elif step.do == POWER_OFF:
            ironic.power(host, "power off", OFF_SECONDS)

    def run(self, jobs: Sequence[Job], check: bool = False) -> None:
        """Show what was refused, and take all other jobs to their outcomes; in check mode they only have plans."""
        for job in jobs:
            if job.outcome == "failed":
                show(job, self.world, f"refused before anything was changed: {job.text}")
            job.progress.since = self.world.now()
        if check:
            return
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
                self.world.sleep(self.settings.poll)

    def _nodes(self, jobs: Sequence[Job]) -> Mapping[str, Any] | None:
        """Return the nodes; None while Ironic does not answer, which systemd starts again."""
        try:
            nodes = self.settings.ironic.nodes()
        except BusyError as exc:
            if self.world.now() - self._answered > IRONIC_SECONDS:
                for job in jobs:
                    job.fail(
                        job.progress.phase, f"{exc}, for {IRONIC_SECONDS} s; run again when it does, the order goes on"
                    )
            return None
        except IronicError as exc:
            for job in jobs:
                job.fail(job.progress.phase, str(exc))
            return None
        self._answered = self.world.now()
        return nodes

    def _read_powers(self, jobs: Sequence[Job], nodes: Mapping[str, Any]) -> None:
        """Ask the BMCs for the power of servers that are being written: Ironic does not look at it meanwhile."""
        now = self.world.now()
        if now - self._powers_read < POWER_SECONDS:
            return
        asked = [job for job in jobs if job.server and job.progress.phase != "boot"]
        bmcs = [self._power_question(job) for job in asked]
        for job, answer in zip(asked, self.world.ask_bmcs(bmcs) if bmcs else []):
            progress = job.progress
            if answer.found is None:
                progress.silent_since = now if progress.silent_since is None else progress.silent_since
                continue
            progress.silent_since = None
            node = nodes.get(job.entry.host)
            waits = bool(node) and Node.from_dict(node or {}).state in WAITS_FOR_AGENT
            off = waits and answer.found == "Off"
            progress.off_since = (now if progress.off_since is None else progress.off_since) if off else None
        self._powers_read = self.world.now()

    def _power_question(self, job: Job) -> Bmc:
        path = job.server.path if job.server else ""
        entry, account = job.entry, job.account
        return Bmc(entry.host, entry.bmc, account.username, account.password, lambda: read_power(path))

    def _advance(self, job: Job, node: Mapping[str, Any] | None) -> None:
        """Take the next step of one host; a failure ends its job only."""
        now = self.world.now()
        step = self.next_step(job, Node.from_dict(node) if node is not None else None, now)
        before = job.progress.phase
        if job.progress.enter(step.phase, now):
            took = f" ({before} took {job.progress.seconds[before]:g} s)" if before else ""
            show(job, self.world, step.phase + took)
        try:
            self.carry_out(job, step)
            job.progress.refused = ""
        except BusyError as exc:
            job.progress.refused = str(exc)  # the next poll shows what has become of it
        except IronicError as exc:
            self.fail(job, step.phase, str(exc))
        except Exception as exc:  # a job must not end the others; its text may hold what a server sent
            self.fail(job, step.phase, f"unexpected {type(exc).__name__}")

    def fail(self, job: Job, phase: str, reason: str) -> None:
        """End a job with the reason of its failure."""
        job.progress.enter(phase, self.world.now())
        job.fail(phase, reason)
        show(job, self.world, f"failed in the phase {phase}: {reason}")
