# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take an instance out of service before systemd stops it.

    vllm-drain.py NAME DRAIN NOTICE

systemd runs this before it sends SIGTERM to vLLM, which then still accepts requests but never answers them. For NOTICE
seconds GET /health answers 404, so that gateways send requests elsewhere; all other requests are still served. Then the
running requests get DRAIN seconds to finish, and new ones are refused. availability.py answers for vLLM while the files
``stopping`` and ``closed`` are in /run/vllm/NAME. systemd removes that directory with the unit.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import re
import ssl
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CONFIG, RUN = Path("/etc/vllm"), Path("/run/vllm")
# Exists on a host that is also a gateway: there even an instance on the loopback address is behind a gateway.
GATEWAY = Path("/etc/haproxy/gateway-agent.json")
# Seconds that vLLM must stay idle: a new request is not counted while its first bytes are on the way.
SETTLE = 1.0
PAUSE = 0.2
TIMEOUT = 5.0
_LOAD = re.compile(r"(?m)^vllm:num_requests_(?:running|waiting)(?:\{[^\n]*\})? +(\S+)")


@dataclass
class Instance:
    """Where vLLM listens, whether with TLS, and the directory of the files that availability.py obeys."""

    host: str
    port: int
    tls: bool
    run: Path

    def behind_gateway(self) -> bool:
        """Return whether a gateway may send requests to it."""
        with contextlib.suppress(ValueError):
            return not ipaddress.ip_address(self.host).is_loopback or GATEWAY.exists()
        return True

    def get(self, path: str) -> http.client.HTTPResponse:
        """Return the answer to a GET, its body not yet read. Raises OSError and http.client.HTTPException."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        connection = http.client.HTTPConnection(host, self.port, timeout=TIMEOUT)
        if self.tls:
            # The request stays on the host and uses an address that is not in the certificate.
            context = ssl._create_unverified_context()  # noqa: S323
            connection = http.client.HTTPSConnection(host, self.port, timeout=TIMEOUT, context=context)
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse()

    def load(self) -> int | None:
        """Return how many requests run or wait, 0 if vLLM no longer listens, None if the number is unknown."""
        try:
            with self.get("/health") as answer:
                known = [int(answer.headers["open-requests"])] if "open-requests" in answer.headers else []
            with self.get("/metrics") as answer:
                found = _LOAD.findall(answer.read().decode(errors="replace"))
        except ConnectionRefusedError:
            return 0
        except (OSError, ValueError, http.client.HTTPException):
            return None
        # Several API servers share the engine, and each of them knows only its own requests.
        known += [int(sum(map(float, found)))] if found else []
        return max(known, default=None)


def read_instance(name: str) -> Instance | None:
    """Return the instance of a name, or None if it has no port and so accepts no requests."""
    config = (CONFIG / f"{name}.yaml").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(host|port): *['\"]?([^'\"\n]+?)['\"]? *$", config, re.MULTILINE))
    if "port" not in found or re.search(r"^headless: *true", config, re.MULTILINE):
        return None
    tls = re.search(r"^ssl-certfile:", config, re.MULTILINE) is not None
    return Instance(found.get("host", "0.0.0.0"), int(found["port"]), tls, RUN / name)  # noqa: S104


def notify(instance: Instance, notice: float) -> str:
    """Show gateways that the instance is stopping; return the reason if that failed, otherwise an empty text."""
    try:
        (instance.run / "stopping").touch()
        with instance.get("/health") as answer:
            status = answer.status
    except (OSError, http.client.HTTPException) as exc:
        return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
    if status != http.client.NOT_FOUND:
        return f"GET /health still answers {status}"
    if instance.behind_gateway():
        time.sleep(notice)
    return ""


def finish(instance: Instance, drain: float) -> str:
    """Wait until no request runs, then refuse new ones; return how it ended."""
    began, since, closed = time.monotonic(), None, False
    while True:
        load, now = instance.load(), time.monotonic()
        since = (since or now) if load == 0 else None
        if since is not None and closed:
            return "Stopping: no request runs"
        if since is not None and now - since >= SETTLE:
            # Check again: a request that arrived since the last check is still served.
            closed = close(instance)
            continue
        if since is None and now - began >= drain:
            close(instance)
            left = "vLLM does not report whether requests run" if load is None else f"{load} requests still run"
            return f"Stopping: {left} after {drain:g} s"
        time.sleep(PAUSE)


def close(instance: Instance) -> bool:
    """Make availability.py refuse new requests; return True."""
    with contextlib.suppress(OSError):
        (instance.run / "closed").touch()
    return True


def stop(instance: Instance, drain: float, notice: float) -> str:
    """Take the instance out of service and wait for its requests; return a line for the journal."""
    untold = notify(instance, notice)
    ended = finish(instance, drain)
    return f"{ended}; gateways were not told: {untold}" if untold else ended


def main() -> None:
    """Run the command of the command line."""
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    # systemd sets it while the main process runs; without that process there are no requests.
    if "MAINPID" not in os.environ:
        return
    instance = read_instance(sys.argv[1])
    if instance:
        print(stop(instance, float(sys.argv[2]), float(sys.argv[3])), flush=True)


if __name__ == "__main__":
    main()
