#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Estimate the throughput of gpt-oss on NVIDIA's chips with AIConfigurator, and write it as estimated evidence.

python3 -m venv /tmp/aic && /tmp/aic/bin/pip install aiconfigurator==0.12.0
PYTHONPATH=.collections .venv/bin/python tools/estimate_evidence.py /tmp/aic/bin/aiconfigurator

Every file states the error of the same model's estimates where the model was measured or reported. The estimates need
no network.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.evidence import evidence_text
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import (
    ESTIMATED,
    PLACE,
    UNKNOWN,
    read_document,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.estimates import (
    THROUGHPUT,
    comparable,
    error_text,
    errors,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.files import BUNDLED, load_evidence

# The chips of the catalogue that AIConfigurator has vLLM's figures of, by its names.
SYSTEMS = {
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "l40s": "l40s",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
# Chips of one replica, as the recipes have it: 1 where a chip is not named, 0 where the estimate is left out. Of eight
# L40S AIConfigurator 0.12.0 expects 771 tokens/s at 512 requests and 715 at 64, which is not credible.
CHIPS: Mapping[str, Mapping[str, int]] = {
    "openai/gpt-oss-20b": {},
    "openai/gpt-oss-120b": {"h100": 2, "h200": 2, "l40s": 0},
}
# The workload chat of catalog/workloads.yml, and the steps at which it was measured on the H200.
INPUT_TOKENS, OUTPUT_TOKENS, STEPS = 1024, 512, (1, 64, 512)
_NUMBER = r":\s+([\d,.]+)"


class EstimateError(Exception):
    """AIConfigurator gave no figures; the message is the whole sentence."""


@dataclass(frozen=True)
class Estimate:
    """What AIConfigurator says of one step: output tokens per second, milliseconds per token, the vLLM it knows."""

    concurrency: int
    tokens_per_second: float
    tpot_ms: float
    release: str


def command(program: str, model: str, system: str, chips: int, concurrency: int) -> list[str]:
    """Return the command that estimates one step with measured kernels alone (database mode SILICON)."""
    sizes = {"isl": INPUT_TOKENS, "osl": OUTPUT_TOKENS, "batch-size": concurrency}
    parallel = {"tp-size": chips, "moe-tp-size": chips, "moe-ep-size": 1}
    words = [program, "cli", "estimate", "--model-path", model, "--system", system, "--backend", "vllm", "--no-color"]
    words += ["--database-mode", "SILICON"]
    return words + [word for key, value in {**sizes, **parallel}.items() for word in (f"--{key}", str(value))]


def parse_estimate(text: str, concurrency: int) -> Estimate:
    """Return the figures of AIConfigurator's output. Raises EstimateError."""
    speed, tpot = (re.search(rf"(?m)^\s*{name}{_NUMBER}", text) for name in ("tokens/s", "TPOT"))
    release = re.search(r"(?m)^\s*Backend:\s+vllm \((\d+(?:\.\d+)+)\)", text)
    if not speed or not tpot or not release:
        last = [line for line in text.splitlines() if line.strip()][-1:] or ["it printed nothing"]
        raise EstimateError(f"AIConfigurator gave no figures for {concurrency} requests at a time: {last[0].strip()}")
    figures = [float(found[1].replace(",", "")) for found in (speed, tpot)]
    return Estimate(concurrency, figures[0], figures[1], release[1])


def note(tool: str, known: Mapping[str, str], model: str, hardware: str) -> str:
    """Return what a reader must know of an estimate; ``known`` has the error of the model's estimates by hardware."""
    told = "; ".join(f"{error} requests at a time on {name}" for name, error in sorted(known.items()))
    error = (
        f"Error of the estimates of this model against the best figures that were measured or reported: {told}."
        if told
        else f"The error is not known: nothing was measured of {model} here."
    )
    if told and hardware not in known:
        error += " The error on this chip is not known."
    return (
        f"Calculated by {tool} from its tables of kernels, on no chip and with no vLLM. {error} The time to the first "
        "token is left out: the tool spreads arrivals evenly, a benchmark does not."
    )


def result_of(estimate: Estimate) -> dict[str, Any]:
    """Return the entry of ``results`` for an estimate; there is no spread."""
    return {
        "workload": "chat",
        "input_tokens": INPUT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
        "concurrency": estimate.concurrency,
        "repeats": 1,
        THROUGHPUT: _single(estimate.tokens_per_second, 1),
        "tpot_ms": _single(estimate.tpot_ms, 2),
    }


def document(
    model: str, chip: str, chips: int, estimates: Sequence[Estimate], tool: str, date: str, text: str
) -> dict[str, Any]:
    """Return the evidence of one model on one chip."""
    return {
        "status": ESTIMATED,
        "source": tool,
        "date": date,
        "note": text,
        "model": model,
        "weights": UNKNOWN,
        "release": estimates[0].release,
        "accelerator": chip,
        "count": chips,
        "results": [result_of(each) for each in estimates],
    }


def _single(value: float, digits: int) -> dict[str, float]:
    return dict.fromkeys(("median", "lowest", "highest"), round(value, digits))


def hardware_name(chip: str, chips: int) -> str:
    """Return hardware for a note: 2 x h100."""
    return f"{chips} x {chip}"


def estimate(program: str, model: str, chip: str, chips: int) -> list[Estimate]:
    """Run AIConfigurator for each step. Raises EstimateError."""
    found = []
    for step in STEPS:
        words = command(program, model, SYSTEMS[chip], chips, step)
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        found.append(parse_estimate(done.stdout if not done.returncode else done.stdout + done.stderr, step))
    return found


def version_of(program: str) -> str:
    """Return tool and version for ``source``."""
    done = subprocess.run([program, "version"], capture_output=True, text=True, check=True, timeout=60)
    numbers = re.findall(r"\b\d+\.\d+\.\d+\b", done.stdout)
    if not numbers:
        raise EstimateError(f"{program} version: found no version in {done.stdout!r}")
    return f"AIConfigurator {numbers[-1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("aiconfigurator", help="the program, in a separate virtual environment")
    parser.add_argument("--directory", type=Path, default=BUNDLED, help="where evidence is written")
    options = parser.parse_args()
    tool, date = version_of(options.aiconfigurator), datetime.now(timezone.utc).strftime("%Y-%m-%d")
    evidence = load_evidence()
    for model, counts in CHIPS.items():
        known: dict[str, str] = {}
        found: dict[str, list[Estimate]] = {}
        for chip in SYSTEMS:
            chips = counts.get(chip, 1)
            if not chips:
                continue
            try:
                found[chip] = estimate(options.aiconfigurator, model, chip, chips)
            except EstimateError as exc:
                print(f"{model} on {hardware_name(chip, chips)}: {exc}", flush=True)
                continue
            error = errors([result_of(each) for each in found[chip]], comparable(evidence, model, chip, chips))
            if error:
                known[hardware_name(chip, chips)] = error_text(error)
            speeds = [f"{each.tokens_per_second:,.0f} at {each.concurrency}" for each in found[chip]]
            print(f"{model} on {hardware_name(chip, chips)}: {', '.join(speeds)} {error_text(error)}", flush=True)
        for chip, estimates in found.items():
            chips = counts.get(chip, 1)
            text = note(tool, known, model, hardware_name(chip, chips))
            write(document(model, chip, chips, estimates, tool, date, text), options.directory)
    return 0


def write(found: Mapping[str, Any], directory: Path) -> None:
    """Write one file of evidence to its place, and remove the estimate of an earlier day."""
    name = f"{PLACE.format(**found)}-estimated"
    path = directory / f"{name}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob("*-estimated.yml"):
        old.unlink()
    path.write_text(evidence_text(found), encoding="utf-8")
    read_document(dict(found), name, str(path))


if __name__ == "__main__":
    raise SystemExit(main())
