# SPDX-License-Identifier: GPL-3.0-or-later
"""Switch hosts whose chips are lost off and on again, the last resort of health (loop.py, cycle.py)."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Mapping, Sequence

from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.foreign_text import quote_foreign
from ...module_utils.common.kinds import show_value
from ..redfish.ask import Bmc
from .bmc_log import keep_logs, read_logs
from .cycle import next_cycle_step
from .job import Job, Settings, World
from .locks import other_server
from .loop import OFF_SECONDS, Loop, show, total
from .node import description
from .preflight import read_servers
from .states import CHECK, POWER_ON, Node, Step

# Of a host's answer: what is read of it, and the sentences that count.
MOST_BYTES, MOST_FAULTS = 64 * 1024, 100


def read_faults(jobs: Sequence[Job], answers: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the faults of each host from what ``vllm-health boot-faults`` printed there.

    A host that printed anything but a list of sentences fails alone.
    """
    faults = {}
    for job in jobs:
        text = answers.get(job.entry.host) or "[]"
        try:
            found = load_json(text) if isinstance(text, str) and len(text) <= MOST_BYTES else None
        except ValueError:
            found = None
        if isinstance(found, list) and all(isinstance(sentence, str) for sentence in found):
            faults[job.entry.host] = [quote_foreign(sentence) for sentence in found[:MOST_FAULTS]]
        else:
            job.fail(
                "faults", f"vllm-health boot-faults: found {show_value(text)}, expected a list of sentences in JSON"
            )
    return faults


def power_cycle(
    jobs: Sequence[Job], faults: Mapping[str, Sequence[str]], logs: Path, settings: Settings, world: World, check: bool
) -> None:
    """Carry out the jobs; each ends with an outcome, or in check mode with a plan. ``faults`` are sentences by host."""
    for job in jobs:
        if not job.outcome and not faults.get(job.entry.host) and not job.record.cycling:
            job.finish("well", "reports no fault that only a new start of the host ends, so nothing is done")
    for job in read_servers(jobs, world):
        _judge(job, faults.get(job.entry.host, ()))
    open_jobs = [job for job in jobs if not job.outcome]
    if open_jobs and not check:
        _keep_logs(open_jobs, logs, world)
    _Cycling(settings, world).run(jobs, check)


def _judge(job: Job, faults: Sequence[str]) -> None:
    """Refuse another server, and one that somebody has switched off."""
    server, entry = job.server, job.entry
    if not server:
        return
    refused = other_server(entry, server, {"bmc_serial": job.record.bmc_serial})
    if not refused and server.power == "Off" and not job.record.cycling:
        refused = "the server is switched off, and not by this playbook; switch it on first"
    if refused:
        job.fail("bmc", refused)
        return
    # A run before this one was stopped after it had switched the server on: only its system is waited for.
    job.progress.starts = int(not faults and server.power == "On")
    why = "; ".join(faults) or f"a run of {job.record.cycling} has not ended"
    job.plan = (
        f"{entry.host}: would drain it at its gateways, keep the logs of its BMC, and switch {server.name}, serial "
        f"number {server.serial or 'unknown'}, at {entry.bmc} off and on: {why}"
    )


def _keep_logs(jobs: Sequence[Job], directory: Path, world: World) -> None:
    """Keep what the BMCs have logged. A BMC without logs stops nothing: it keeps them over a power cycle."""
    date = world.date()
    for job, answer in zip(jobs, world.ask_bmcs([_question(job) for job in jobs])):
        if answer.found:
            entries = sum(map(len, answer.found.values()))
            file = keep_logs(directory, job.entry.host, date, answer.found)
            show(job, world, f"{entries} entries of the logs of its BMC are in {file}")
        else:
            show(job, world, f"no log of its BMC could be kept: {answer.reason or 'it has none'}")


def _question(job: Job) -> Bmc:
    path = job.server.path if job.server else ""
    entry, account = job.entry, job.account
    return Bmc(entry.host, entry.bmc, account.username, account.password, partial(read_logs, path))


class _Cycling(Loop):
    """Switches servers off and on."""

    def next_step(self, job: Job, node: Node | None, now: float) -> Step:
        return next_cycle_step(node, job.progress, now, self.settings.deadlines)

    def description(self, job: Job, order: str = "") -> dict[str, Any]:
        path = job.server.path if job.server else job.entry.system
        return description(job.entry, path, job.account, self.settings.bmc_ca, order, released=False)

    def carry_out(self, job: Job, step: Step) -> None:
        if step.do == POWER_ON:
            self.settings.ironic.power(job.entry.host, "power on", OFF_SECONDS)
            job.progress.starts += 1
        elif step.do == CHECK:
            self._check(job)
        else:
            super().carry_out(job, step)

    def before_stop(self, job: Job) -> None:
        """Note it first: the run that follows a killed one starts what this one has stopped."""
        job.record = replace(job.record, cycling=self.world.date())
        self.settings.record_file.note(job.entry.host, job.record)

    def _check(self, job: Job) -> None:
        """End the job when its system answers again."""
        if not self.world.answers(str(job.entry.address.ip)):
            return
        # The record last, because it says that there is something to forget.
        self.settings.ironic.forget(job.entry.host)
        self.settings.record_file.note(job.entry.host, replace(job.record, cycling=""))
        job.progress.enter("done", self.world.now())
        job.finish("cycled", f"was switched off and on, and answers SSH, after {total(job)} s")
        show(job, self.world, job.text)
