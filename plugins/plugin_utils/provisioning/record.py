# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the servers that were written: which server, which disk, which image, which host key.

It is a YAML inventory, so that a directory of inventory files shows it as the variable ``provisioned`` of each host.
An order is noted before Ironic gets it: a later run recognises its own work, and the host that comes of it.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Callable, Mapping

from ...module_utils.common.files_host import locked, publish
from ...module_utils.common.kinds import name_kind
from ..common.yaml import dump_yaml, read_yaml
from .entry import ProvisionError

# Seconds between two looks at a lock that another run holds.
WAIT = 10
HEADER = "# Written by provision.yml, which recognises by it what is on a server; keep it with the inventory.\n"


@dataclass(frozen=True)
class Record:
    """What a run noted about a host. ``done`` is when its system had proved itself, empty before.

    ``removing`` is the order by which deprovision.yml wipes it, ``cycling`` when power_cycle.yml switched it off.
    """

    order: str = ""
    host_key: str = ""
    bmc_serial: str = ""
    root_disk: str = ""
    image: str = ""
    build_id: str = ""
    done: str = ""
    removing: str = ""
    cycling: str = ""


class RecordFile:
    """The file of all records of an inventory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Threads of one run take turns here: at the lock of the file each would try its luck, for 30 seconds.
        self._turn = threading.Lock()

    def read(self) -> dict[str, Record]:
        """Return the records by host. Raises ProvisionError for a file that holds something else."""
        if not self.path.exists():
            return {}
        document = read_yaml(self.path)
        hosts = _at(_at(document, "all"), "hosts")
        if hosts is None:
            raise ProvisionError(
                f"{self.path}: found {name_kind(document)}, expected the record that provision.yml writes"
            )
        return {str(host): self._record(str(host), _at(value, "provisioned")) for host, value in hosts.items()}

    @contextlib.contextmanager
    def held(self, show: Callable[[str], None]) -> Iterator[None]:
        """Let nobody else work with these records: of two runs for one host, each would follow the other's orders."""
        lock = self.path.parent / f".{self.path.name}.run"

        def waiting(holder: str) -> None:
            show(f"{self.path}: waits for the other run that works with it: {holder}")

        with locked(str(lock), waiting=waiting, pause=WAIT):
            yield

    def note(self, host: str, record: Record) -> None:
        """Write the record of a host and keep the others, also those that another run has just written."""
        if record == Record():
            self.remove(host)
            return
        self._change(lambda records: {**records, host: record})

    def finish(self, host: str, when: str) -> None:
        """Note that the system of a host has proved itself."""
        self._change(lambda records: {**records, host: replace(records[host], done=when)})

    def remove(self, host: str) -> None:
        """Remove the record of a host."""
        self._change(lambda records: {name: record for name, record in records.items() if name != host})

    def _change(self, change: Any) -> None:
        with self._turn, locked(f"{self.path.parent / ('.' + self.path.name)}.lock", wait=30):
            records = change(self.read())
            hosts = {
                host: {"provisioned": {key: value for key, value in asdict(record).items() if value}}
                for host, record in sorted(records.items())
            }
            publish(str(self.path), HEADER + dump_yaml({"all": {"hosts": hosts}}), 0o644)

    def _record(self, host: str, value: Any) -> Record:
        fields = Record.__dataclass_fields__
        if not isinstance(value, Mapping) or not all(key in fields and isinstance(value[key], str) for key in value):
            raise ProvisionError(f"{self.path}: host {host!r}: provisioned: expected texts named {', '.join(fields)}")
        return Record(**value)


def _at(value: Any, key: str) -> Any:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else None
