# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at the instances of vLLM on this host, tell gateways that one is sick, and start one again."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import ssl
import subprocess
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ..common.files_host import listed, publish, text_of
from .ledger import Run

# With this header, availability.py passes on vLLM's own answer.
PROBE = {"Availability-Probe": "1"}
# The file in an instance's directory that availability.py reads, and what it may be as a header.
UNHEALTHY = "unhealthy"
LONGEST_REASON = 200
MAX_METRICS_BYTES = 8 * 1024 * 1024
ANSWER_TIMEOUT, TOKEN_TIMEOUT = 5.0, 60.0
# Where an instance that listens on all addresses is asked.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_KEY = re.compile(r"^([a-z-]+): *['\"]?([^'\"\n]+?)['\"]? *$", re.MULTILINE)
_FAULTS = (OSError, ValueError, KeyError, IndexError, http.client.HTTPException)
_PROPERTIES = (
    "Id", "ActiveState", "InvocationID", "NRestarts", "InactiveExitTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """What systemd says of an instance's unit; times are seconds since the boot."""

    active: bool = False
    invocation: str = ""
    restarts: int = 0
    began: float = 0.0
    active_since: float = 0.0

    @property
    def start_seconds(self) -> float | None:
        """How long the start took, None while it has not succeeded."""
        return self.active_since - self.began if self.active and self.active_since >= self.began else None


@dataclass(frozen=True)
class Api:
    """Where an instance answers; no port for a host that only works for another one."""

    host: str = ""
    port: int = 0
    tls: bool = False

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection to it."""
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        # The request stays on the host and uses an address that is not in the certificate.
        context = ssl._create_unverified_context()  # noqa: S323
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)


class Instances:
    """The instances of the host: files below ``config_dir`` (/etc/vllm) and ``run_dir`` (/run/vllm)."""

    def __init__(self, config_dir: str, run_dir: str) -> None:
        self.config_dir, self.run_dir = config_dir, run_dir

    def names(self) -> list[str]:
        """Return the names of all instances."""
        return [name[:-5] for name in listed(self.config_dir) if name.endswith(".yaml")]

    def units(self, names: Sequence[str]) -> dict[str, Unit]:
        """Return the units of instances; of one that systemd does not know, an inactive one."""
        if not names:
            return {}
        words = [
            "systemctl",
            "show",
            f"--property={','.join(_PROPERTIES)}",
            *(f"vllm@{name}.service" for name in names),
        ]
        text = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30).stdout
        found = {}
        for block in text.split("\n\n"):
            unit = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
            found[unit.get("Id", "")] = Unit(
                unit.get("ActiveState") == "active",
                unit.get("InvocationID", ""),
                int(unit.get("NRestarts") or 0),
                int(unit.get("InactiveExitTimestampMonotonic") or 0) / 1e6,
                int(unit.get("ActiveEnterTimestampMonotonic") or 0) / 1e6,
            )
        return {name: found.get(f"vllm@{name}.service", Unit()) for name in names}

    def ready(self, name: str) -> bool:
        """Return whether the instance has told gateways that it takes requests."""
        return os.path.exists(os.path.join(self.run_dir, name, "ready"))

    def runs(self, units: Mapping[str, Unit]) -> dict[str, Run]:
        """Return the runs of units as the ledger needs them."""
        return {
            name: Run(unit.invocation, unit.began, unit.active and self.ready(name)) for name, unit in units.items()
        }

    def warmup_seconds(self, name: str) -> float | None:
        """Return how long the warm-up took, as vllm-wait-ready.py has noted it."""
        try:
            return float(text_of(os.path.join(self.run_dir, name, "ready")))
        except ValueError:
            return None

    def api(self, name: str) -> Api:
        """Return where the instance answers."""
        found: dict[str, str] = dict(_KEY.findall(text_of(os.path.join(self.config_dir, f"{name}.yaml"))))
        if not found.get("port", "").isdecimal() or "host" not in found or "headless" in found:
            return Api()
        return Api(LOOPBACK.get(found["host"], found["host"]), int(found["port"]), "ssl-certfile" in found)

    def read_signs(self, name: str) -> tuple[int, str]:
        """Return the status of GET /health (0 for no answer), and the text of /metrics (empty for none)."""
        api = self.api(name)
        if not api.port:
            return 0, ""
        health, _text = self._ask(api, "GET", "/health")
        status, text = self._ask(api, "GET", "/metrics")
        return health, text if status == http.client.OK else ""

    def token_problem(self, name: str) -> str:
        """Ask for one token; return why there was none, empty for success. A host without the API proves nothing."""
        api = self.api(name)
        if not api.port:
            return ""
        try:
            status, text = self._ask(api, "GET", "/v1/models")
            if status == http.client.UNAUTHORIZED:
                # The instance has its own key, which this service does not know. It answers, and that must do.
                return ""
            model = json.loads(text)["data"][0]["id"]
            body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1})
            status, _text = self._ask(api, "POST", "/v1/completions", body, TOKEN_TIMEOUT)
        except _FAULTS as exc:
            return f"no token: {type(exc).__name__}"
        return "" if status == http.client.OK else f"the request for a token was answered with HTTP {status}"

    def _ask(
        self, api: Api, method: str, path: str, body: str | None = None, timeout: float = ANSWER_TIMEOUT
    ) -> tuple[int, str]:
        connection = api.connect(timeout)
        try:
            headers = {**PROBE, **({"Content-Type": "application/json"} if body else {})}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_METRICS_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def tell(self, name: str, reason: str) -> None:
        """Tell gateways, through availability.py, why the instance is sick; an empty reason means that it is well."""
        directory = os.path.join(self.run_dir, name)
        path = os.path.join(directory, UNHEALTHY)
        text = header_text(reason)
        if text_of(path) == text:
            return
        with contextlib.suppress(FileNotFoundError):
            if text:
                if os.path.isdir(directory):
                    publish(path, text, durable=False)
            else:
                os.unlink(path)

    def restart(self, name: str) -> str:
        """Start an instance again, without waiting for it; return why systemd refused, empty for success."""
        words: list[Any] = ["systemctl", "restart", "--no-block", f"vllm@{name}.service"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        return done.stderr.strip() if done.returncode else ""


def header_text(text: str) -> str:
    """Return a text as it may stand in a header: printable ASCII, and not too long."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:LONGEST_REASON].strip()
