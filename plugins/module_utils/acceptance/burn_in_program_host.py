# SPDX-License-Identifier: GPL-3.0-or-later
"""Put load on all chips of a host and measure them: bf16 matrix products, copies in memory and between chips.

The module acceptance_burn_in runs its text with a Python that has torch. It can also be run by hand:

    python burn_in_program_host.py '{"stack": "cuda", "seconds": 120}'

Prints one JSON object per line: {"event": "begins", "phase": ...}, {"event": "result", "phase": ..., "value": ...}, or
{"event": "failed", "what": ...}. Ends with 0, or 3 without torch, 4 without a chip, 5 past its deadline, 6 without
memory. Writes no file. Every result is compared with the first one, which finds chips that miscalculate.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from typing import Any, Callable, Sequence

OK, NO_TORCH, NO_CHIP, HUNG, OUT_OF_MEMORY = 0, 3, 4, 5, 6
DEFAULTS = {
    "stack": "cpu",
    "seconds": 120.0,  # of all phases together
    "deadline": 600.0,  # seconds after which the program ends itself, even if a driver hangs
    "size": 0,  # rows of the square matrices; 0: 8192 on accelerators, 512 on processors
    "copy_bytes": 0,  # of each of the two buffers of a copy; 0: depends on the free memory
}
# Shares of the seconds.
PRODUCTS, COPIES, PEERS = 0.6, 0.25, 0.15
# Share of a chip's free memory for each of the two buffers of a copy, and their largest size.
FREE_SHARE, LARGEST_COPY, CPU_COPY = 0.4, 32 << 30, 256 << 20
PEER_BYTES = 256 << 20
# Seconds of one measurement, and the most of them that are reported.
WINDOW, MOST_WINDOWS = 0.5, 120
# Largest allowed difference between two results of the same product, as a share of the largest value.
TOLERANCE = 0.02


class BurnInError(Exception):
    """The burn-in cannot continue; the message is the reason."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what)
        self.status = status


def emit(**entry: Any) -> None:
    sys.stdout.write(f"{json.dumps(entry)}\n")
    sys.stdout.flush()


class Machine:
    """The chips of this host as torch sees them."""

    def __init__(self, stack: str) -> None:
        try:
            import torch

            if stack == "cann":
                import torch_npu  # noqa: F401 - it adds torch.npu
        except (ImportError, OSError) as exc:
            raise BurnInError(f"{sys.executable} cannot import torch: {exc}", NO_TORCH) from exc
        self.torch, self.stack = torch, stack
        self.api: Any = {"cuda": torch.cuda, "rocm": torch.cuda, "cann": getattr(torch, "npu", None)}.get(stack)
        self.kind = {"cuda": "cuda", "rocm": "cuda", "cann": "npu"}.get(stack, "cpu")
        if self.api is not None and not (self.api.is_available() and self.api.device_count()):
            raise BurnInError(f"torch {torch.__version__} sees no chip", NO_CHIP)
        self.chips = list(range(self.api.device_count())) if self.api else [0]

    def device(self, chip: int) -> str:
        return "cpu" if self.api is None else f"{self.kind}:{chip}"

    def wait(self, *chips: int) -> None:
        for chip in chips if self.api is not None else ():
            self.api.synchronize(chip)

    def name(self, chip: int) -> str:
        return "cpu" if self.api is None else self.api.get_device_name(chip)

    def address(self, chip: int) -> str:
        """Return the PCI address of a chip, empty if torch does not report it."""
        if self.api is None:
            return ""
        about = self.api.get_device_properties(chip)
        domain, bus, device = (getattr(about, f"pci_{name}_id", None) for name in ("domain", "bus", "device"))
        return "" if None in (domain, bus, device) else f"{domain:04x}:{bus:02x}:{device:02x}.0"

    def copy_bytes(self, chip: int) -> int:
        if self.api is None:
            return CPU_COPY
        return min(LARGEST_COPY, int(self.api.mem_get_info(chip)[0] * FREE_SHARE)) >> 20 << 20

    def reachable(self, one: int, other: int) -> bool | None:
        """Return whether a chip can access another chip's memory directly, None if torch does not report it."""
        ask = getattr(self.api, "can_device_access_peer", None)
        return None if ask is None else bool(ask(one, other))

    def on_all(self, work: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
        """Run work(chip) for all chips at the same time; return the results in their order."""
        results: dict[int, dict[str, Any]] = {}
        errors: list[BaseException] = []

        def run(chip: int) -> None:
            try:
                results[chip] = work(chip)
            except BaseException as exc:
                errors.append(exc)

        threads = [threading.Thread(target=run, args=(chip,), daemon=True) for chip in self.chips]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[chip] for chip in self.chips]


def short(value: float) -> float:
    """Return a figure with four digits."""
    return float(f"{value:.4g}")


def summary(windows: Sequence[float]) -> dict[str, Any]:
    """Return the figures of some measurements; at most MOST_WINDOWS of them, evenly spread."""
    step = max(1, len(windows) // MOST_WINDOWS)
    return {
        "median": short(statistics.median(windows)),
        "lowest": short(min(windows)),
        "highest": short(max(windows)),
        "windows": [short(value) for value in windows[::step]],
    }


def measure(
    once: Callable[[], Any],
    wait: Callable[[], None],
    seconds: float,
    amount: float,
    check: Callable[[], bool] = lambda: True,
) -> tuple[list[float], int]:
    """Return the amount per second of once() in each window, and how many windows check() found wrong."""
    once()
    wait()
    begin = time.perf_counter()
    once()
    wait()
    batch = max(1, int(WINDOW / max(1e-6, time.perf_counter() - begin)))
    windows: list[float] = []
    wrong, end = 0, time.perf_counter() + seconds
    while not windows or time.perf_counter() < end:
        begin = time.perf_counter()
        for _number in range(batch):
            once()
        wait()
        windows.append(amount * batch / (time.perf_counter() - begin))
        wrong += 0 if check() else 1
    return windows, wrong


def products(machine: Machine, size: int, seconds: float) -> list[dict[str, Any]]:
    """Return TFLOP/s of bf16 matrix products of each chip, all chips at the same time."""
    torch = machine.torch
    size = size or (512 if machine.api is None else 8192)

    def work(chip: int) -> dict[str, Any]:
        with torch.no_grad():
            maker = torch.Generator().manual_seed(20261123)
            one, other = (
                torch.randn(size, size, generator=maker, dtype=torch.float32)
                .to(torch.bfloat16)
                .to(machine.device(chip))
                for _number in range(2)
            )
            expected = torch.matmul(one, other)
            out = torch.empty_like(expected)
            limit = TOLERANCE * float(expected.abs().max())

            def right() -> bool:
                return float((out - expected).abs().max()) <= limit

            windows, wrong = measure(
                lambda: torch.matmul(one, other, out=out),
                lambda: machine.wait(chip),
                seconds,
                2 * size**3 / 1e12,
                right,
            )
        return {
            "chip": chip,
            "name": machine.name(chip),
            "address": machine.address(chip),
            "size": size,
            "wrong": wrong,
            **summary(windows),
        }

    return machine.on_all(work)


def copies(machine: Machine, size: int, seconds: float) -> list[dict[str, Any]]:
    """Return TB/s of copies within the memory of each chip, read and written bytes counted, all chips at once."""
    torch = machine.torch

    def work(chip: int) -> dict[str, Any]:
        count = (size or machine.copy_bytes(chip)) // 4
        source = torch.randint(0, 2**31 - 1, (count,), dtype=torch.int32, device=machine.device(chip))
        target = torch.zeros_like(source)
        windows, _wrong = measure(lambda: target.copy_(source), lambda: machine.wait(chip), seconds, 8 * count / 1e12)
        return {
            "chip": chip,
            "bytes": 4 * count,
            "wrong": 0 if torch.equal(source, target) else 1,
            **summary(windows),
        }

    return machine.on_all(work)


def peers(machine: Machine, seconds: float) -> list[dict[str, Any]]:
    """Return GB/s of copies from each chip to each other one, one pair after another."""
    torch = machine.torch
    pairs = [(one, other) for one in machine.chips for other in machine.chips if one != other]
    found = []
    for one, other in pairs:
        source = torch.randint(0, 2**31 - 1, (PEER_BYTES // 4,), dtype=torch.int32, device=machine.device(one))
        target = torch.zeros_like(source, device=machine.device(other))

        def once(source: Any = source, target: Any = target) -> None:
            target.copy_(source, non_blocking=True)

        def wait(one: int = one, other: int = other) -> None:
            machine.wait(one, other)

        windows, _wrong = measure(once, wait, seconds / len(pairs), PEER_BYTES / 1e9)
        found.append(
            {
                "from": one,
                "to": other,
                "direct": machine.reachable(one, other),
                "wrong": 0 if torch.equal(source.cpu(), target.cpu()) else 1,
                "median": short(statistics.median(windows)),
                "lowest": short(min(windows)),
                "highest": short(max(windows)),
            }
        )
    return found


def burn_in(options: dict[str, Any]) -> None:
    machine = Machine(options["stack"])
    about = {"torch": machine.torch.__version__, "python": sys.version.split(" ", 1)[0], "chips": len(machine.chips)}
    emit(event="result", phase="software", value=about)
    seconds, several = options["seconds"], len(machine.chips) > 1
    phases: list[tuple[str, Callable[[], Any]]] = [
        ("products", lambda: products(machine, options["size"], seconds * (PRODUCTS if several else PRODUCTS + PEERS))),
        ("copy", lambda: copies(machine, options["copy_bytes"], seconds * COPIES)),
    ]
    if several:
        phases.append(("peer", lambda: peers(machine, seconds * PEERS)))
    for phase, work in phases:
        emit(event="begins", phase=phase)
        value = work()
        if machine.api is not None:
            machine.api.empty_cache()
        emit(event="result", phase=phase, value=value)


def watch(deadline: float, parent: int) -> None:
    """End this process at its deadline, or if the module that started it was killed."""
    end = time.monotonic() + deadline
    while time.monotonic() < end and os.getppid() == parent:
        time.sleep(0.2)
    os._exit(HUNG)


def main() -> int:
    options = {**DEFAULTS, **json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")}
    # A separate thread, because a hanging call into a driver cannot be interrupted.
    threading.Thread(target=watch, args=(options["deadline"], os.getppid()), daemon=True).start()
    try:
        burn_in(options)
    except BurnInError as exc:
        emit(event="failed", what=str(exc))
        return exc.status
    except MemoryError:
        emit(event="failed", what="not enough memory in the host")
        return OUT_OF_MEMORY
    except RuntimeError as exc:
        # torch raises this for errors of a chip; the first line is the reason.
        text = (str(exc).strip() or type(exc).__name__).splitlines()[0]
        emit(event="failed", what=text[:300])
        return OUT_OF_MEMORY if "memory" in text else 1
    return OK


if __name__ == "__main__":
    raise SystemExit(main())
