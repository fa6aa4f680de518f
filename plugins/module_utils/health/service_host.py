# SPDX-License-Identifier: GPL-3.0-or-later
"""The service of the role health: watch a host, and take instances on sick chips out of service."""

from __future__ import annotations

import time
from typing import Callable, Mapping, Sequence

from ..common.files_host import publish, text_of
from ..common.own_links_host import follow_links
from ..common.repeated import Repeated
from ..instance.systemd import Unit
from ..instance.systemd_host import read_units
from ..rocm.error_records import SeenRecords, events_of
from ..rocm.tools_host import RecordsAnswer
from ..vendor_stack.counters import CountersAnswer
from ..vendor_stack.faults import CHIP, Event, FaultBook
from .commands_host import take_cleared
from .exposition import Labels, Sample, render
from .figures_host import (
    disk_figures,
    drift_figures,
    fault_figures,
    free_shares,
    instance_figures,
    tool_figures,
    weights_figures,
    worked_figures,
)
from .instances_host import Instances
from .journal_host import Journal
from .kernel_log_host import KernelLog
from .ledger import Ledger, Mark, Run
from .proofs_host import Proofs
from .questions_host import Answer, Background, Look, ask_tool, look_at
from .saved_state_host import SavedState
from .settings_host import Settings
from .signs import MISSING, InstanceSigns, states_of
from .webhook import Announcements
from .webhook_host import Target, Webhook

# Seconds between two writings of the metrics.
WRITE_EVERY = 15.0
# A disk with less than this free is nearly full.
LEAST_FREE = 0.05
# What is repeated for ever, and what it is called where it fails.
LOOPS = {
    "service": "The round",
    "tool": "The question to the vendor's tool",
    "instances": "The question to the instances",
}
# Faults of an engine that no longer works on anything, so nothing is lost by a new start.
LOST = ("vllm engine_dead", "vllm no_tokens")


class Service:
    """The state of the service between two ticks."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.clock = settings, clock
        self.book = FaultBook.from_document(settings.faults)
        self.instances = Instances(settings.config_dir, settings.run_dir)
        self.boot = text_of(settings.boot_id).strip()
        self.journal = Journal(clock)
        self.state = SavedState(settings.state_dir, self.boot)
        self.ledger, after = self._restored()
        self.seen_records, self.records_problem = SeenRecords(self.state.newest), ""
        self.log = KernelLog(settings.kernel_log, self.book, after)
        self.record = after
        self.units: dict[str, Unit] = {}
        self.signs: dict[str, InstanceSigns] = {}
        self.looks: dict[str, Look] = {}
        self.answer = Answer(CountersAnswer(), 0.0)
        self.states: set[tuple[str, str]] = set()
        self.missing: set[tuple[str, str]] = set()
        self.restarted: dict[str, str] = {}
        self.wrote_at = 0.0
        self.proofs = Proofs(settings, self.book, self.instances)
        self.full: set[str] = set()
        self.announcements = Announcements(settings.host, self.ledger.marks)
        self.webhook = Webhook(Target.read(settings.webhook), self.journal.say) if settings.webhook else None
        self.loops = {name: Repeated(text, self.journal.say, clock) for name, text in LOOPS.items()}

    # The state on disk.

    def _restored(self) -> tuple[Ledger, int]:
        """Return the saved ledger and the number of the last record of the kernel's log that it knows."""
        found = self.state.restore()
        if self.state.damage:
            self.journal.say(
                f"{self.state.path} was damaged ({self.state.damage}) and moved aside; reading the kernel's log from "
                "the boot on"
            )
        return found

    def save(self) -> None:
        """Save the state if it has changed."""
        try:
            self.state.save(self.ledger, self.record, due=self.clock() - self.wrote_at >= WRITE_EVERY)
        except OSError as exc:
            path = self.state.path
            self.journal.say_at_times(("", path), f"{path}: cannot be written: {exc.strerror}")

    # What was seen.

    def concerned(self, event: Event) -> dict[str, Run]:
        """Return the instances that a fault concerns: those that use its chip, or all."""
        runs = self.instances.runs(self.units)
        if event.fault.scope != CHIP or not event.chip:
            return runs
        chips = self.settings.chips
        return {name: run for name, run in runs.items() if not chips.get(name) or event.chip in chips[name]}

    def foreign(self, event: Event) -> bool:
        """Return whether a line about PCIe concerns another device than a chip of this host."""
        return event.fault.kind == "pcie" and event.chip not in self.settings.addresses

    def take(self, event: Event, times: int = 1, at: float | None = None, instances: Sequence[str] = ()) -> None:
        """Take one fault."""
        if self.foreign(event):
            return
        runs = self.concerned(event)
        if instances:
            runs = {name: run for name, run in runs.items() if name in instances}
        fault = event.fault
        new = self.ledger.record(event, runs, self.clock(), self.boot, times, at)
        where = f" of {event.chip}" if event.chip else ""
        for mark in new:
            self.journal.say(f"{mark.instance} is sick: {mark.reason} ({fault.action}, back by {mark.back})")
        if fault.action != "ignore" and not new:
            self.journal.say_at_times(
                (fault.name, event.chip), f"{fault.name}{where}: {fault.meaning} ({fault.action})", times
            )

    def take_log(self) -> None:
        """Take what the kernel's log has said since the last tick."""
        seen_now, self.record = self.log.take()
        for seen in seen_now:
            self.take(seen.event, seen.times, None if seen.at is None else seen.at / 1e6)
        if self.log.problem:
            self.journal.say_at_times(("", "log"), self.log.problem)

    def take_answer(self, answer: Answer | None) -> None:
        """Take what the vendor's tool says."""
        if answer is None:
            return
        self.answer = answer
        self.take_records(answer.records)
        if answer.counters.problem:
            self.journal.say_at_times(("", "tool"), answer.counters.problem)
            return
        found = states_of(answer.counters.chips, self.book, self.settings.addresses)
        for key in set(found) - self.states:
            # A driver that resets a chip lists it again with the next answer.
            if key[0] != f"state {MISSING}" or key in self.missing:
                self.take(found[key])
                self.states.add(key)
        self.states &= set(found)
        self.missing = {key for key in found if key[0] == f"state {MISSING}"}
        self.ledger.end_states(set(found))

    def take_records(self, answer: RecordsAnswer) -> None:
        """Take the error records that the driver keeps of the chips."""
        if answer.problem:
            # Once: older releases of amd-smi have no records.
            if answer.problem != self.records_problem and not self.answer.counters.problem:
                self.records_problem = answer.problem
                self.journal.say(answer.problem)
            return
        booted = self.clock() - time.monotonic()
        for event, at in events_of(self.book, self.seen_records.new(answer.records)):
            self.take(event, at=None if at is None else at - booted)
        self.state.newest = self.seen_records.newest

    def take_looks(self, looks: Mapping[str, Look] | None) -> None:
        """Take what the instances say about themselves."""
        now = time.monotonic()
        for name, look in (looks or {}).items():
            unit = self.units.get(name, Unit())
            self.looks[name] = look
            signs = self.signs.setdefault(name, InstanceSigns(self.settings.stall))
            # An instance that starts answers nothing, and that is no fault.
            health = look.health if unit.is_active and self.instances.ready(name) else 0
            for code in signs.saw(unit.invocation, look.metrics, health, now):
                self.take(Event(self.book.fault("vllm", code)), instances=[name])

    def take_disks(self) -> None:
        """Look at the disks."""
        for directory, free in free_shares(self.settings.disks).items():
            if free < LEAST_FREE and directory not in self.full:
                self.full.add(directory)
                self.journal.say(f"{directory}: {free:.1%} of the disk is free")
                self.take(Event(self.book.fault("disk", "disk_full")))
            elif free >= LEAST_FREE:
                self.full.discard(directory)

    def take_words(self) -> None:
        """Take what people have said with ``vllm-health clear``."""
        for chip in take_cleared(self.settings.state_dir):
            count = self.ledger.clear(chip)
            self.journal.say(f"A person says that {chip} is well: {count} marks wait for the proof")

    # What follows.

    def prove(self) -> None:
        """Take proofs that have ended, and begin those that are due."""
        for name, problem in self.proofs.ended():
            if problem:
                self.ledger.failed(name, problem)
                self.journal.say_at_times(("proof", name), f"{name} stays out of service: the proof failed: {problem}")
            else:
                self._back(name, self.ledger.proven(name, self.clock()))
        self.proofs.begin(self.ledger.to_prove(self.instances.runs(self.units), self.clock()))

    def _back(self, name: str, ended: Sequence[Mark]) -> None:
        for mark in ended:
            self.journal.say(
                f"{name} is well again: {mark.fault} of {mark.chip or 'the host'} has ended, and the proof passed"
            )

    def start_again(self) -> None:
        """Start instances that a new start makes well, once their gateways have let them go."""
        now = time.monotonic()
        for name in self.ledger.to_restart(self.instances.runs(self.units)) if self.settings.restart else ():
            run = self.units[name].invocation
            idle = self.signs[name].idle_for(now) if name in self.signs else 0.0
            marks = self.ledger.of_instance(name)
            # Before it was sick, it was idle because nobody asked, and a gateway may still send it a request.
            idle = min(idle, self.clock() - max(mark.since for mark in marks))
            lost = any(mark.fault in LOST for mark in marks)
            if (lost or idle >= self.settings.idle) and self.restarted.get(name) != run:
                self.restarted[name] = run
                problem = self.instances.restart(name)
                self.journal.say(
                    f"Starting {name} again" if not problem else f"{name} cannot be started again: {problem}"
                )

    def tell(self) -> None:
        """Tell gateways which instances are sick."""
        for name in self.units:
            marks = self.ledger.of_instance(name)
            problem = self.instances.tell(name, f"{marks[0].action} {marks[0].reason}" if marks else "")
            if problem:
                self.journal.say_at_times(("mark", name), problem)

    def announce(self) -> None:
        """Send the webhook what has changed."""
        for message in self.announcements.new(self.ledger.marks):
            if self.webhook:
                self.webhook.tell(message)

    def samples(self) -> list[Sample]:
        """Return all figures."""
        settings = self.settings
        labels = Labels(
            settings.host, settings.vendor, settings.model, {name: settings.chips.get(name, ()) for name in self.units}
        )
        host = {"host": settings.host}
        found = tool_figures(labels, self.answer) + fault_figures(labels, self.ledger, self.book)
        for name, unit in self.units.items():
            found += instance_figures(labels, self.instances, name, unit, self.ledger)
        found += drift_figures(labels, self.units)
        found.append(Sample("health_kernel_lines_total", host, self.log.lines))
        found.append(Sample("health_kernel_lines_lost_total", host, self.log.lost))
        found.append(Sample("health_state_damaged", host, float(bool(self.state.damage))))
        found.append(Sample("health_boot_faults", host, float(len(self.ledger.awaiting_boot()))))
        found += disk_figures(host, settings.disks)
        found += weights_figures(host, settings.scrub_report)
        loops = {name: loop.worked_at for name, loop in self.loops.items() if name != "tool" or settings.addresses}
        found += worked_figures(host, loops)
        found.append(Sample("health_written_seconds", host, self.clock()))
        return found

    def write(self, changed: bool) -> None:
        """Write the metrics if it is time, or if an instance has become sick or well."""
        now = self.clock()
        if not self.settings.metrics or not (changed or now - self.wrote_at >= WRITE_EVERY):
            return
        self.wrote_at = now
        try:
            publish(follow_links(self.settings.metrics), render(self.samples()), durable=False)
        except OSError as exc:
            self.journal.say_at_times(("", "metrics"), f"{self.settings.metrics}: cannot be written: {exc.strerror}")

    def tick(self, answer: Answer | None, looks: Mapping[str, Look] | None) -> None:
        """Do one round."""
        before = set(self.ledger.marks)
        self.units = read_units(self.instances.names())
        self.ledger.advance(self.instances.runs(self.units), self.boot)
        self.take_log()
        self.take_answer(answer)
        self.take_looks(looks)
        self.take_disks()
        self.take_words()
        self.prove()
        # Before anybody hears of a fault: a stop between the two, and a boot, would forget it.
        self.save()
        self.tell()
        self.announce()
        self.start_again()
        self.write(before != set(self.ledger.marks))

    def run(self) -> None:
        """Work until the unit stops."""
        self.journal.say(
            f"Watching {self.settings.kernel_log} and {', '.join(self.instances.names()) or 'no instance yet'}"
        )
        self.log.start()
        stack, every, loops = self.settings.stack, self.settings.poll, self.loops
        tool = Background(lambda: ask_tool(stack), every, loops["tool"]) if self.settings.addresses else None
        looks = Background(lambda: look_at(self.instances, self.units), self.settings.look, loops["instances"])
        while True:
            loops["service"].attempt(lambda: self.tick(tool.take() if tool else None, looks.take()))
            time.sleep(self.settings.tick)
