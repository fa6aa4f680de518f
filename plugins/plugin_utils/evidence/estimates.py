# SPDX-License-Identifier: GPL-3.0-or-later
"""How far estimates are from what was measured or reported of the same model on the same hardware."""

from typing import Any, Mapping, Sequence

from .document import ESTIMATED, Evidence

THROUGHPUT = "output_tokens_per_second"


def comparable(evidence: Sequence[Evidence], model: str, accelerator: str, count: int) -> list[Evidence]:
    """Return the evidence that an estimate is compared with: of real hardware, with vLLM's own settings."""
    return [
        entry
        for entry in evidence
        if (entry.model, entry.accelerator, entry.count) == (model, accelerator, count)
        and entry.status != ESTIMATED
        and not entry.preset
    ]


def errors(results: Sequence[Mapping[str, Any]], found: Sequence[Evidence]) -> dict[int, float]:
    """Return by which share the throughput of each estimate is above the best of ``found``, by concurrency.

    The best one, because an estimate knows neither compilation nor a first run. Results of other lengths do not count.
    """
    best: dict[tuple[int, ...], float] = {}
    for result in (result for entry in found for result in entry.results if THROUGHPUT in result):
        step = _step(result)
        best[step] = max(best.get(step, 0.0), result[THROUGHPUT]["median"])
    return {
        result["concurrency"]: result[THROUGHPUT]["median"] / best[_step(result)] - 1
        for result in results
        if best.get(_step(result))
    }


def error_text(shares: Mapping[int, float]) -> str:
    """Return errors as a clause: ``+8 % at 1, -26 % at 64``."""
    return ", ".join(f"{share:+.0%} at {step}".replace("%", " %") for step, share in sorted(shares.items()))


def _step(result: Mapping[str, Any]) -> tuple[int, ...]:
    return result["input_tokens"], result["output_tokens"], result["concurrency"]
