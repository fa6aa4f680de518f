# SPDX-License-Identifier: GPL-3.0-or-later
"""Warm an instance on this host up."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ..common.foreign_json import load_json
from .api_host import ask
from .config_file import Listening
from .listener_host import StrangerError
from .warm_up import REPEATS, Limits, Progress, completion, lengths, steps


class WarmUpError(Exception):
    """vLLM did not answer a request of the warm-up."""


class WarmUp:
    """Runs requests until each batch size takes the same time twice, or once what is ``known``, or the time is up.

    Every size runs once before any runs again: what is compiled for a size is compiled the first time. In between,
    single prompts of many lengths run, until that compiles nothing any longer. Where all smaller sizes take what is
    known, the largest does not run: on an H200 that was 4 s of 9, and without it the first minute had the same tokens.
    """

    def __init__(
        self,
        listening: Listening,
        limits: Limits,
        vocabulary: int,
        seconds: float,
        known: dict[int, float] | None = None,
    ) -> None:
        self.listening, self.limits, self.vocabulary = listening, limits, vocabulary
        self.progress = Progress(seconds, known=known or {})

    def run(self) -> str:
        """Run all sizes; return a line for the journal. Raises WarmUpError."""
        found = self._ask("GET", "/v1/models")
        try:
            model = found["data"][0]["id"]
            # Without a setting of the plan, vLLM takes the model's own limit.
            longest = found["data"][0].get("max_model_len")
        except (AttributeError, LookupError, TypeError, ValueError) as exc:
            raise WarmUpError(f"GET /v1/models names no model ({type(exc).__name__})") from exc
        if isinstance(longest, int) and longest > 0:
            self.limits = replace(self.limits, max_model_len=longest)
        return self.progress.summary(self._rounds(model))

    def _rounds(self, model: str) -> str:
        """Run the sizes round by round and return what is left to do."""
        cold = list(steps(self.limits))
        for number in range(1, REPEATS + 1):
            for at_once, tokens in cold:
                if at_once == cold[-1][0] and self.progress.as_before(at_once):
                    continue
                if not self.progress.fits(at_once):
                    return f"the time was up at {at_once} requests at a time in round {number}"
                self._step(model, at_once, tokens)
            if number == 1:
                self.all_lengths(model)
            cold = [step for step in cold if step[0] in self.progress.times and not self.progress.warm(step[0])]
        return "every size is warm" if not cold else f"{cold[0][0]} requests at a time still get faster"

    def all_lengths(self, model: str) -> None:
        """Run prompts of all lengths, one after the other, until the time is up or many in a row were not slow."""
        for tokens in lengths(self.limits):
            if tokens in self.progress.alone:
                continue
            if self.progress.lengths_done():
                return
            began = time.monotonic()
            self.request(model, tokens, 0, output=1)
            self.progress.add_length(tokens, time.monotonic() - began)

    def _step(self, model: str, at_once: int, tokens: int) -> None:
        """Run one size once."""
        began = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda number: self.request(model, tokens, number), range(at_once)))
        self.progress.add_step(at_once, time.monotonic() - began)

    def request(self, model: str, tokens: int, number: int, **more: int) -> None:
        """Run one request. Raises WarmUpError."""
        body = completion(model, self.vocabulary, tokens, number, **more)
        self._ask("POST", "/v1/completions", json.dumps(body), 60.0)

    def _ask(self, method: str, path: str, body: str | None = None, more: float = 0.0) -> Any:
        """Return the JSON of an answer, which may come ``more`` seconds after the time is up.

        Raises WarmUpError, and StrangerError where somebody else listens.
        """
        # systemd passes the unit's secrets to this program.
        key = os.environ.get("VLLM_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        left = max(0.1, self.progress.deadline + more - time.monotonic())
        try:
            answer = ask(self.listening, method, path, left, body, headers)
            if answer.status != 200:
                raise WarmUpError(f"{method} {path} answers {answer.status}: {answer.text[:200]}")
            return load_json(answer.body)
        except StrangerError:
            raise
        except (OSError, ValueError) as exc:
            raise WarmUpError(f"{method} {path}: {str(exc) or type(exc).__name__}") from exc
