# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until an instance serves at full speed, or fail if its process ends.

    vllm-wait-ready.py NAME [SECONDS]

Started by vllm@NAME.service after vLLM, so that the unit is active only when it serves; systemd's TimeoutStartSec is
the deadline. When vLLM answers /health, this program sends requests for about SECONDS, by default none: vLLM compiles
kernels at the first use of a batch size, and until then serves at about half its speed. Then the program writes the
file /run/vllm/NAME/ready, which shows gateways that the instance is healthy. Of an instance on several
hosts, only the workers accept no requests.
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
# With this header, availability.py passes on vLLM's own answer.
PROBE = {"Availability-Probe": "1"}
# MOST: requests at a time, unless max-num-seqs is less. STEP_TOKENS: tokens of all prompts in a step. LONGEST: tokens
# in one prompt. A step runs a few full batches of prompts, then batches with one token per request.
MOST, STEP_TOKENS, LONGEST = 512, 32768, 1024
OUTPUT = 8
# A step is warm when it takes as long as in the previous run, apart from noise.
STEADY = 0.8
# A step runs at most this many times.
REPEATS = 4
# A prompt alone makes a batch of its length. Triton's experts (vLLM's choice for MXFP4 on Hopper) compile kernels for
# each number of tokens in a batch, in steps of GRAIN, and others where that is no multiple of 16, 4 or 2 (ODD has one
# of each). Graphs cover only small batches. BATCH: vLLM's own limit of the tokens in a batch.
GRAIN, ODD, BATCH = 32, (0, 21, 12, 30), 8192
# A prompt is slow if it takes more than SLOW times what its length explains. PATIENCE prompts in a row that are not
# slow show that nothing is compiled any longer.
SLOW, PATIENCE = 2.0, 24
# A compiler takes at least so many seconds; a kernel from the disk less. While most of the last RECENT prompts compile
# something, as at the first start, the warm-up may take LONGER times as long.
COMPILED, RECENT, LONGER = 0.15, 8, 3
# Used if the model's vocabulary is unknown: small enough for any.
VOCABULARY = 1000


class WarmUpError(Exception):
    """vLLM did not answer a request of the warm-up."""


@dataclass
class Instance:
    """Where vLLM listens, whether with TLS, and the limits of its batches: 0 means that vLLM decides."""

    host: str
    port: int
    tls: bool
    max_num_seqs: int = 0
    max_model_len: int = 0
    max_num_batched_tokens: int = 0

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection to it."""
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        # The request stays on the host and uses an address that is not in the certificate.
        context = ssl._create_unverified_context()  # noqa: S323
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)

    def healthy(self) -> bool:
        """Return whether vLLM itself answers with 200."""
        with contextlib.closing(self.connect(5)) as connection:
            try:
                connection.request("GET", "/health", headers=PROBE)
                return connection.getresponse().status == http.client.OK
            except (OSError, http.client.HTTPException):
                return False

    def ask(self, method: str, path: str, deadline: float, body: Any = None) -> Any:
        """Return the JSON of an answer. Raises WarmUpError."""
        headers = {"Content-Type": "application/json"}
        # systemd passes the unit's secrets to this program.
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
    """Return the instance of a name. Use the loopback address if it listens on all addresses."""
    config = (CONFIG / f"{name}.yaml").read_text(encoding="utf-8")
    found: dict[str, str] = dict(re.findall(r"^([a-z-]+): *['\"]?([^'\"\n]+?)['\"]? *$", config, re.MULTILINE))
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(found["host"], found["host"])  # noqa: S104
    bounds = (found.get(key, "") for key in ("max-num-seqs", "max-model-len", "max-num-batched-tokens"))
    seqs, length, tokens = (int(text) if text.isdecimal() else 0 for text in bounds)
    return Instance(host, int(found["port"]), "ssl-certfile" in found, seqs, length, tokens)


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
    """Yield the number of requests at a time and the tokens of their prompts; each step has four times as many."""
    most = min(instance.max_num_seqs or MOST, MOST)
    longest = min(LONGEST, instance.max_model_len - OUTPUT - 1) if instance.max_model_len else LONGEST
    at_once = 1
    while True:
        yield at_once, max(1, min(longest, STEP_TOKENS // at_once))
        if at_once >= most:
            return
        # A step takes one to four seconds on an H200. If the number doubled, 20 s would end at 128.
        at_once = min(4 * at_once, most)


def lengths(instance: Instance) -> list[int]:
    """Return the lengths of prompts that are sent alone: first powers of two and what lies between, then all others.

    The others are in the order of their reversed bits, so that each beginning of the list is spread over all of it.
    """
    longest = instance.max_model_len - 2 if instance.max_model_len else BATCH
    classes = min(instance.max_num_batched_tokens or BATCH, longest, BATCH) // GRAIN
    bits = max(1, (classes - 1).bit_length())
    order = sorted(range(classes), key=lambda number: f"{number:0{bits}b}"[::-1])
    spread = [GRAIN * (number + 1) - ODD[(place + place // 4) % len(ODD)] for place, number in enumerate(order)]
    coarse = [size for power in range(4, 14) for size in (1 << power, 3 << power - 1)]
    return [size for size in coarse if size <= GRAIN * classes] + spread


class WarmUp:
    """Runs requests until each batch size takes the same time twice, or the time is up.

    Every size runs once before any runs again: what is compiled for a size is compiled the first time. In between,
    single prompts of many lengths run, until that compiles nothing any longer.
    """

    def __init__(self, instance: Instance, vocabulary: int, seconds: float) -> None:
        self.instance, self.vocabulary = instance, vocabulary
        self.began = time.monotonic()
        self.deadline = self.began + seconds
        self.latest = self.began + LONGER * seconds
        self.requests = 0
        # Seconds of each run, by the number of requests at a time.
        self.times: dict[int, list[float]] = {}
        # Seconds of the single prompts by their length, and the lengths at which something was compiled.
        self.alone: dict[int, float] = {}
        self.compiled: list[int] = []

    def run(self) -> str:
        """Run all sizes; return a line for the journal. Raises WarmUpError."""
        model = self.instance.ask("GET", "/v1/models", self.deadline)["data"][0]
        # Without a setting of the plan, vLLM takes the model's own limit.
        self.instance.max_model_len = int(model.get("max_model_len") or self.instance.max_model_len)
        left = self.rounds(model["id"])
        took = time.monotonic() - self.began
        figures = ", ".join(f"{at_once}: {self.describe_times(at_once)} s" for at_once in self.times)
        alone = f"{len(self.alone)} lengths alone, of which {len(self.compiled)} compiled something"
        return f"Warm-up: {self.requests} requests in {took:.1f} s, {left} ({figures}; {alone})"

    def rounds(self, model: str) -> str:
        """Run the sizes round by round and return what is left to do."""
        cold = list(steps(self.instance))
        for number in range(1, REPEATS + 1):
            for at_once, tokens in cold:
                known = self.times.get(at_once, [])
                if time.monotonic() + (known[-1] if known else 0) >= self.deadline:
                    return f"the time was up at {at_once} requests at a time in round {number}"
                self.step(model, at_once, tokens)
            if number == 1:
                self.all_lengths(model)
            cold = [step for step in cold if not self.warm(step[0])]
        return "every size is warm" if not cold else f"{cold[0][0]} requests at a time still get faster"

    def all_lengths(self, model: str) -> None:
        """Run prompts of all lengths, one after the other, until the time is up or many in a row were not slow."""
        rate, in_a_row = float("inf"), 0
        for tokens in lengths(self.instance):
            if tokens in self.alone:
                continue
            if in_a_row >= PATIENCE or (time.monotonic() >= self.deadline and not self.compiling()):
                return
            began = time.monotonic()
            self.request(model, tokens, 0, output=1)
            took = self.alone[tokens] = time.monotonic() - began
            self.requests += 1
            rate = min(rate, took / tokens)
            expected = min(self.alone.values()) + rate * tokens
            in_a_row = 0 if took > SLOW * expected else in_a_row + 1
            if took > expected + COMPILED:
                self.compiled.append(tokens)

    def compiling(self) -> bool:
        """Return whether most of the last lengths compiled something, and the longest time is not up."""
        last = list(self.alone)[-RECENT:]
        return time.monotonic() < self.latest and 2 * sum(tokens in self.compiled for tokens in last) > len(last)

    def step(self, model: str, at_once: int, tokens: int) -> None:
        """Run one size once."""
        began = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda number: self.request(model, tokens, number), range(at_once)))
        self.times.setdefault(at_once, []).append(time.monotonic() - began)
        self.requests += at_once

    def warm(self, at_once: int) -> bool:
        """Return whether a size took no less time than before."""
        times = self.times[at_once]
        return len(times) > 1 and times[-1] > STEADY * times[-2]

    def describe_times(self, at_once: int) -> str:
        """Return the first and the last time of a size in words."""
        first, *others = self.times[at_once]
        return f"{first:.2f} then {others[-1]:.2f}" if others else f"{first:.2f}"

    def request(self, model: str, tokens: int, number: int, output: int = OUTPUT) -> None:
        """Run one request of random tokens, so that no cache contains its prompt or a beginning of it."""
        body = {
            "model": model,
            "prompt": [random.randrange(self.vocabulary // 10, self.vocabulary) for _token in range(tokens)],  # noqa: S311
            "max_tokens": output,
            "ignore_eos": True,
            # Greedy and random sampling use different kernels.
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
            sys.exit("vLLM ended before it answered")
        time.sleep(0.5)
    if instance is None:
        print("Joined the head", flush=True)
        return
    began = time.monotonic()
    if seconds:
        try:
            print(WarmUp(instance, vocabulary_of(name), seconds).run(), flush=True)
        except WarmUpError as exc:
            # Not an error: models that cannot complete text cannot be warmed up in this way.
            print(f"Warm-up ended: {exc}", flush=True)
    # The unit of an instance that an older release installed has no such directory.
    if (RUN / name).is_dir():
        # The service of the role health reads how long the warm-up took.
        (RUN / name / "ready").write_text(f"{time.monotonic() - began:.3f}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
