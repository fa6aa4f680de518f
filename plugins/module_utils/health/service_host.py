# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service of the role health: watch a host, and take instances on sick chips out of service."""

from __future__ import annotations

import json
import math
import os
import queue
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.chip_counters.read_host import read_counters
from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import (
    listed,
    publish,
    text_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import nearest
from ansible_collections.baremetal.inference.plugins.module_utils.health.exposition import (
    Labels,
    Sample,
    chip_samples,
    render,
)
from ansible_collections.baremetal.inference.plugins.module_utils.health.faults import (
    BY_BOOT,
    BY_HAND,
    BY_RESTART,
    CHIP,
    Event,
    FaultBook,
    chip_address,
)
from ansible_collections.baremetal.inference.plugins.module_utils.health.instances_host import Instances, Unit
from ansible_collections.baremetal.inference.plugins.module_utils.health.kernel_log_host import KernelLog
from ansible_collections.baremetal.inference.plugins.module_utils.health.ledger import (
    EVERYTHING,
    Ledger,
    LedgerError,
    Mark,
    Run,
)
from ansible_collections.baremetal.inference.plugins.module_utils.health.signs import (
    InstanceSigns,
    proof_problem,
    read_metrics,
    states_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import (
    NOT_INSTALLED,
    CommandResult,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.counters import (
    ChipCounters,
    CountersAnswer,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.host import run_command

# Seconds between two writings of the metrics, and two lines about one fault.
WRITE_EVERY, SAY_EVERY = 15.0, 60.0
# A disk with less than this free is nearly full.
LEAST_FREE = 0.05
LOG_TOOLS = ("dmesg", "journalctl")
# Faults of an engine that no longer works on anything, so nothing is lost by a new start.
LOST = ("vllm engine_dead", "vllm no_tokens")
WAITS_FOR = {
    BY_RESTART: "ends with a new start of the instance",
    BY_BOOT: "ends with a new start of the host, or with vllm-health clear",
    BY_HAND: "ends with vllm-health clear",
}
STATE_FILE, CLEAR_PREFIX = "state.json", "clear-"


@dataclass
class Settings:
    """The configuration that the role writes; ``chips`` has the PCI addresses of each instance, none for all.

    All times are in seconds: ``poll``, ``look`` and ``prove`` are between two questions to the vendor's tool, two to
    the instances, and two proofs; after ``stall`` without progress an engine hangs. A sick instance that nobody has
    asked for ``idle`` seconds is started again: its gateways have let it go.
    """

    host: str
    stack: str
    vendor: str
    model: str
    faults: Mapping[str, Any]
    addresses: Sequence[str] = ()
    chips: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kernel_log: str = "/dev/kmsg"
    state_dir: str = "/var/lib/vllm-health"
    config_dir: str = "/etc/vllm"
    run_dir: str = "/run/vllm"
    metrics: str = ""
    boot_id: str = "/proc/sys/kernel/random/boot_id"
    disks: Sequence[str] = ()
    scrub_report: str = "/var/lib/baremetal-inference/weights-scrub.json"
    restart: bool = True
    stall: float = 120.0
    poll: float = 30.0
    look: float = 5.0
    prove: float = 30.0
    idle: float = 10.0
    tick: float = 1.0

    @classmethod
    def read(cls, path: str) -> Settings:
        """Return the configuration in a file. Raises OSError, ValueError and TypeError."""
        with open(path, encoding="utf-8") as file:
            return cls(**json.load(file))


def ask_tool(argv: Sequence[str]) -> CommandResult:
    """Run a command of the vendor's tool; the kernel's log is read elsewhere."""
    return NOT_INSTALLED if argv[0] in LOG_TOOLS else run_command(argv)


@dataclass
class Look:
    """What an instance said about itself: the status of /health, and its metrics."""

    health: int
    metrics: Mapping[str, float]


@dataclass
class Answer:
    """What the vendor's tool said, and how long it took."""

    counters: CountersAnswer
    seconds: float


class Background:
    """Repeats a look at something that may hang, so that the service never does."""

    def __init__(self, look: Callable[[], Any], every: float) -> None:
        self.look, self.every = look, every
        self.results: queue.Queue[Any] = queue.Queue(maxsize=4)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.results.put(self.look())
            time.sleep(self.every)

    def take(self) -> Any:
        """Return the newest result since the last call, None for none."""
        newest = None
        while not self.results.empty():
            newest = self.results.get_nowait()
        return newest


class Service:
    """The state of the service between two ticks."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.clock = settings, clock
        self.book = FaultBook.from_document(settings.faults)
        self.instances = Instances(settings.config_dir, settings.run_dir)
        self.boot = text_of(settings.boot_id).strip()
        self.path = os.path.join(settings.state_dir, STATE_FILE)
        self.damaged = False
        self.ledger, after = self._restored()
        self.log = KernelLog(settings.kernel_log, self.book, after)
        self.record = after
        self.saved = ""
        self.units: dict[str, Unit] = {}
        self.signs: dict[str, InstanceSigns] = {}
        self.looks: dict[str, Look] = {}
        self.answer = Answer(CountersAnswer(), 0.0)
        self.states: set[tuple[str, str]] = set()
        self.told: dict[tuple[str, str], tuple[float, int]] = {}
        self.restarted: dict[str, str] = {}
        self.wrote_at = 0.0
        self.proofs: queue.Queue[tuple[str, str]] = queue.Queue()
        self.proving: dict[str, float] = {}
        self.full: set[str] = set()

    # The state on disk.

    def _restored(self) -> tuple[Ledger, int]:
        """Return the saved ledger and the number of the last record of the kernel's log that it knows."""
        text = text_of(self.path)
        if not text:
            return Ledger(), -1
        try:
            data = json.loads(text)
            ledger = Ledger.from_document(data.get("ledger") if isinstance(data, dict) else None)
            record = data["record"] if data["boot"] == self.boot else -1
            if not isinstance(record, int):
                raise LedgerError("record is no number")
        except (ValueError, KeyError) as exc:
            # Everything since the boot is read again: what was sick is found sick again.
            self.damaged = True
            os.replace(self.path, f"{self.path}.damaged")
            self.say(f"{self.path} was damaged ({exc}) and moved aside; reading the kernel's log from the boot on")
            return Ledger(), -1
        return ledger, record

    def save(self) -> None:
        """Save the state if it has changed."""
        document = self.ledger.document()
        text = json.dumps({"boot": self.boot, "record": self.record, "ledger": document}, sort_keys=True)
        marks = json.dumps(document, sort_keys=True)
        if marks == self.saved and self.clock() - self.wrote_at < WRITE_EVERY:
            return
        try:
            publish(self.path, text, durable=marks != self.saved)
            self.saved = marks
        except OSError as exc:
            self.say_at_times(("", self.path), f"{self.path}: cannot be written: {exc.strerror}")

    @staticmethod
    def say(text: str) -> None:
        """Write a line to the journal."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def say_at_times(self, key: tuple[str, str], text: str, times: int = 1) -> None:
        """Write a line about one thing at most once in SAY_EVERY seconds."""
        now = self.clock()
        at, held = self.told.get(key, (0.0, 0))
        if now - at < SAY_EVERY:
            self.told[key] = (at, held + times)
            return
        more = f" ({held + times} times)" if held + times > 1 else ""
        self.told[key] = (now, 0)
        self.say(f"{text}{more}")

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
            self.say(f"{mark.instance} is sick: {mark.reason} ({fault.action}, back by {mark.back})")
        if fault.action != "ignore" and not new:
            self.say_at_times((fault.name, event.chip), f"{fault.name}{where}: {fault.meaning} ({fault.action})", times)

    def take_log(self) -> None:
        """Take what the kernel's log has said since the last tick."""
        seen_now, self.record = self.log.take()
        for seen in seen_now:
            self.take(seen.event, seen.times, None if seen.at is None else seen.at / 1e6)
        if self.log.problem:
            self.say_at_times(("", "log"), self.log.problem)

    def take_answer(self, answer: Answer | None) -> None:
        """Take what the vendor's tool says."""
        if answer is None:
            return
        self.answer = answer
        if answer.counters.problem:
            self.say_at_times(("", "tool"), answer.counters.problem)
            return
        found = states_of(answer.counters.chips, self.book)
        for key in set(found) - self.states:
            self.take(found[key])
        self.states = set(found)

    def take_looks(self, looks: Mapping[str, Look] | None) -> None:
        """Take what the instances say about themselves."""
        now = time.monotonic()
        for name, look in (looks or {}).items():
            unit = self.units.get(name, Unit())
            self.looks[name] = look
            signs = self.signs.setdefault(name, InstanceSigns(self.settings.stall))
            # An instance that starts answers nothing, and that is no fault.
            health = look.health if unit.active and self.instances.ready(name) else 0
            for code in signs.saw(unit.invocation, look.metrics, health, now):
                self.take(Event(self.book.fault("vllm", code)), instances=[name])

    def look_at_instances(self) -> dict[str, Look]:
        """Ask every instance that runs."""
        found = {}
        for name, unit in list(self.units.items()):
            if unit.invocation:
                health, text = self.instances.read_signs(name)
                found[name] = Look(health, read_metrics(text))
        return found

    def ask_the_tool(self) -> Answer:
        """Ask the vendor's tool."""
        began = time.monotonic()
        counters = read_counters(self.settings.stack, ask_tool)
        return Answer(counters, time.monotonic() - began)

    def take_disks(self) -> None:
        """Look at the disks."""
        for directory, free in self.free().items():
            if free < LEAST_FREE and directory not in self.full:
                self.full.add(directory)
                self.say(f"{directory}: {free:.1%} of the disk is free")
                self.take(Event(self.book.fault("disk", "disk_full")))
            elif free >= LEAST_FREE:
                self.full.discard(directory)

    def free(self) -> dict[str, float]:
        """Return the free share of each disk."""
        found = {}
        for directory in self.settings.disks:
            if os.path.isdir(directory):
                usage = shutil.disk_usage(directory)
                found[directory] = usage.free / max(1, usage.free + usage.used)
        return found

    def take_words(self) -> None:
        """Take what people have said with ``vllm-health clear``."""
        for name in listed(self.settings.state_dir):
            if name.startswith(CLEAR_PREFIX):
                path = os.path.join(self.settings.state_dir, name)
                chip = text_of(path).strip()
                os.unlink(path)
                count = self.ledger.clear(chip)
                self.say(f"A person says that {chip} is well: {count} marks wait for the proof")

    # What follows.

    def prove(self) -> None:
        """Take proofs that have ended, and begin those that are due."""
        while not self.proofs.empty():
            name, problem = self.proofs.get_nowait()
            if problem:
                self.ledger.failed(name, problem)
                self.say_at_times(("proof", name), f"{name} stays out of service: the proof failed: {problem}")
            else:
                self._back(name, self.ledger.proven(name, self.clock()))
        now = time.monotonic()
        for name in self.ledger.to_prove(self.instances.runs(self.units)):
            if now - self.proving.get(name, -math.inf) >= self.settings.prove:
                self.proving[name] = now
                threading.Thread(target=self._prove, args=(name,), daemon=True).start()

    def _prove(self, name: str) -> None:
        problem = ""
        if self.settings.addresses:
            answer = self.ask_the_tool().counters
            wanted = list(self.settings.chips.get(name) or self.settings.addresses)
            problem = answer.problem or proof_problem(wanted, answer.chips, self.book)
        self.proofs.put((name, problem or self.instances.token_problem(name)))

    def _back(self, name: str, ended: Sequence[Mark]) -> None:
        for mark in ended:
            self.say(f"{name} is well again: {mark.fault} of {mark.chip or 'the host'} has ended, and the proof passed")

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
                self.say(f"Starting {name} again" if not problem else f"{name} cannot be started again: {problem}")

    def tell(self) -> None:
        """Tell gateways which instances are sick."""
        for name in self.units:
            marks = self.ledger.of_instance(name)
            self.instances.tell(name, f"{marks[0].action} {marks[0].reason}" if marks else "")

    def samples(self) -> list[Sample]:
        """Return all figures."""
        settings = self.settings
        labels = Labels(
            settings.host, settings.vendor, settings.model, {name: settings.chips.get(name, ()) for name in self.units}
        )
        host = {"host": settings.host}
        chips: Sequence[ChipCounters] = self.answer.counters.chips
        found = chip_samples(labels, chips)
        for (fault, chip), count in sorted(self.ledger.counts.items()):
            kind, _space, code = fault.partition(" ")
            action = self.book.fault(kind, code).action
            found.append(Sample("accel_faults_total", labels.of_chip(chip, fault=fault, action=action), count))
        if self.answer.seconds:
            found.append(Sample("accel_tool_up", labels.base, float(bool(chips))))
            found.append(Sample("accel_tool_seconds", labels.base, self.answer.seconds))
        for name, unit in self.units.items():
            found += self._instance_samples(labels, name, unit)
        found.append(Sample("health_kernel_lines_total", host, self.log.lines))
        found.append(Sample("health_kernel_lines_lost_total", host, self.log.lost))
        found.append(Sample("health_state_damaged", host, float(self.damaged)))
        found += [
            Sample("health_disk_free_ratio", {**host, "directory": directory}, free)
            for directory, free in self.free().items()
        ]
        found += self._weights_samples(host)
        found.append(Sample("health_written_seconds", host, self.clock()))
        return found

    def _weights_samples(self, host: Mapping[str, str]) -> list[Sample]:
        """Return what the last scrub of the weights has found (weights-scrub.py of the role weights)."""
        try:
            report = json.loads(text_of(self.settings.scrub_report))
            figures = {
                "health_weights_damaged_files": len(report["damaged"]),
                "health_weights_scrubbed_seconds": report["finished"],
            }
        except (ValueError, KeyError, TypeError):
            return []
        return [Sample(name, host, float(value)) for name, value in figures.items() if value is not None]

    def _instance_samples(self, labels: Labels, name: str, unit: Unit) -> list[Sample]:
        own = labels.of_instance(name)
        marks = self.ledger.of_instance(name)
        figures = {
            "vllm_instance_healthy": float(not marks),
            "vllm_unit_active": float(unit.active),
            "vllm_unit_ready": float(unit.active and self.instances.ready(name)),
            "vllm_unit_start_seconds": unit.start_seconds,
            "vllm_unit_warmup_seconds": self.instances.warmup_seconds(name),
            "vllm_unit_restarts_total": float(unit.restarts),
        }
        found = [Sample(series, own, value) for series, value in figures.items() if value is not None]
        for mark in marks:
            more = {"fault": mark.fault, "chip": mark.chip, "action": mark.action}
            found.append(Sample("vllm_instance_fault", {**own, **more}, 1.0))
        return found

    def write(self, changed: bool) -> None:
        """Write the metrics if it is time, or if an instance has become sick or well."""
        now = self.clock()
        if not self.settings.metrics or not (changed or now - self.wrote_at >= WRITE_EVERY):
            return
        self.wrote_at = now
        try:
            publish(self.settings.metrics, render(self.samples()), durable=False)
        except OSError as exc:
            self.say_at_times(("", "metrics"), f"{self.settings.metrics}: cannot be written: {exc.strerror}")

    def tick(self, answer: Answer | None, looks: Mapping[str, Look] | None) -> None:
        """Do one round."""
        before = set(self.ledger.marks)
        self.units = self.instances.units(self.instances.names())
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
        self.start_again()
        self.write(before != set(self.ledger.marks))

    def run(self) -> None:
        """Work until the unit stops."""
        self.say(f"Watching {self.settings.kernel_log} and {', '.join(self.instances.names()) or 'no instance yet'}")
        self.units = self.instances.units(self.instances.names())
        self.log.start()
        tool = Background(self.ask_the_tool, self.settings.poll) if self.settings.addresses else None
        looks = Background(self.look_at_instances, self.settings.look)
        while True:
            self.tick(tool.take() if tool else None, looks.take())
            time.sleep(self.settings.tick)


def status(settings: Settings) -> str:
    """Return what keeps instances out of service, in lines; read from the saved state."""
    text = text_of(os.path.join(settings.state_dir, STATE_FILE))
    try:
        marks = Ledger.from_document(json.loads(text)["ledger"]).marks.values() if text else []
    except (ValueError, KeyError) as exc:
        return f"The saved state is damaged: {exc}"
    lines = [
        f"{mark.instance}: {mark.reason} ({mark.action}, since {time.strftime('%F %T', time.localtime(mark.since))}, "
        f"{'waits for the proof' if mark.proving else WAITS_FOR[mark.back]})"
        for mark in marks
    ]
    return "\n".join(lines or ["Every instance is well."])


def clear(settings: Settings, chip: str, name: str) -> str:
    """Leave word for the service that a chip is well; return what happens next."""
    address = chip if chip == EVERYTHING else chip_address(chip)
    known = {*settings.addresses, EVERYTHING}
    if address not in known:
        raise SystemExit(f"{chip}: no chip of this host; {nearest(chip, known)}")
    publish(os.path.join(settings.state_dir, f"{CLEAR_PREFIX}{name}"), address)
    return f"Told the service that {address} is well; once the proof has passed, its instances return to service."
