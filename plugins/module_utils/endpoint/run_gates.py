# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the gates of an instance from its own host."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from .answers import BadAnswerError
from .client import TimedClient
from .gates import (
    Limits,
    MeasuredLoad,
    Prompt,
    Sample,
    Verdict,
    chat_of,
    compared,
    figures_of,
    judge_prompt,
    measured_chat,
    sample_of,
    steady,
)


@dataclass(frozen=True)
class Gates:
    """The gates of an instance, and the earlier figures to compare with."""

    prompts: Sequence[Prompt]
    warm: int
    load: MeasuredLoad
    baseline: Mapping[str, Any]
    limits: Limits
    tries: int = 3
    pause: float = 5.0


class Asker:
    """Runs the gates of one instance."""

    def __init__(self, client: TimedClient, model: str, timeout: float) -> None:
        self._client = client
        self._model = model
        self._timeout = timeout

    def ask(self, gates: Gates) -> tuple[dict[str, Any], list[Verdict]]:
        """Return the figures, empty without a measurement, and a verdict for each gate that was run.

        An instance that does not answer gets no further request, because each would wait as long.
        """
        verdicts = self._warm(gates)
        if any(not verdict.ok for verdict in verdicts):
            return {}, verdicts
        of_prompts, answers = self._prompts(gates)
        verdicts += of_prompts
        if not gates.load.prompts or not answers:
            return {}, verdicts
        figures, of_load = self._measured(gates)
        return figures, verdicts + of_load

    def _warm(self, gates: Gates) -> list[Verdict]:
        for number in range(gates.warm):
            chat = measured_chat(self._model, secrets.token_hex(4), number, gates.load)
            try:
                sample_of(self._client.request(*chat, self._timeout))
            except BadAnswerError as exc:
                return [Verdict("warm", False, f"request {number + 1} of {gates.warm}: {exc}")]
        return [Verdict("warm", True, f"{gates.warm} requests answered")] if gates.warm else []

    def _prompts(self, gates: Gates) -> tuple[list[Verdict], bool]:
        """Return a verdict for each prompt, and whether the instance still answers."""
        verdicts = []
        for number, prompt in enumerate(gates.prompts, 1):
            reply = self._client.request(*chat_of(self._model, prompt, False), self._timeout)
            verdicts.append(judge_prompt(number, prompt, reply))
            if not reply.status or reply.failure:
                return verdicts, False
        return verdicts, True

    def _measured(self, gates: Gates) -> tuple[dict[str, Any], list[Verdict]]:
        """Measure until the figures are good enough, at most ``tries`` times; the best measurement counts.

        Other work of the host can disturb one; a slow host fails each time. Figures that have nothing to be compared
        with become the baseline of others, and a disturbed baseline would let a slow instance pass. They are good
        enough when two measurements agree.
        """
        best: dict[str, Any] = {}
        verdicts: list[Verdict] = []
        disturbed = False
        for attempt in range(1, gates.tries + 1):
            if disturbed:
                # A disturbance often lasts a moment longer.
                time.sleep(gates.pause)
            samples, seconds, problem = self.measure(gates.load)
            if problem:
                return {}, [Verdict("measure", False, problem)]
            figures = figures_of(samples, seconds, gates.load)
            found = compared(figures, gates.baseline, gates.limits)
            judged = any(verdict.name == "throughput" for verdict in found)
            good = all(verdict.ok for verdict in found) if judged else steady(figures, best)
            disturbed = not good and (judged or bool(best))
            if (good and judged) or not best or figures["tokens_per_second"] > best["tokens_per_second"]:
                best = figures
                times = "" if attempt == 1 else f", measured for the {attempt}. time"
                told = f"{len(samples)} streams in {figures['seconds']:g} s{times}"
                verdicts = [Verdict("measure", True, told), *found]
            if good:
                break
        return best, verdicts

    def measure(self, load: MeasuredLoad) -> tuple[list[Sample], float, str]:
        """Return the samples of a load, its seconds, and the first failure; no request starts after a failure."""
        mark = secrets.token_hex(4)
        left = list(range(load.prompts, 0, -1))
        samples: list[Sample] = []
        problems: list[str] = []
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    if problems or not left:
                        return
                    number = left.pop()
                reply = self._client.request(*measured_chat(self._model, mark, number, load), self._timeout)
                try:
                    sample = sample_of(reply)
                except BadAnswerError as exc:
                    with lock:
                        problems.append(f"stream {number} of {load.prompts}, {load.streams} at a time: {exc}")
                    return
                with lock:
                    samples.append(sample)

        threads = [threading.Thread(target=work, daemon=True) for _number in range(min(load.streams, load.prompts))]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return samples, time.monotonic() - began, problems[0] if problems else ""
