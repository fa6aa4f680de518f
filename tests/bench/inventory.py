#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory plugin costs: time and peak memory of whole commands, beside Ansible's own ways to these groups.

For each size of fleet: `ansible-inventory --list` and `ansible GROUP --list-hosts` with the plugin on fleet files and
on top of ini, with yaml and constructed (whose groups are checked to be the same), with an empty inventory, and with
inventory objects that are added without reading or deciding anything. Sources take turns, for machines are noisy: the
ratios are the result, not the seconds. They are those of processor seconds, which other work on the machine changes
least. Nothing here fails for being slow.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import inventory_fleet

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
SIZES = (100, 1_000, 10_000, 100_000)
GROUP = "accel_h200"
# Above this size the ordinary way takes many minutes and gigabytes.
ORDINARY_UP_TO = 10_000
# From here on one run of a slow source says enough.
LARGE = 10_000


@dataclass(frozen=True)
class Source:
    """One way to an inventory; ``slow`` is left out for large fleets, ``groups`` says that it makes all groups."""

    title: str
    files: tuple[str, ...]
    groups: bool = True
    hosts_too: bool = True
    slow: bool = False
    enabled: str | None = None


EMPTY = Source("empty inventory", ("empty.ini",), groups=False)
OBJECTS = Source("objects only", ("bare.yml",))
FLEET = Source("fleet file, JSON", ("json_accelerators.yml",))
CACHED = Source("fleet file, YAML, cached", ("cached_accelerators.yml",))
ORDINARY = Source("yaml + constructed", ("hosts.yml", "constructed.yml"), slow=True)
# Ansible tries its plugin auto before yaml, which reads the file twice. Who knows that can have it quicker.
TUNED = Source("the same, tuned", ("hosts.yml", "lookup_constructed.yml"), slow=True, hosts_too=False,
               enabled="yaml,auto,ini")  # fmt: skip
SOURCES = (
    EMPTY,
    OBJECTS,
    FLEET,
    Source("fleet file, CSV", ("csv_accelerators.yml",), hosts_too=False),
    Source("fleet file, YAML", ("yml_accelerators.yml",), hosts_too=False),
    CACHED,
    Source("ini alone", ("hosts.ini",), groups=False, hosts_too=False),
    Source("ini + our plugin", ("hosts.ini", "top_accelerators.yml")),
    ORDINARY,
    TUNED,
)


@dataclass
class Figures:
    """What was measured for one size of fleet, by source and command."""

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    processor: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    mib: dict[tuple[str, str], float] = field(default_factory=dict)
    inside: dict[str, float] = field(default_factory=dict)

    def add(self, source: Source, command: str, seconds: float, usage: Any) -> None:
        """Add a run, of which the system says what it used."""
        key = source.title, command
        self.seconds.setdefault(key, []).append(seconds)
        self.processor.setdefault(key, []).append(usage.ru_utime + usage.ru_stime)
        self.mib[key] = max(usage.ru_maxrss / 1024, self.mib.get(key, 0))

    def wall(self, source: Source, command: str) -> float | None:
        """Return the median of the seconds that went by."""
        runs = self.seconds.get((source.title, command))
        return statistics.median(runs) if runs else None

    def median(self, source: Source, command: str) -> float | None:
        """Return the median of the seconds of the processor."""
        runs = self.processor.get((source.title, command))
        return statistics.median(runs) if runs else None

    def memory(self, source: Source, command: str) -> float | None:
        return self.mib.get((source.title, command))


def environment(top: Path, source: Source) -> dict[str, str]:
    """Return the environment of a command: nothing of the caller's home or settings is read or written."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    ours = {
        "ANSIBLE_HOME": str(top / "home"),
        "ANSIBLE_INVENTORY_PLUGINS": str(HERE / "inventory_plugins"),
        "ACCELERATORS_DISCOVERY_CACHE": str(top / "discovery.json"),
    }
    return {**kept, **ours, **({"ANSIBLE_INVENTORY_ENABLED": source.enabled} if source.enabled else {})}


def run(top: Path, source: Source, command: str) -> tuple[float, Any]:
    """Run a command to its end, its output in ``top/output``; return its seconds and what it used of the system."""
    inventories = [word for name in source.files for word in ("-i", str(top / name))]
    words = {"--list": ["ansible-inventory", "--list"], "--list-hosts": ["ansible", GROUP, "--list-hosts"]}[command]
    line = [str(TOP / ".venv/bin" / words[0]), *inventories, *words[1:]]
    with (top / "output").open("w") as output, (top / "errors").open("w") as errors:
        started = time.monotonic()
        process = subprocess.Popen(line, cwd=TOP, env=environment(top, source), stdout=output, stderr=errors)
        _pid, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(line)} failed:\n{(top / 'errors').read_text()[-3000:]}")
    return seconds, usage


def aside(function: Any, *args: Any) -> Any:
    """Call a function in its own process.

    Linux counts the memory of the process that starts a command as the command's own, so this one has to stay small.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *args).result()


def measure(top: Path, size: int, runs: int, sources: list[Source]) -> Figures:
    """Return the figures for one size; every source has its turn in each round."""
    figures = Figures()
    aside(inventory_fleet.write, top, size)
    for number in range(runs):
        for source in sources:
            if number and source.slow and size >= LARGE:
                continue
            for command in ("--list", "--list-hosts") if source.hosts_too else ("--list",):
                if number == 0 and source is CACHED and command == "--list":
                    run(top, source, command)  # fills the cache
                figures.add(source, command, *run(top, source, command))
                if number == 0:
                    check(top, size, source, command)
    figures.inside = inside(top, runs)
    return figures


def check(top: Path, size: int, source: Source, command: str) -> None:
    """End the benchmark where a source made other groups than the others: it would compare different things."""
    if not source.groups:
        return
    if command == "--list":
        problem = aside(inventory_fleet.difference, size, top / "output")
    else:
        wanted = sum(1 for number in range(size) if number % len(inventory_fleet.NAMES) == 0)
        found = sum(1 for line in (top / "output").open() if line.startswith("    "))
        problem = "" if found == wanted else f"{GROUP} has {found} hosts, expected {wanted}"
    if problem:
        sys.exit(f"{source.title}, {command}, {size} hosts: {problem}")


def inside(top: Path, runs: int) -> dict[str, float]:
    """Return the seconds inside of a process that runs already."""
    line = [sys.executable, str(HERE / "inventory_inside.py"), str(top), "--runs", str(runs)]
    done = subprocess.run(line, cwd=TOP, env=environment(top, FLEET), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(line)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def show(size: int, figures: Figures, sources: list[Source]) -> None:
    """Print the table of one size."""
    head = "seconds  of CPU   MiB  ratio"
    print(f"\n{f'{size:,} hosts':26}{f'--list: {head}':>38}{f'--list-hosts: {head}':>45}")
    for source in sources:
        line = f"{source.title:26}"
        for command, width in (("--list", 17), ("--list-hosts", 24)):
            own, ordinary = figures.median(source, command), figures.median(ORDINARY, command)
            if own is not None:
                times = f"{ordinary / own:7.1f}" if ordinary else f"{'-':>7}"
                wall, mib = figures.wall(source, command), figures.memory(source, command)
                line += f"{wall:{width}.2f}{own:8.2f}{mib:6.0f}{times}"
        print(line)
    row = figures.inside
    print(f"In process: objects {row['objects']:.3f} s; fleet file: reading {row['reading']:.3f} s, sorting "
          f"{row['sorting']:.3f} s, {row['sorting'] / row['objects']:.2f} times the objects; "
          f"hosts that are there already: {row['present']:.3f} s")  # fmt: skip


def goals(measured: dict[int, Figures]) -> list[tuple[str, float | None, str, float]]:
    """Return what each goal is about, what was measured (None: nothing), and the goal."""
    rows: list[tuple[str, float | None, str, float]] = []
    middle, large = measured.get(10_000, Figures()), measured.get(100_000, Figures())
    for command, goal in (("--list", 12), ("--list-hosts", 15)):
        value = ratio(middle.median(ORDINARY, command), middle.median(FLEET, command))
        rows.append((f"10,000 hosts, {command}: yaml + constructed / fleet file", value, ">=", goal))
    value = ratio(middle.inside.get("sorting"), middle.inside.get("objects"))
    rows.append(("10,000 hosts: sorting / objects", value, "<=", 3))
    value = ratio(middle.median(CACHED, "--list-hosts"), middle.median(OBJECTS, "--list-hosts"))
    rows.append(("10,000 hosts: cached start / empty inventory with the objects", value, "<", 1.2))
    rows.append(("100,000 hosts, --list: seconds from a fleet file", large.wall(FLEET, "--list"), "<=", 40))
    above = [None if (peak := figures.memory(FLEET, "--list")) is None else peak - figures.memory(EMPTY, "--list")
             for figures in (large, middle)]  # fmt: skip
    rows.append(("100,000 / 10,000 hosts, --list: memory above an empty inventory", ratio(*above), "<=", 11))
    return rows


def ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def judge(rows: list[tuple[str, float | None, str, float]]) -> None:
    """Print each goal and whether it was met."""
    print("\nGoals")
    for title, value, sign, goal in rows:
        if value is None:
            print(f"  {title:66} {'-':>7} {sign:>2} {goal:<4} not measured")
            continue
        met = {">=": value >= goal, "<=": value <= goal, "<": value < goal}[sign]
        print(f"  {title:66} {value:7.2f} {sign:>2} {goal:<4} {'met' if met else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, help="hosts (default 100 1000 10000 100000)")
    parser.add_argument("--runs", type=int, default=3, help="rounds up to 10,000 hosts (default 3); the medians count")
    parser.add_argument("--ordinary-up-to", type=int, default=ORDINARY_UP_TO, metavar="HOSTS",
                        help="largest fleet for yaml + constructed (default 10000)")  # fmt: skip
    options = parser.parse_args()
    measured: dict[int, Figures] = {}
    with tempfile.TemporaryDirectory() as directory:
        for size in options.sizes:
            top = Path(directory) / str(size)
            sources = [source for source in SOURCES if not source.slow or size <= options.ordinary_up_to]
            measured[size] = measure(top, size, options.runs if size <= LARGE else 1, sources)
            show(size, measured[size], sources)
            if ORDINARY not in sources:
                print(f"Left out: yaml + constructed, which takes many minutes here (--ordinary-up-to {size})")
            sys.stdout.flush()
            shutil.rmtree(top)
    print("\nRatio: how many times as long yaml + constructed takes. Tuned: yaml before auto, tables for conditions.")
    judge(goals(measured))


if __name__ == "__main__":
    main()
