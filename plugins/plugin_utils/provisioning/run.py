# SPDX-License-Identifier: GPL-3.0-or-later
"""Take all hosts of a run from where they are to a system that has proved itself (loop.py, states.py)."""

from dataclasses import replace
from typing import Any, Sequence

from .entry import ProvisionError
from .firmware import Difference, purposes_of, settings_step
from .host_firmware import PROOFS, host_differences
from .ironic import IronicError
from .job import Job, Settings, World
from .loop import Loop, show, total
from .node import config_drive, description, image_fields, order_of, patch
from .preflight import check_hosts, compare_firmware, question
from .record import Record
from .states import ABORT, CHECK, DESCRIBE_AND_DEPLOY, PROVIDE, UNDEPLOY, Node, Step, next_step


def provision(jobs: Sequence[Job], settings: Settings, world: World, check: bool) -> None:
    """Carry out the jobs; each ends with an outcome, or in check mode with a plan."""
    check_hosts(jobs, settings.ironic.nodes(), world, settings.firmware)
    for job in jobs:
        _report_firmware(job, world)
    if not check and not settings.keep_node:
        for job in jobs:
            _forget_leftover(job, settings, world)
    _Writing(settings, world).run(jobs, check)


def _forget_leftover(job: Job, settings: Settings, world: World) -> None:
    """Forget the node of a host that is there: a run was killed after it had recorded the host."""
    if job.outcome != "here" or not job.at_ironic:
        return
    try:
        settings.ironic.forget(job.entry.host)
    except IronicError as exc:
        show(job, world, f"Ironic still has its node, and the password of its BMC; run again: {exc}")


def _report_firmware(job: Job, world: World) -> None:
    will = " and will be set" if job.entry.firmware == "set" else "; provision.firmware: set would set it"
    for difference in job.firmware if job.plan else ():
        show(job, world, f"firmware: {difference}{will}")


class _Writing(Loop):
    """Writes a disk, and waits for the system on it."""

    def next_step(self, job: Job, node: Node | None, now: float) -> Step:
        return next_step(node, job.progress, now, self.settings.deadlines)

    def carry_out(self, job: Job, step: Step) -> None:
        ironic, host = self.settings.ironic, job.entry.host
        if step.do == PROVIDE:
            ironic.order(host, "provide")
        elif step.do == DESCRIBE_AND_DEPLOY:
            self._deploy(job)
        elif step.do == ABORT:
            show(job, self.world, f"aborting: {step.reason}")
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
        else:
            super().carry_out(job, step)

    def description(self, job: Job, order: str = "") -> dict[str, Any]:
        path = job.server.path if job.server else job.entry.system
        fields = description(
            job.entry, path, job.account, self.settings.bmc_ca, order, job.released, bool(self._to_set(job))
        )
        return {**fields, **image_fields(job.image)}

    def _to_set(self, job: Job) -> tuple[Difference, ...]:
        return job.firmware if job.entry.firmware == "set" else ()

    def _prove_firmware(self, job: Job) -> None:
        """Read the firmware again after it was set: a BMC may have refused a value, or changed another with it."""
        if not self._to_set(job):
            return
        (answer,) = self.world.ask_bmcs([question(job)])
        if answer.found is None:
            show(job, self.world, f"firmware: was set, and cannot be read again: {answer.reason}")
            return
        job.server = answer.found
        compare_firmware(job, self.settings.firmware)
        for difference in job.firmware:
            show(job, self.world, f"firmware: was set, and still {difference}")

    def _prove_on_host(self, job: Job) -> None:
        """Compare the new host with what its BMC was compared with: a BMC may show a value that is only pending."""
        server = job.server
        purposes = purposes_of(self.settings.firmware, server.maker, server.firmware) if server else frozenset()
        if not purposes & PROOFS.keys():
            return
        try:
            found = host_differences(purposes, self.world.show_firmware(job.entry, job.record.host_key))
        except ProvisionError as exc:
            show(job, self.world, f"firmware: cannot be read on the host: {exc}")
            return
        job.firmware += found
        for difference in found:
            show(job, self.world, f"firmware: on the host {difference}")

    def _deploy(self, job: Job) -> None:
        """Note the order, then give it: a run that is killed in between has noted an order that nothing follows."""
        ironic, entry = self.settings.ironic, job.entry
        key = self.world.make_host_key(entry.host)
        order = order_of(entry, job.image, key.public)
        serial = job.server.serial if job.server else ""
        job.record = Record(order, key.public, serial, entry.disk, job.image.name, job.image.build_id)
        self.settings.record_file.note(entry.host, job.record)
        ironic.change(entry.host, patch(self.description(job, order)))
        if entry.mac not in ironic.ports(entry.host):
            ironic.add_port(entry.host, entry.mac)
        job.progress.order, job.progress.expected = order, True
        drive = config_drive(entry, order, key, self.settings.ssh_keys, self.settings.user)
        ironic.order(entry.host, "active", drive, settings_step(self._to_set(job)))
        job.progress.deploys += 1

    def _check(self, job: Job) -> None:
        """End the job if its new system answers, and is the one that was ordered."""
        if not job.progress.proved and not self._proves_itself(job):
            return
        if not self.settings.keep_node:
            # Ironic never acts on a host that serves, and its database forgets the BMC's password.
            self.settings.ironic.forget(job.entry.host)
        job.progress.enter("done", self.world.now())
        job.finish("written", f"answers SSH with build {job.proof.build_id}, after {total(job)} s")
        show(job, self.world, job.text)

    def _proves_itself(self, job: Job) -> bool:
        """Return whether the new system answers, and is the one that was ordered; then it is trusted and recorded."""
        proof = self.world.prove(job.entry, job.record.host_key)
        job.proof = proof
        if proof.reason or not proof.settled:
            return False
        if proof.order != job.record.order or proof.build_id != job.record.build_id:
            self.fail(
                job, "boot", f"the system at {job.entry.address.ip} has build {proof.build_id!r}, expected "
                f"{job.record.build_id!r} of image {job.image.name}; the provisioner's list of images is out of date"
            )  # fmt: skip
            return False
        self.world.trust(self.settings.known_hosts, job.names, job.record.host_key)
        # Before the order is over: a run that is killed while a BMC or the host is asked comes back here.
        self._prove_firmware(job)
        self._prove_on_host(job)
        self.settings.record_file.finish(job.entry.host, self.world.date())
        job.record, job.progress.proved = replace(job.record, done="yes"), True
        return True
