# SPDX-License-Identifier: GPL-3.0-or-later
"""Journals of rollouts as they are written, for the tests of what is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BEGAN = 1795316400.0
# Seconds that each step of a good turn takes.
TURN = {"drain": 3.0, "idle": 12.0, "measure": 8.0, "apply": 60.0, "gate": 10.0, "ready": 4.0, "watch": 10.0}
BEFORE = {
    "vllm_version": "0.32.0",
    "model": "openai/gpt-oss-120b",
    "revision": "b5c939de",
    "image": None,
    "release": "0.32.0",
}
AFTER = {**BEFORE, "vllm_version": "0.33.0", "release": "0.33.0"}
CHANGE = {
    "chat": {
        "before": BEFORE,
        "after": AFTER,
        "args": {"max-num-seqs": [128, 256]},
        "env": {},
        "files": ["/etc/vllm/chat.yaml"],
    }
}
SLOW = "throughput: 33.1 tokens/s, before 100: 0.33 of it, expected at least 0.8"


def figures(speed: float) -> dict[str, Any]:
    return {
        "tokens_per_second": speed, "first_token_s": round(5 / speed, 4), "first_token_p90_s": round(7 / speed, 4),
        "requests": 8, "seconds": round(512 / speed, 3), "tokens": 512, "prompts": 8, "streams": 4, "max_tokens": 64,
    }  # fmt: skip


class Journal:
    """A journal that is being written; ``now`` is the time of the next event."""

    def __init__(self, began: float = BEGAN) -> None:
        self.now = began
        self.events: list[dict[str, Any]] = []

    def add(self, event: str, **values: Any) -> None:
        self.events.append({"at": round(self.now, 3), "event": event, **values})

    def begin(self, clusters: dict[str, list[list[str]]], kind: str = "change", **values: Any) -> None:
        """Begin a rollout over the waves of each cluster, one cluster after the other."""
        waves = [wave for of_cluster in clusters.values() for wave in of_cluster]
        told = {
            "id": "20261122T030000Z-ab12", "kind": kind, "user": "alice", "controller": "ops-1",
            "clusters": list(clusters), "summary": "release 0.32.0 -> 0.33.0", "waves": waves,
            "options": {"rollout_canaries": 1, "rollout_waves": ["50%"]}, **values,
        }  # fmt: skip
        self.add("begun", **told)
        number = 0
        for cluster, of_cluster in clusters.items():
            for wave in of_cluster:
                for host in wave:
                    self.add("host", host=host, cluster=cluster, wave=number, changes=CHANGE)
                number += 1

    def step(self, host: str, step: str, seconds: float = 0.0, detail: str = "") -> None:
        self.add("step", host=host, step=step, detail=detail)
        self.now += seconds

    def turn(self, host: str, speed: float = 101.5) -> None:
        """A turn that ends well."""
        for step, seconds in TURN.items():
            self.step(host, step, seconds)
            if step == "gate":
                rows = [{"name": "warm", "ok": True, "detail": "2 requests answered"}]
                self.add("gate", host=host, instance="chat", before=figures(100), after=figures(speed), verdicts=rows)
        self.step(host, "done")

    def bad_turn(self, host: str, ends: str = "rolled_back") -> None:
        """A turn whose gate finds the host three times slower."""
        for step in ("drain", "idle", "measure", "apply"):
            self.step(host, step, TURN[step])
        self.step(host, "gate", 25.0)
        rows = [{"name": "throughput", "ok": False, "detail": SLOW.partition(": ")[2]}]
        self.add("gate", host=host, instance="chat", before=figures(100), after=figures(33.1), verdicts=rows)
        self.step(host, "restore", 50.0, SLOW)
        self.step(host, ends, detail=SLOW)

    def read(self, gateway: str, requests: int, failed: int = 0, started: str = "100/1", service: str = "chat") -> None:
        counters = {"requests": requests, "ok": requests - failed - 2, "client_errors": 2, "server_errors": failed}
        self.add("gateway", gateway=gateway, started=started, frontends={service: {**counters, "denied": 0}})

    def end(self, result: str = "done") -> None:
        self.add("ended", result=result)

    def text(self) -> str:
        return "".join(json.dumps(event) + "\n" for event in self.events)

    def write(self, path: Path, text: str | None = None) -> Path:
        path.write_text(self.text() if text is None else text, encoding="utf-8")
        return path


def good() -> Journal:
    """Two clusters, one after the other: each a canary and a wave of two."""
    journal = Journal()
    journal.begin({"a": [["a1"], ["a2", "a3"]], "b": [["b1"]]})
    journal.read("gw-a", 1000)
    for number, wave in enumerate((["a1"], ["a2", "a3"], ["b1"])):
        journal.add("wave", wave=number, state="begun", failed=[])
        for host in wave:
            journal.turn(host)
        journal.read("gw-a", 1500 + 500 * number, failed=number and 1)
        journal.add("wave", wave=number, state="ended", failed=[])
    journal.end()
    return journal


def stopped() -> Journal:
    """Stopped at the canary, which is back on what it ran."""
    journal = Journal()
    journal.begin({"a": [["a1"], ["a2", "a3"]]})
    journal.read("gw-a", 1000)
    journal.bad_turn("a1")
    journal.read("gw-a", 1200)
    journal.add("wave", wave=0, state="ended", failed=["a1"])
    journal.add("stopped", reason="a1 is a canary and failed: " + SLOW)
    journal.end("stopped")
    return journal


def interrupted() -> str:
    """Broken off while a2 was changed, in the middle of a line."""
    journal = Journal()
    journal.begin({"a": [["a1"], ["a2", "a3"]]})
    journal.read("gw-a", 1000)
    journal.turn("a1")
    journal.step("a2", "drain", 3.0)
    journal.step("a2", "idle", 12.0)
    journal.step("a2", "apply", 20.0)
    journal.read("gw-a", 1700)
    return journal.text() + '{"at": 17953'


def resumed() -> Journal:
    """The interrupted one, gone on by another person an hour later."""
    journal = Journal()
    journal.events = [json.loads(line) for line in interrupted().splitlines()[:-1]]
    journal.now = journal.events[-1]["at"] + 3600
    begun = {"id": "20261122T030000Z-ab12", "kind": "resumed", "user": "bob", "controller": "ops-2", "clusters": ["a"]}
    journal.add("begun", **begun, summary="release 0.32.0 -> 0.33.0", waves=[["a2"], ["a3"]], options={})
    journal.step("a2", "drain", 1.0)
    journal.step("a2", "apply", 40.0)
    journal.step("a2", "done")
    journal.turn("a3")
    # The gateway was started anew meanwhile.
    journal.read("gw-a", 300, started="200/9")
    journal.end()
    return journal


def rollback() -> Journal:
    """One host goes back to what it ran before, without gates before it."""
    journal = Journal()
    journal.add(
        "begun", id="20261122T050000Z-cd34", kind="rollback", user="alice", controller="ops-1", clusters=["a"],
        summary="a1 back to 0.32.0", waves=[["a1"]], options={},
    )  # fmt: skip
    back = {"chat": {"before": AFTER, "after": BEFORE, "args": {"max-num-seqs": [256, 128]}, "files": [], "to": "ab12"}}
    journal.add("host", host="a1", cluster="a", wave=0, changes=back)
    for step, seconds in {"drain": 2.0, "idle": 5.0, "restore": 44.0, "ready": 3.0, "watch": 10.0}.items():
        journal.step("a1", step, seconds)
    journal.step("a1", "done")
    journal.end()
    return journal


def large(hosts: int = 1000, size: int = 50) -> Journal:
    """Four clusters, waves side by side; every hundredth host fails."""
    journal = Journal()
    names = [f"gpu-{number:04}" for number in range(hosts)]
    per = hosts // 4
    clusters = {
        f"c{number}": [
            names[at : at + size] for at in range(number * per, (number + 1) * per, size)
        ]
        for number in range(4)
    }  # fmt: skip
    journal.begin(clusters)
    journal.read("gw-a", 10)
    for waves in clusters.values():
        for wave in waves:
            began, latest = journal.now, 0.0
            for number, host in enumerate(wave):
                journal.now = began + number % 7
                journal.bad_turn(host) if host.endswith("99") else journal.turn(host, 90 + number)
                latest = max(latest, journal.now)
            journal.now = latest + 1
    journal.events.sort(key=lambda event: event["at"])
    journal.read("gw-a", 2_000_000)
    journal.end("failed")
    return journal
