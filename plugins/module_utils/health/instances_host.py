# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at the instances of vLLM on this host, tell gateways that one is sick, and start one again."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from typing import Any, Mapping

from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json
from ..instance.api_host import Answer, ask
from ..instance.config_file import Listening
from ..instance.config_host import answering_in, names_in
from ..instance.marks import LONGEST_REASON, PROBE, READY, STOPPED_DIR, UNHEALTHY, header_text, unit_of
from ..instance.systemd import Unit
from .ledger import Run

ANSWER_TIMEOUT, TOKEN_TIMEOUT = 5.0, 60.0
_NO_ANSWER = Answer(0, {}, b"")


class Instances:
    """The instances of the host: files below ``config_dir`` (/etc/vllm) and ``run_dir`` (/run/vllm).

    ``stopped_dir`` has those that gateways have stopped.
    """

    def __init__(self, config_dir: str, run_dir: str, stopped_dir: str = STOPPED_DIR) -> None:
        self.config_dir, self.run_dir, self.stopped_dir = config_dir, run_dir, stopped_dir

    def names(self) -> list[str]:
        """Return the names of all instances."""
        return names_in(self.config_dir)

    def marks(self, name: str) -> ForeignDirectory:
        """Return the directory of the instance's marks, which vLLM's user owns."""
        return ForeignDirectory(os.path.join(self.run_dir, name))

    def scaled_down(self, name: str, unit: Unit) -> bool:
        """Return whether gateways have stopped the instance; one whose next start failed is not so on purpose."""
        return unit.active not in ("active", "failed") and os.path.exists(os.path.join(self.stopped_dir, name))

    def ready(self, name: str) -> bool:
        """Return whether the instance has told gateways that it takes requests."""
        return self.marks(name).has(READY)

    def runs(self, units: Mapping[str, Unit]) -> dict[str, Run]:
        """Return the runs of units as the ledger needs them."""
        return {
            name: Run(unit.invocation, unit.began, unit.is_active and self.ready(name)) for name, unit in units.items()
        }

    def warmup_seconds(self, name: str) -> float | None:
        """Return how long the warm-up took, as vllm-wait-ready.py has noted it."""
        try:
            return float(self.marks(name).text(READY, 100))
        except ValueError:
            return None

    def read_signs(self, name: str) -> tuple[int, str]:
        """Return the status of GET /health (0 for no answer), and the text of /metrics (empty for none)."""
        listening = answering_in(self.config_dir, name)
        if listening is None:
            return 0, ""
        health, metrics = _ask(listening, "GET", "/health"), _ask(listening, "GET", "/metrics")
        return health.status, metrics.text if metrics.status == http.client.OK else ""

    def token_problem(self, name: str) -> str:
        """Ask for one token; return why there was none, empty for success. A host without the API proves nothing."""
        listening = answering_in(self.config_dir, name)
        if listening is None:
            return ""
        models = _ask(listening, "GET", "/v1/models")
        if models.status == http.client.UNAUTHORIZED:
            # The instance has its own key, which this service does not know. It answers, and that must do.
            return ""
        try:
            model = load_json(models.body)["data"][0]["id"]
        except (ValueError, LookupError, TypeError) as exc:
            return f"no token: {type(exc).__name__}"
        body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1})
        status = _ask(listening, "POST", "/v1/completions", body, TOKEN_TIMEOUT).status
        return "" if status == http.client.OK else f"the request for a token was answered with HTTP {status}"

    def tell(self, name: str, reason: str) -> str:
        """Tell gateways why the instance is sick, empty if it is well; return why that failed, empty for success."""
        marks, text = self.marks(name), header_text(reason)
        # A text that is longer than its bound is not the one that was written.
        if marks.text(UNHEALTHY, LONGEST_REASON + 1) == text and (text or not marks.exists()):
            return ""
        try:
            if not text:
                marks.remove(UNHEALTHY)
            elif marks.exists():
                marks.replace(UNHEALTHY, text)
        except OSError as exc:
            return f"{marks.path}/{UNHEALTHY}: cannot be written: {exc.strerror}"
        return ""

    def restart(self, name: str) -> str:
        """Start an instance again, without waiting for it; return why systemd refused, empty for success."""
        words: list[Any] = ["systemctl", "restart", "--no-block", unit_of(name)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        return done.stderr.strip() if done.returncode else ""


def _ask(
    listening: Listening, method: str, path: str, body: str | None = None, timeout: float = ANSWER_TIMEOUT
) -> Answer:
    """Return an answer; the status is 0 for none."""
    try:
        return ask(listening, method, path, timeout, body, PROBE)
    except OSError:
        return _NO_ANSWER
