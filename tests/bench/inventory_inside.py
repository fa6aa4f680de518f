#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plugin costs inside of a process that runs already; tests/bench/inventory.py starts it for each size.

Prints JSON: processor seconds of the bare objects, of sorting only (parsing a fleet file, less the reading of it), of
reading, and of sorting hosts that are in the inventory already; the medians of rounds that take turns.
"""

from __future__ import annotations

import argparse
import gc
import json
import marshal
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path.insert(0, str(HERE / "inventory_plugins"))

from ansible._internal._datatag._tags import Origin
from ansible.inventory.data import InventoryData
from ansible.inventory.manager import _InventoryDataWrapper
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader, inventory_loader
from bare import add_objects

NAME = "baremetal.inference.accelerators"


class Reading:
    """The seconds that the plugin spends in the functions that turn the option fleet_files into hosts."""

    NAMES = ("find_files", "load_text", "read_fleet")

    def __init__(self, plugin):
        self.seconds = 0.0
        # The reader of a source holds them by name, so this is where they can be measured.
        rooms = type(plugin).__module__.rpartition(".inventory.")[0]
        self._module = sys.modules[f"{rooms}.plugin_utils.inventory.source"]
        self._real = {name: getattr(self._module, name) for name in self.NAMES}

    def __enter__(self):
        for name, function in self._real.items():
            setattr(self._module, name, self._timed(function))
        return self

    def __exit__(self, *_problem):
        for name, function in self._real.items():
            setattr(self._module, name, function)

    def _timed(self, function):
        def call(*args, **options):
            started = time.process_time()
            try:
                return function(*args, **options)
            finally:
                self.seconds += time.process_time() - started

        return call


def timed(function, *args):
    """Return the seconds of a call. What earlier calls left behind is not cleared away in its time."""
    gc.collect()
    started = time.process_time()
    function(*args)
    return time.process_time() - started


def parse(source: Path, inventory=None) -> tuple[float, float]:
    """Parse a source; return the seconds of all, and those that went into reading fleet files."""
    plugin = inventory_loader.get(NAME)
    # What Ansible hands to plugins in place of the inventory.
    origin = Origin(description="<benchmark>")
    inventory = _InventoryDataWrapper(inventory or InventoryData(), target_plugin=plugin, origin=origin)
    with Reading(plugin) as reading:
        return timed(plugin.parse, inventory, DataLoader(), str(source), False), reading.seconds


def hosts_without_groups(fleet) -> InventoryData:
    """Return an inventory as ini or yaml leave it: hosts with their variables."""
    inventory = InventoryData()
    add_objects(inventory, fleet, {"all": list(fleet)}, [])
    return inventory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the benchmark wrote the fleet")
    parser.add_argument("--runs", type=int, default=3, help="rounds (default 3); the medians count")
    options = parser.parse_args()
    init_plugin_loader([str(TOP / ".collections")])
    data = marshal.loads((options.directory / "objects.marshal").read_bytes())
    rows = [measure(options.directory, data) for _run in range(options.runs)]
    print(json.dumps({key: statistics.median(row[key] for row in rows) for key in rows[0]}))


def measure(top: Path, data) -> dict[str, float]:
    """Return the seconds of one round."""
    objects = timed(add_objects, InventoryData(), *data)
    everything, reading = parse(top / "json_accelerators.yml")
    present, _none = parse(top / "top_accelerators.yml", hosts_without_groups(data[0]))
    return {"objects": objects, "sorting": everything - reading, "reading": reading, "present": present}


if __name__ == "__main__":
    main()
