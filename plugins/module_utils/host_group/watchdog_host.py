# SPDX-License-Identifier: GPL-3.0-or-later
"""The service vllm-group@NAME: keep the hosts of an instance together.

It looks at what the kernel knows: the TCP connections of the unit's processes with the other hosts and, where a host
lost its power and closed none of them, whether it still answers. It opens no port, and no host needs a key for another:
each ends its own vLLM, and systemd starts it again. Where hosts compute prompts for this one, a silent one ends
nothing: the router's connections with it are closed, so that its requests are repeated elsewhere.
"""

import json
import time
from typing import Callable

from ..common.files_host import publish
from ..common.lines_host import write_line
from ..common.repeated import Repeated
from ..instance.config_host import group_in
from ..instance.marks import CONFIG_DIR, GROUP_RUN_DIR
from .host import Host
from .watch import Watch

INTERVAL = 2.0
# Seconds between two writings of when the loop last worked.
WRITE_EVERY = 15.0


def check(host: Host, watch: Watch, clock: Callable[[], float] = time.monotonic) -> str:
    """Look once; return why the instance was ended, else an empty text."""
    unit = host.unit()
    if not unit.can_end:
        return ""
    watch.begin(unit.invocation)
    why = watch.connections(clock(), host.counts())
    host.publish(watch.invocation, watch.complete)
    why = why or watch.answers(clock(), host.asked(watch.watched))
    asked = host.asked(list(host.prefill))
    silent = watch.silences(clock(), asked) if asked else {}
    for address in silent.keys() & asked.keys():
        host.close_connections(address, host.prefill[address])
    if not why and watch.stall and unit.is_active and host.listening():
        load = host.load()
        why = watch.progress(clock(), *load) if load else ""
    # The unit may have ended and begun again meanwhile, and that run has done nothing wrong.
    if why and host.unit() == unit:
        host.end()
        return why
    return ""


class Watchdog:
    """The loop of the service."""

    def __init__(self, host: Host, watch: Watch) -> None:
        self.host, self.watch, self.complete, self.wrote_at = host, watch, False, float("-inf")
        self.loop = Repeated("The check of the hosts", say)

    def check(self) -> None:
        """Check once, and say what was done."""
        why = check(self.host, self.watch)
        if why:
            say(f"{why}: ended vLLM, so that all hosts of {self.host.name} start again")
        if self.watch.complete != self.complete:
            self.complete = self.watch.complete
            say("All hosts are connected" if self.complete else "Not all hosts are connected")
        now = time.monotonic()
        if now - self.wrote_at >= WRITE_EVERY:
            self.wrote_at = now
            worked = json.dumps({"watch": time.time()})
            publish(f"{GROUP_RUN_DIR}/{self.host.name}/worked", worked, durable=False)


def say(text: str) -> None:
    """Write a line to the journal."""
    write_line(text)


def watch_group(name: str) -> None:
    """Watch the hosts of an instance for ever."""
    group = group_in(CONFIG_DIR, name)
    watchdog = Watchdog(Host(name, group), Watch(group["watched"], group["stall"]))
    say(f"Watching {', '.join(group['watched']) or 'no other host'} as {group['role']} of {name}")
    while True:
        watchdog.loop.attempt(watchdog.check)
        time.sleep(INTERVAL)
