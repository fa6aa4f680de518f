#!/usr/bin/env python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From nothing to a chat answer of a real vLLM: what `make demo` runs. `demo.py down` takes it away again.

Needs nothing but Python: the first phase installs the rest.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PYTHON = ".venv/bin/python"
HOSTS = ("mirror", "cpu-12")
QUESTION = "Is the fleet ready?"
# A person who sees nothing for longer believes that it hangs.
SILENCE = 10.0

PHASES = (
    ("Install what the controller needs", ("tools/bootstrap.sh",)),
    ("Fill the disk for the mirror: wheels, model, encodings", ("tools/lab/content.sh",)),
    ("Start the lab hosts", ("bin/lab", "up", *HOSTS)),
    ("Run site.yml", (".venv/bin/ansible-playbook", "-i", "inventories/lab", "site.yml")),
)


def main() -> None:
    os.chdir(TOP)
    os.environ.setdefault("LAB_NAME", "demo")
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if sys.stdout.isatty():
        os.environ.setdefault("ANSIBLE_FORCE_COLOR", "1")
    if sys.argv[1:] == ["down"]:
        take_down()
        return
    times = []
    for title, command in PHASES:
        print(f"\n=== {title}", flush=True)
        started = time.monotonic()
        run(command)
        times.append((title, time.monotonic() - started))
    started = time.monotonic()
    url = endpoint("cpu-12", "chat")
    answer = ask(url)
    times.append(("Ask from the controller", time.monotonic() - started))
    report(url, answer, times)


def run(command: tuple[str, ...]) -> None:
    """Run a step, its output as it comes and a sign of life in between; end the demo where it fails."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=forward, args=(process, lines), daemon=True).start()
    started, last = time.monotonic(), ""
    while True:
        try:
            line = lines.get(timeout=SILENCE)
        except queue.Empty:
            print(f"    ... {time.monotonic() - started:.0f} s, still at: {last}", flush=True)
            continue
        if line is None:
            break
        print(line, end="", flush=True)
        last = line.strip(" *\n") or last
    if process.wait():
        sys.exit(f"\nStopped: `{' '.join(command)}` ended with {process.returncode}; its last lines above say why.")


def forward(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    """Put the lines of a process into a queue, None at the end."""
    assert process.stdout
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def endpoint(host: str, instance: str) -> str:
    """Return where an instance of a lab host is asked from the controller."""
    lab = Path(os.environ.get("LAB_HOME", ".lab")) / os.environ["LAB_NAME"]
    address = json.loads((lab / "inventory.json").read_text())["lab"]["hosts"][host]["ansible_host"]
    command = (".venv/bin/ansible-inventory", "-i", "inventories/lab", "--host", host)
    variables = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return f"http://{address}:{variables['vllm_instances'][instance]['port']}"


def ask(url: str) -> str:
    """Return what the endpoint answers to a chat, asked over the network as a client would."""
    body = {"model": "baremetal/gpt-oss-smoke", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64}
    request = urllib.request.Request(  # noqa: S310
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    # A proxy of the controller has no way into the lab.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def report(url: str, answer: str, times: list[tuple[str, float]]) -> None:
    """Print what a person wants to see last: where it is, what it said, how long it took, what to try next."""
    print("\n=== Done")
    for title, seconds in times:
        print(f"{seconds:7.1f} s  {title}")
    print(f"{sum(seconds for title, seconds in times):7.1f} s  in all\n")
    body = f'{{"model": "baremetal/gpt-oss-smoke", "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'
    print("Try next:")
    print(f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")
    print("  bin/lab ssh cpu-12 journalctl -u vllm@chat         what vLLM says")
    print("  make demo-down                                      take it all away\n")
    print(f"Endpoint: {url}/v1")
    print(f"Question: {QUESTION}")
    print(f"Answer:   {answer}")


def take_down() -> None:
    """Remove the lab without a trace: hosts, network, keys, images, downloads. `bin/lab down` keeps the last two."""
    if Path(PYTHON).exists():
        subprocess.run(("bin/lab", "down", "--all"), check=True)


if __name__ == "__main__":
    main()
