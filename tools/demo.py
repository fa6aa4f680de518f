#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a lab with a real vLLM and get a chat answer from it (`make demo`). `demo.py down` removes it again.

Needs only Python: the first phase installs everything else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TextIO

TOP = Path(__file__).resolve().parent.parent
PYTHON = ".venv/bin/python"
LOG = "demo.log"  # in LAB_HOME
HOSTS = ("mirror", "cpu-12")
QUESTION = "Is the fleet ready?"
# Seconds between two updates of a phase's line on a terminal, and between two new lines elsewhere.
TERMINAL_SECONDS, PLAIN_SECONDS = 0.5, 60.0
# The end of the log that is printed when a phase fails.
LAST_LINES = 20

PHASES = (
    ("Install what the controller needs", ("tools/bootstrap.sh",)),
    ("Fill the disk for the mirror: wheels, model, encodings", ("tools/lab/content.sh",)),
    ("Start the lab hosts", ("bin/lab", "up", *HOSTS)),
    ("Run site.yml", (".venv/bin/ansible-playbook", "-i", "inventories/lab", "site.yml")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=["up", "down"], help="build the demo, or remove it again")
    arguments = parser.parse_args()
    if os.geteuid():
        sys.exit("The demo boots hosts in containers, which needs root. Run: sudo make demo")
    # Every phase takes the same directory, although they run in the checkout.
    os.environ["LAB_HOME"] = os.path.abspath(os.environ.get("LAB_HOME") or TOP / ".lab")
    os.chdir(TOP)
    os.environ.setdefault("LAB_NAME", "demo")
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if arguments.action == "down":
        take_down()
        return
    log = Path(os.environ["LAB_HOME"], LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"The whole output goes to {log}", flush=True)
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        for title, command in PHASES:
            run(title, command, file)
    url = endpoint("cpu-12", "chat")
    report(url, ask(url), time.monotonic() - started)


def run(title: str, command: tuple[str, ...], log: TextIO) -> None:
    """Run a phase with its output in the log and one line for a person; end the demo where it fails."""
    log.write(f"\n=== {title}: {' '.join(command)}\n")
    log.flush()
    first = log.tell()
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    on_terminal = sys.stdout.isatty()
    while True:
        try:
            status = process.wait(TERMINAL_SECONDS if on_terminal else PLAIN_SECONDS)
            break
        except subprocess.TimeoutExpired:
            line = f"{time.monotonic() - started:7.1f} s  {title}: {last_lines(log.name, first, 1)[:60]}"
            print(f"\r\033[K{line}" if on_terminal else line, end="" if on_terminal else "\n", flush=True)
    verdict = f"{time.monotonic() - started:7.1f} s  {title}{'' if status == 0 else ': FAILED'}"
    print(f"\r\033[K{verdict}" if on_terminal else verdict, flush=True)
    if status:
        print(last_lines(log.name, first, LAST_LINES))
        sys.exit(f"\n`{' '.join(command)}` ended with {status}. The whole output is in {log.name}")


def last_lines(path: str, first: int, count: int) -> str:
    """Return the last lines with text that were written to a log since the byte ``first``."""
    with open(path, encoding="utf-8", errors="replace") as file:
        file.seek(first)
        lines = [line for line in map(str.rstrip, file) if line.strip(" *")]
    return "\n".join(lines[-count:])


def endpoint(host: str, instance: str) -> str:
    """Return the URL of an instance of a lab host."""
    lab = Path(os.environ["LAB_HOME"], os.environ["LAB_NAME"])
    address = json.loads((lab / "inventory.json").read_text())["lab"]["hosts"][host]["ansible_host"]
    command = (".venv/bin/ansible-inventory", "-i", "inventories/lab", "--host", host)
    variables = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return f"http://{address}:{variables['vllm_instances'][instance]['port']}"


def ask(url: str) -> str:
    """Send a chat to the endpoint, as a client would, and return the answer."""
    body = {"model": "baremetal/gpt-oss-smoke", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64}
    request = urllib.request.Request(  # noqa: S310
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    # The controller's proxy cannot reach the lab.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def report(url: str, answer: str, seconds: float) -> None:
    """Print the result: the total time, commands to try next, the endpoint, the question and the answer."""
    print(f"{seconds:7.1f} s  in total\n")
    body = f'{{"model": "baremetal/gpt-oss-smoke", "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'
    print("Try next:")
    print(f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")
    print("  bin/lab ssh cpu-12 journalctl -u vllm@chat         read vLLM's log")
    print("  make demo-down                                      remove everything\n")
    print(f"Endpoint: {url}/v1")
    print(f"Question: {QUESTION}")
    print(f"Answer:   {answer}")


def take_down() -> None:
    """Remove the lab: hosts, network, keys, images, downloads, log. `bin/lab down` keeps the last two."""
    Path(os.environ["LAB_HOME"], LOG).unlink(missing_ok=True)
    if Path(PYTHON).exists():
        status = subprocess.run(("bin/lab", "down", "--all"), check=False).returncode
        if status:
            sys.exit(f"`bin/lab down --all` ended with {status}; the reason is above. Run `make demo-down` again")


if __name__ == "__main__":
    main()
