# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watchdog reads of this host, and does to it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from typing import Any

from ..common.files_host import publish
from ..common.foreign_files_host import ForeignDirectory
from ..common.lines_host import write_line
from ..instance.api_host import ask
from ..instance.config_file import Listening
from ..instance.config_host import answering_in
from ..instance.marks import CONFIG_DIR, GROUP_RUN_DIR, READY, RUN_DIR, UNANSWERED_HEADER, WATCHED, WITHDRAWN, unit_of
from ..instance.metrics import GENERATION_TOKENS, PROMPT_TOKENS, RUNNING, sums
from ..instance.systemd import Unit
from ..instance.systemd_host import read_units
from .sockets_host import answers, count_connections, processes_of

# The first of these TCP ports that a host answers is asked from then on. A refusal is an answer, and leaves no line in
# a log: nothing listens on the first one.
PROBE_PORTS = (9, 22)
ANSWER_TIMEOUT, COMMAND_TIMEOUT = 5.0, 30.0


class Host:
    """What is read of this host, and done to it."""

    def __init__(self, name: str, group: dict[str, Any]) -> None:
        self.name, self.group = name, group
        self.unit_name = unit_of(name)
        # The port that each host answers at.
        self.ports: dict[str, int] = {}
        # Hosts whose connections could not be closed.
        self.told: set[str] = set()
        # Where a router runs on this host: the hosts that compute prompts for it, with the port of their vLLM.
        listed = group.get("prefill", []) if group.get("router") else []
        self.prefill = {host.strip("[]"): port for host, _colon, port in (each.rpartition(":") for each in listed)}

    def unit(self) -> Unit:
        """Return the state of the unit. Raises OSError where systemd does not answer."""
        return read_units([self.name])[self.name]

    def listening(self) -> Listening | None:
        """Return where this host of the instance answers, None for a worker."""
        return answering_in(CONFIG_DIR, self.name)

    def container(self) -> str:
        """Return the id of the instance's container with docker, else an empty text."""
        if self.group["engine"] != "docker":
            return ""
        return _run([self.group["command"], "inspect", "--format", "{{.Id}}", f"vllm-{self.name}"]).stdout.strip()

    def counts(self) -> dict[str, int]:
        """Return the number of connections with each address."""
        listening = self.listening()
        return count_connections(processes_of(self.name, self.container()), listening.port if listening else 0)

    def asked(self, addresses: list[str]) -> dict[str, bool]:
        """Return which hosts answer."""
        found = {}
        for address in addresses:
            ports = [self.ports[address]] if address in self.ports else PROBE_PORTS
            port = next((port for port in ports if answers(address, port)), None)
            if port is not None:
                self.ports[address] = port
            found[address] = port is not None
        return found

    def load(self) -> tuple[float, float] | None:
        """Return how many requests run and how many tokens there were, None where vLLM does not tell.

        What runs is vLLM's own figure, or the number of requests without an answer where that is larger: the engine
        reports after each step, so when it hangs in one, a request that came to an idle instance is not in the figure.
        """
        listening = self.listening()
        if listening is None:
            return None
        try:
            answer = ask(listening, "GET", "/metrics", ANSWER_TIMEOUT)
            unanswered = float(answer.headers.get(UNANSWERED_HEADER, 0))
        except (OSError, ValueError):
            return None
        found = sums(answer.text, (RUNNING, PROMPT_TOKENS, GENERATION_TOKENS))
        if RUNNING not in found or len(found) < 2:
            return None
        running = found.pop(RUNNING)
        return max(unanswered, running), sum(found.values())

    def publish(self, invocation: str, complete: bool) -> None:
        """Tell the program that waits for the start, and gateways through the middleware, whether all are connected."""
        state = json.dumps({"invocation": invocation, "complete": complete})
        publish(f"{GROUP_RUN_DIR}/{self.name}/state", state, durable=False)
        marks = ForeignDirectory(f"{RUN_DIR}/{self.name}")
        with contextlib.suppress(OSError):
            # The middleware tells about unanswered requests only where somebody asks.
            marks.touch(WATCHED)
        with contextlib.suppress(OSError):
            if not complete and marks.has(READY):
                marks.rename(READY, WITHDRAWN)
            elif complete and marks.has(WITHDRAWN):
                marks.rename(WITHDRAWN, READY)

    def close_connections(self, address: str, port: str) -> None:
        """Close the router's connections with a prefill host: the kernel would keep them for 12 minutes and more."""
        host = f"[{address}]" if ":" in address else address
        words = ["ss", "--kill", "--no-header", "--tcp", "--numeric", "dst", host, "dport", "=", f":{port}"]
        try:
            done = _run(words)
            closed, wrong = len(done.stdout.splitlines()), done.stderr.strip()
        except OSError as exc:
            closed, wrong = 0, str(exc)
        if closed:
            write_line(f"{address} is silent: closed the router's connections with it ({closed})")
        elif wrong and address not in self.told:
            # Once: this comes every two seconds while the host is silent.
            self.told.add(address)
            write_line(f"{address} is silent, and the router's connections with it stay open: {wrong}")

    def end(self) -> None:
        """End vLLM at once: its requests are lost already, and systemd starts it again."""
        words = ["systemctl", "kill", f"--signal={signal.SIGKILL.value}", self.unit_name]
        _run(words)


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT)
