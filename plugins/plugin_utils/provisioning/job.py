# SPDX-License-Identifier: GPL-3.0-or-later
"""One host of a run, the settings of the run, and the ways in which it touches the world."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from ..redfish.ask import Answer, Bmc
from .entry import Entry
from .firmware import Difference, Setting
from .images import Image
from .ironic import Ironic
from .locks import SILENT
from .node import Account, HostKey
from .record import Record, RecordFile
from .server import Server
from .ssh import Proof
from .states import Progress


@dataclass(frozen=True)
class Settings:
    """What holds for all hosts of a run. ``bmc_ca`` is what Ironic checks the BMCs' certificates with."""

    ironic: Ironic
    bmc_ca: str | bool
    record_file: RecordFile
    known_hosts: Path
    deadlines: Mapping[str, float]
    ssh_keys: tuple[str, ...]
    user: str = "root"
    poll: float = 2.0
    keep_node: bool = False
    firmware: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class World:
    """What a run needs from outside; tests give their own."""

    ask_bmcs: Callable[[Sequence[Bmc]], list[Answer]]
    answers: Callable[[str], bool]
    prove: Callable[[Entry, str], Proof]
    make_host_key: Callable[[str], HostKey]
    trust: Callable[[Path, tuple[str, ...], str], None]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    date: Callable[[], str]
    show: Callable[[str], None]
    show_firmware: Callable[[Entry, str], Mapping[str, Any]]


@dataclass
class Job:
    """One host of a run. ``outcome`` is empty until it ends, such as "written", "removed" or "failed".

    ``disks`` are serial numbers or WWNs of the disks that a removal wipes, ``secure`` whether all of their content.
    """

    entry: Entry
    image: Image
    account: Account
    record: Record
    released: bool = False
    disks: tuple[str, ...] = ()
    secure: bool = False
    names: tuple[str, ...] = ()
    progress: Progress = field(default_factory=Progress)
    answers: str = SILENT
    proof: Proof = field(default_factory=Proof)
    at_ironic: bool = False
    server: Server | None = None
    plan: str = ""
    firmware: tuple[Difference, ...] = ()
    outcome: str = ""
    text: str = ""

    def finish(self, outcome: str, text: str) -> None:
        """End the job."""
        self.outcome, self.text = outcome, text

    def fail(self, phase: str, reason: str) -> None:
        """End the job with the reason of its failure, one sentence."""
        self.progress.phase = phase
        self.finish("failed", reason)

    def as_dict(self) -> dict[str, Any]:
        """Return the job for the result of the action, without secrets."""
        return {
            "outcome": self.outcome or "planned",
            "phase": self.progress.phase if self.outcome in ("", "failed") else "",
            "text": self.text or self.plan,
            "firmware": [str(each) for each in self.firmware],
            "serves": self.answers != SILENT or bool(self.server and self.server.power != "Off"),
            "seconds": dict(self.progress.seconds),
        }
