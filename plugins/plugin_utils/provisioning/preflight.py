# SPDX-License-Identifier: GPL-3.0-or-later
"""Check every host before the first order: what answers at its address, what its BMC shows, what the locks say."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Mapping, Sequence

from ..redfish.ask import Bmc
from .firmware import Setting, differences
from .job import Job, World
from .locks import HERE, OTHER, SILENT, Lock, describe, refusal
from .node import order_of
from .server import survey_server
from .states import UNDER_WAY, Node

AT_ONCE = 64
# States of a node whose order was given: in all others nothing of it has switched the server on.
ORDERED = (*UNDER_WAY, "deploy failed", "active")


def check_hosts(
    jobs: Sequence[Job], nodes: Mapping[str, Mapping[str, Any]], world: World, settings: Sequence[Setting] = ()
) -> None:
    """Decide for each job whether it is there, refused or planned. A refusal of one does not stop the others."""
    listen(jobs, world)
    for job in jobs:
        _recognise(job, nodes.get(job.entry.host))
    for job in read_servers(jobs, world):
        _judge(job, nodes.get(job.entry.host))
        compare_firmware(job, settings)


def compare_firmware(job: Job, settings: Sequence[Setting]) -> None:
    """Note what the firmware of a server should be set to differently."""
    if job.server:
        job.firmware = differences(settings, job.server.maker, job.server.firmware)


def listen(jobs: Sequence[Job], world: World) -> None:
    """Note who answers SSH at the address of each host."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for job, found in zip(jobs, pool.map(lambda job: _who_answers(job, world), jobs)):
            job.answers = found


def question(job: Job) -> Bmc:
    """Return the question for a server to its BMC."""
    entry, account = job.entry, job.account
    return Bmc(entry.host, entry.bmc, account.username, account.password, survey_server(entry.system))


def read_servers(jobs: Sequence[Job], world: World) -> list[Job]:
    """Note what the BMCs show; return the jobs whose BMC answered, the others fail."""
    asked = [job for job in jobs if not job.outcome]
    for job, answer in zip(asked, world.ask_bmcs([question(job) for job in asked])):
        if answer.found is None:
            job.fail("bmc", f"the BMC {job.entry.bmc}: {answer.reason}")
        else:
            job.server = answer.found
    return [job for job in asked if job.server]


def _who_answers(job: Job, world: World) -> str:
    if not world.answers(str(job.entry.address.ip)):
        return SILENT
    if job.record.host_key:
        job.proof = world.prove(job.entry, job.record.host_key)
        if job.proof.order and job.proof.order == job.record.order:
            return HERE
    return OTHER


def _recognise(job: Job, node: Mapping[str, Any] | None) -> None:
    """Note what is known about earlier orders of a host."""
    record, progress = job.record, job.progress
    known = Node.from_dict(node) if node else None
    expected = bool(record.order) and record.order == order_of(job.entry, job.image, record.host_key)
    job.at_ironic = bool(known and record.order and known.order == record.order)
    progress.released = job.released
    if job.answers == HERE and record.done and not job.released:
        again = f"the inventory describes another disk, network or image now: -e provision_release={job.entry.host}"
        job.finish("here", f"is there with build {job.proof.build_id}" + ("" if expected else f"; {again}"))
        return
    restart = job.released and (bool(record.done) or not expected)
    progress.order = "" if restart else record.order
    progress.expected = expected


def _judge(job: Job, node: Mapping[str, Any] | None) -> None:
    server = job.server
    if not server:
        return
    own = job.at_ironic and not job.record.done and Node.from_dict(node or {}).state in ORDERED
    answers = SILENT if own and job.answers == HERE else job.answers
    lock = Lock(answers, job.released, at_ironic=own, reason=job.proof.reason)
    refused = refusal(job.entry, server, {"bmc_serial": job.record.bmc_serial}, lock)
    if refused:
        job.fail("bmc", refused)
    else:
        job.plan = describe(job.entry, server, job.image)
