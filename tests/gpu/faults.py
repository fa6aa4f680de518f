# SPDX-License-Identifier: GPL-3.0-or-later
"""Break an instance over two hosts, and measure when it answers again:  faults.py WORKER FAULT... RESULT

Runs on the head; WORKER is the address of the other host, which SSH reaches. RESULT gets the seconds as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

URL = "http://127.0.0.1:8000"
ANSWER = "The fleet is ready."
LONG = 300
UNIT = "vllm@big"
# The engine's process: a name by vLLM's own setproctitle, else the first child.
ENGINE = f"pgrep -o -f 'VLLM::(Worker|EngineCore)' || pgrep -o -P $(systemctl show {UNIT} -p MainPID --value)"


class Host:
    """One side of the group; an empty address is this host."""

    def __init__(self, address: str = "") -> None:
        self.before = ["ssh", "-o", "BatchMode=yes", address] if address else ["sh", "-c"]

    def run(self, command: str) -> str:
        """Run a command and return its output, whatever its status."""
        done = subprocess.run([*self.before, command], capture_output=True, text=True, check=False, timeout=90)
        return done.stdout.strip()

    def invocation(self) -> str:
        """Return what systemd calls this start of the unit."""
        return self.run(f"systemctl show {UNIT} --property=InvocationID --value")


def say(text: str) -> None:
    """Print a line with the time."""
    print(time.strftime("%H:%M:%S", time.gmtime()), text, flush=True)


def chat(timeout: float) -> str:
    """Return an answer, or why there is none."""
    body = {"model": "baremetal/gpt-oss-smoke", "messages": [{"role": "user", "content": "Is the fleet ready?"}]}
    request = urllib.request.Request(
        f"{URL}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except OSError as error:
        return repr(error)


def health() -> int:
    """Return what a gateway sees; 0 where nothing answers."""
    try:
        with urllib.request.urlopen(f"{URL}/health", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def wait_until(condition: Callable[[], bool], what: str, seconds: float = LONG) -> float:
    """Wait for something; return after how many seconds it was so."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.25)
    return round(time.monotonic() - began, 1)


def wait_for_answer() -> float:
    """Wait until gateways would send requests and one has the right answer."""
    return wait_until(lambda: health() == 200 and chat(20) == ANSWER, "a right answer")


def worker_killed(head: Host, worker: Host) -> dict[str, float]:
    """kill -9 of the worker's engine."""
    before = [each.invocation() for each in (head, worker)]
    worker.run(f"kill -9 $({ENGINE})")
    found = {"gateways see it": wait_until(lambda: health() != 200, "not healthy", 90)}
    found["right answer"] = round(found["gateways see it"] + wait_for_answer(), 1)
    if any(now == then for now, then in zip([each.invocation() for each in (head, worker)], before, strict=True)):
        raise AssertionError("one side was not restarted")
    return found


def head_stopped(head: Host, worker: Host) -> dict[str, float]:
    """The head is stopped by a person, and started when the worker has ended."""
    before = worker.invocation()
    head.run(f"systemctl stop {UNIT}")
    found = {"the worker ends": wait_until(lambda: worker.invocation() != before, "the worker ends", 90)}
    head.run(f"systemctl start --no-block {UNIT}")
    found["right answer after the start"] = wait_for_answer()
    return found


def cut(worker: Host, seconds: int, more: str = "true") -> None:
    """Take the worker's cable away for so long; nothing that holds SSH waits for it."""
    script = f"ip link set eth0 down; {more}; sleep {seconds}; ip link set eth0 up"
    worker.run(f"systemd-run --quiet --collect sh -c '{script}'")


def short_cut(head: Host, worker: Host) -> dict[str, float]:
    """No packets for 10 s: nothing may restart."""
    before = [each.invocation() for each in (head, worker)]
    cut(worker, 10)
    time.sleep(12)
    found = {"right answer": wait_for_answer()}
    time.sleep(15)
    if [each.invocation() for each in (head, worker)] != before:
        raise AssertionError("something restarted")
    return found


def power_loss(head: Host, worker: Host) -> dict[str, float]:
    """No packets, and the worker's processes are gone; it is back after 35 s."""
    before = head.invocation()
    began = time.monotonic()
    cut(worker, 35, f"systemctl kill --signal=SIGKILL {UNIT}")
    found = {"the head ends": wait_until(lambda: head.invocation() != before, "the head ends", 90)}
    time.sleep(max(0.0, 35 - (time.monotonic() - began)))
    found["right answer after the network is back"] = wait_for_answer()
    return found


def stall(head: Host, worker: Host) -> dict[str, float]:
    """The worker's engine hangs while a request runs: processes and connections stay, and no token comes."""
    before = [each.invocation() for each in (head, worker)]
    worker.run(f"kill -STOP $({ENGINE})")
    threading.Thread(target=chat, args=(LONG,), daemon=True).start()
    found = {
        "the head ends": wait_until(lambda: head.invocation() != before[0], "the head ends", 150),
        "then the worker ends": wait_until(lambda: worker.invocation() != before[1], "the worker ends", 150),
    }
    found["right answer"] = round(sum(found.values()) + wait_for_answer(), 1)
    return found


FAULTS: dict[str, Callable[[Host, Host], dict[str, float]]] = {
    "worker-killed": worker_killed,
    "head-stopped": head_stopped,
    "short-cut": short_cut,
    "power-loss": power_loss,
    "stall": stall,
}


def main() -> int:
    address, *names, target = sys.argv[1:]
    head, worker = Host(), Host(address)
    results: dict[str, object] = {}
    for name in names:
        try:
            wait_for_answer()
            results[name] = FAULTS[name](head, worker)
        except (AssertionError, TimeoutError, subprocess.SubprocessError) as error:
            results[name] = f"FAILED: {error}"
            for each in (head, worker):
                print(each.run(f"journalctl -u {UNIT} -u vllm-group@big --no-pager -o cat | grep -v Route | tail -15"))
        say(f"FAULT {name}: {results[name]}")
        Path(target).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return any(isinstance(each, str) for each in results.values())


if __name__ == "__main__":
    sys.exit(main())
