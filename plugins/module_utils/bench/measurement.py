# SPDX-License-Identifier: GPL-3.0-or-later
"""One measurement with ``vllm bench serve``: its parameters, and the command that takes it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Mapping

from ..common.kinds import show_value
from ..common.spelling import nearest, not_a_number

RANDOM, PREFIX_REPETITION = "random", "prefix_repetition"
DATASETS = (RANDOM, PREFIX_REPETITION)
# numpy, which generates the prompts, accepts no larger seed.
LARGEST_SEED = 2**32 - 1
PERCENTILES = "50,90,99"
# Seconds between SIGTERM and SIGKILL for the benchmark.
KILL_AFTER = 10
# The exit statuses of timeout(1) after the time limit, by the first and by the second signal.
TIMED_OUT = (124, 137)
API_KEY = "OPENAI_API_KEY"
COMMAND = ("bench", "serve")
# The same benchmark, for an environment whose `vllm` command does not work.
BY_MODULE = (
    "from vllm.benchmarks.serve import add_cli_args, main; "
    "from vllm.utils.argparse_utils import FlexibleArgumentParser; "
    "parser = FlexibleArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


class BenchError(Exception):
    """A measurement is impossible or went wrong; the message is the whole sentence without its full stop."""


@dataclass(frozen=True)
class Measurement:
    """The parameters of one measurement.

    input_tokens: the complete prompt of each request, including the prefix_tokens that it shares with other requests.
    prefixes: how many different prefixes there are; both 0 with the data set random. concurrency: requests at a time.
    request_rate: arrivals per second, 0 for all at once. burstiness: the shape of the gamma distribution of the
    arrivals; 1 is a Poisson process, below 1 requests come in bursts.
    """

    dataset: str
    input_tokens: int
    output_tokens: int
    requests: int
    concurrency: int
    seed: int
    prefix_tokens: int = 0
    prefixes: int = 0
    request_rate: float = 0.0
    burstiness: float = 1.0


@dataclass(frozen=True)
class Target:
    """How an instance is measured on its host.

    url and model: where requests go, and the served name in them. tokenizer: its name or path, as vLLM finds it.
    options: further arguments of the benchmark. command: the words that start vllm bench serve. inside: the words that
    run a command in the instance's container, empty for a virtual environment.
    """

    url: str
    model: str
    tokenizer: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()


def measurement_of(values: Mapping[str, Any]) -> Measurement:
    """Return the measurement that an option of a module describes. Raises BenchError."""
    known = {field.name: field for field in fields(Measurement)}
    for name in values:
        if name not in known:
            raise BenchError(f"measurement: unknown key {show_value(name)}; {nearest(name, known)}")
    for name in ("dataset", "input_tokens", "output_tokens", "requests", "concurrency", "seed"):
        if name not in values:
            raise BenchError(f"measurement: {name} is missing")
    found = Measurement(**values)
    if found.dataset not in DATASETS:
        raise BenchError(f"measurement: dataset is {found.dataset!r}; {nearest(str(found.dataset), DATASETS)}")
    for name in ("input_tokens", "output_tokens", "requests", "concurrency"):
        _check_whole(name, getattr(found, name), 1)
    _check_whole("seed", found.seed, 0)
    if found.seed > LARGEST_SEED:
        raise BenchError(f"measurement: seed: found {found.seed}, expected at most {LARGEST_SEED}")
    if found.dataset == PREFIX_REPETITION:
        _check_prefixes(found)
    return found


def bench_argv(target: Target, measurement: Measurement, directory: str, name: str) -> list[str]:
    """Return ``vllm bench serve`` with all its options; it writes its result to the file ``name`` in ``directory``.

    All options exist in vLLM 0.25.1, 0.32.0 and 0.33.0. No secret is among the words.
    """
    words = [*target.command, "--base-url", target.url, "--model", target.model]
    words += ["--tokenizer", target.tokenizer, *target.options]
    words += ["--dataset-name", measurement.dataset, *_lengths(measurement)]
    words += ["--num-prompts", str(measurement.requests), "--max-concurrency", str(measurement.concurrency)]
    if measurement.request_rate:
        words += ["--request-rate", f"{measurement.request_rate:g}", "--burstiness", f"{measurement.burstiness:g}"]
    # An answer that ends early would make runs of different lengths.
    words += ["--seed", str(measurement.seed), "--ignore-eos", "--disable-tqdm"]
    words += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", PERCENTILES]
    return [*words, "--save-result", "--result-dir", directory, "--result-filename", name]


def limited_argv(target: Target, words: list[str], seconds: float, names: Mapping[str, str]) -> list[str]:
    """Return the command that runs ``words`` beside the instance for at most ``seconds``.

    The limit also applies inside the container, because a process started by an engine's ``exec`` outlives it.
    ``names`` are variables with their values; a secret is passed on by its name alone.
    """
    limited = ["timeout", f"--kill-after={KILL_AFTER}", f"{seconds:g}", *words]
    if not target.inside:
        return limited
    passed = [f"{name}={value}" for name, value in sorted(names.items()) if name != API_KEY]
    passed += [API_KEY] if API_KEY in names else []
    engine, verb, container = target.inside
    return [engine, verb, *(word for value in passed for word in ("--env", value)), container, *limited]


def _lengths(measurement: Measurement) -> list[str]:
    if measurement.dataset == RANDOM:
        lengths = {"input-len": measurement.input_tokens, "output-len": measurement.output_tokens}
        return [word for key, value in lengths.items() for word in (f"--random-{key}", str(value))]
    lengths = {
        "prefix-len": measurement.prefix_tokens,
        "suffix-len": measurement.input_tokens - measurement.prefix_tokens,
        "num-prefixes": measurement.prefixes,
        "output-len": measurement.output_tokens,
    }
    return [word for key, value in lengths.items() for word in (f"--prefix-repetition-{key}", str(value))]


def _check_prefixes(found: Measurement) -> None:
    _check_whole("prefix_tokens", found.prefix_tokens, 1)
    _check_whole("prefixes", found.prefixes, 1)
    if found.prefix_tokens >= found.input_tokens:
        raise BenchError(
            f"measurement: prefix_tokens is {found.prefix_tokens}, expected less than input_tokens "
            f"({found.input_tokens})"
        )
    # vLLM would leave out the rest.
    if found.requests % found.prefixes:
        raise BenchError(
            f"measurement: requests is {found.requests}, expected a multiple of prefixes ({found.prefixes})"
        )


def _check_whole(name: str, value: Any, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise BenchError(f"measurement: {name}: {not_a_number(value, f'a whole number from {lowest} up')}")
