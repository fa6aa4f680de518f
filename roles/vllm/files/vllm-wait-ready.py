# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Return when an instance serves at its full speed, or fail when its process has ended.

    vllm-wait-ready.py NAME [SECONDS]

Started by vllm@NAME.service after vLLM, so that the unit is active only when it serves; systemd's TimeoutStartSec is
the deadline. When vLLM answers /health, it gets requests for about SECONDS, by default none: kernels are compiled for
the sizes of batches that come, and until then vLLM serves at about half its speed. Then the file /run/vllm/NAME/ready
lets gateways see that the instance is healthy. Of an instance that spans hosts, the workers accept no requests.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

CONFIG, STATE, RUN, GROUP = Path("/etc/vllm"), Path("/var/lib/vllm"), Path("/run/vllm"), Path("/run/vllm-group")
# availability.py lets this one see vLLM's own answer.
PROBE = {"Availability-Probe": "1"}
# Requests at a time, unless max-num-seqs is less; prompts of a step have this many tokens together, and each of them no
# more than the third: a few full batches of prompts, then batches of as many tokens as there are requests.
MOST, STEP_TOKENS, LONGEST = 512, 32768, 1024
OUTPUT = 8
# A step is warm when it takes no less time than before, give or take the noise of two runs.
STEADY = 0.8
# A step is run at most so many times.
REPEATS = 4
# Where the model does not say: small enough for any vocabulary.
VOCABULARY = 1000


class WarmUpError(Exception):
    """vLLM did not answer a request of the warm-up."""


@dataclass
class Instance:
    """Where vLLM listens, whether with TLS, and what bounds its batches: 0 where vLLM decides."""

    host: str
    port: int
    tls: bool
    max_num_seqs: int = 0
    max_model_len: int = 0

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection to it."""
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        # It is asked on its own host, by an address that is in no certificate.
        context = ssl._create_unverified_context()  # noqa: S323
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)

    def healthy(self) -> bool:
        """Return whether vLLM itself says 200."""
        with contextlib.closing(self.connect(5)) as connection:
            try:
                connection.request("GET", "/health", headers=PROBE)
                return connection.getresponse().status == http.client.OK
            except (OSError, http.client.HTTPException):
                return False

    def ask(self, method: str, path: str, deadline: float, body: Any = None) -> Any:
        """Return the JSON of an answer. Raises WarmUpError."""
        headers = {"Content-Type": "application/json"}
        # systemd gives this program the unit's secrets.
        if os.environ.get("VLLM_API_KEY"):
            headers["Authorization"] = f"Bearer {os.environ['VLLM_API_KEY']}"
        with contextlib.closing(self.connect(max(0.1, deadline - time.monotonic()))) as connection:
            try:
                connection.request(method, path, json.dumps(body) if body else None, headers)
                answer = connection.getresponse()
                found = answer.read()
                if answer.status != http.client.OK:
                    raise WarmUpError(
                        f"{method} {path} answers {answer.status}: {found[:200].decode(errors='replace')}"
                    )
                return json.loads(found)
            except (OSError, ValueError, http.client.HTTPException) as exc:
                raise WarmUpError(f"{method} {path}: {str(exc) or type(exc).__name__}") from exc


def read_instance(name: str) -> Instance:
    """Return the instance of a name; one that listens everywhere is asked at the loopback address."""
    config = (CONFIG / f"{name}.yaml").read_text(encoding="utf-8")
    found = dict(re.findall(r"^([a-z-]+): *['\"]?([^'\"\n]+?)['\"]? *$", config, re.MULTILINE))
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(found["host"], found["host"])  # noqa: S104
    bounds = (found.get(key, "") for key in ("max-num-seqs", "max-model-len"))
    numbers = [int(text) if text.isdecimal() else 0 for text in bounds]
    return Instance(host, int(found["port"]), "ssl-certfile" in found, *numbers)


def group_of(name: str) -> dict[str, Any]:
    """Return the group of an instance that spans hosts, empty for one on this host alone."""
    try:
        found: dict[str, Any] = json.loads((CONFIG / f"{name}.group.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def connected(name: str) -> bool:
    """Return whether vllm-group.py has seen all hosts of the group connected in this run of the unit."""
    try:
        found = json.loads((GROUP / name / "state").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found["complete"]) and found["invocation"] == os.environ.get("INVOCATION_ID")


def vocabulary_of(name: str) -> int:
    """Return the size of the model's vocabulary."""
    try:
        config = json.loads((STATE / name / "model/config.json").read_text(encoding="utf-8"))
        return int(config.get("vocab_size") or config["text_config"]["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return VOCABULARY


def steps(instance: Instance) -> Iterator[tuple[int, int]]:
    """Yield how many requests at a time, and how many tokens their prompts have: few first, then four times as many."""
    most = min(instance.max_num_seqs or MOST, MOST)
    longest = min(LONGEST, instance.max_model_len - OUTPUT - 1) if instance.max_model_len else LONGEST
    at_once = 1
    while True:
        yield at_once, max(1, min(longest, STEP_TOKENS // at_once))
        if at_once >= most:
            return
        # A step takes one to four seconds on an H200: with twice as many, 20 s are over at 128.
        at_once = min(4 * at_once, most)


class WarmUp:
    """Runs requests until each size of batch takes the same time twice, or the time is up."""

    def __init__(self, instance: Instance, vocabulary: int, seconds: float) -> None:
        self.instance, self.vocabulary = instance, vocabulary
        self.began = time.monotonic()
        self.deadline = self.began + seconds
        self.requests = 0
        self.figures: list[str] = []

    def run(self) -> str:
        """Return what was done, for the journal. Raises WarmUpError."""
        model = self.instance.ask("GET", "/v1/models", self.deadline)["data"][0]["id"]
        left = "every size is warm"
        for at_once, tokens in steps(self.instance):
            if not self.step(model, at_once, tokens):
                left = f"the time was up at {at_once} requests at a time"
                break
        took = time.monotonic() - self.began
        return f"Warm-up: {self.requests} requests in {took:.1f} s, {left} ({', '.join(self.figures)})"

    def step(self, model: str, at_once: int, tokens: int) -> bool:
        """Run one size until it is warm; return False when the time is up."""
        times: list[float] = []
        while len(times) < REPEATS:
            began = time.monotonic()
            if began + (times[-1] if times else 0) >= self.deadline:
                return False
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(lambda number: self.request(model, tokens, number), range(at_once)))
            times.append(time.monotonic() - began)
            self.requests += at_once
            if len(times) > 1 and times[-1] > STEADY * times[-2]:
                break
        self.figures.append(f"{at_once}: {times[0]:.2f} then {times[-1]:.2f} s")
        return True

    def request(self, model: str, tokens: int, number: int) -> None:
        """Run one request, of random tokens: its prompt is in no cache, and nobody's prompt begins like it."""
        body = {
            "model": model,
            "prompt": [random.randrange(self.vocabulary // 10, self.vocabulary) for _token in range(tokens)],  # noqa: S311
            "max_tokens": OUTPUT,
            "ignore_eos": True,
            # Both ways to choose a token have kernels of their own.
            **({"temperature": 0} if number % 2 == 0 else {"temperature": 1, "top_p": 0.9, "top_k": 40}),
        }
        self.instance.ask("POST", "/v1/completions", self.deadline + 60, body)


def main() -> None:
    """Run the command of the command line."""
    name, main_pid = sys.argv[1], os.environ["MAINPID"]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    group = group_of(name)
    worker = group.get("role") == "worker"
    instance = None if worker else read_instance(name)
    # A worker is ready when it has joined; a head when it answers and all hosts are connected.
    while not ((instance is None or instance.healthy()) and (not group or connected(name))):
        if not Path(f"/proc/{main_pid}").exists():
            sys.exit("vLLM has ended before it answered")
        time.sleep(0.5)
    if instance is None:
        print("Joined the head", flush=True)
        return
    if seconds:
        try:
            print(WarmUp(instance, vocabulary_of(name), seconds).run(), flush=True)
        except WarmUpError as exc:
            # It serves all the same: models that complete no text cannot be warmed up like this.
            print(f"Warm-up ended: {exc}", flush=True)
    # The unit of a state that an older release kept has no such directory.
    if (RUN / name).is_dir():
        (RUN / name / "ready").touch()


if __name__ == "__main__":
    main()
