# SPDX-License-Identifier: GPL-3.0-or-later
"""The workloads of a benchmark: from the catalogue or a site, fitted to an instance, with their measurements."""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Mapping, Sequence

from ...module_utils.bench.measurement import DATASETS, PREFIX_REPETITION, Measurement
from ...module_utils.common.kinds import name_kind, show_value
from ...module_utils.common.spelling import nearest, not_a_number
from ..common.places import CATALOG
from ..common.yaml import read_yaml

FILE = CATALOG / "workloads.yml"
DEFINITIONS = "bench_workload_definitions"
# Requests at a time, where the user names none: one person, a team, a busy service, saturation.
STEPS, STEPS_CPU = (1, 8, 64, 256), (1, 4)
_WHOLE = ("input_tokens", "output_tokens", "prefix_tokens", "requests_per_prefix")
_NUMBERS = ("request_rate_per_stream", "burstiness")
_NEEDED = ("dataset", "input_tokens", "output_tokens")


class WorkloadError(ValueError):
    """A workload or a requested setting is invalid; the message is the whole sentence."""


@dataclass(frozen=True)
class Workload:
    """A kind of traffic. Lengths are in tokens; input_tokens includes prefix_tokens.

    request_rate_per_stream: arrivals per second for each of the requests at a time, 0 for all at once.
    """

    name: str
    dataset: str
    input_tokens: int
    output_tokens: int
    title: str = ""
    prefix_tokens: int = 0
    requests_per_prefix: int = 0
    request_rate_per_stream: float = 0.0
    burstiness: float = 1.0

    @property
    def tokens(self) -> int:
        """The length of a prompt and its answer."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class Amount:
    """The number of requests of a measurement: this many for each concurrent request, and at least ``at_least``."""

    per_stream: int = 4
    at_least: int = 8


@dataclass(frozen=True)
class Step:
    """A workload at one concurrency; its measurements differ only in their seeds."""

    workload: Workload
    concurrency: int
    requests: int

    @property
    def name(self) -> str:
        """The name of the step in files."""
        return f"{self.workload.name}-c{self.concurrency}"

    def measurement(self, seed: int, requests: int = 0) -> Measurement:
        """Return a measurement of the step with this seed, and as many requests as the step unless others are given."""
        work, count = self.workload, requests or self.requests
        return Measurement(
            dataset=work.dataset,
            input_tokens=work.input_tokens,
            output_tokens=work.output_tokens,
            prefix_tokens=work.prefix_tokens,
            prefixes=count // work.requests_per_prefix if work.dataset == PREFIX_REPETITION else 0,
            requests=count,
            concurrency=self.concurrency,
            request_rate=round(work.request_rate_per_stream * self.concurrency, 4),
            burstiness=work.burstiness,
            seed=seed,
        )

    def warm_up(self, seed: int) -> Measurement:
        """Return the measurement that is not counted: one round, so that the kernels of this size are compiled."""
        return self.measurement(seed, _rounded(self.workload, self.concurrency))


@dataclass
class Fitted:
    """The workloads that an instance can be measured with, and a line for each that was skipped or changed."""

    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load_workloads(own: Any) -> dict[str, Workload]:
    """Return the workloads of the catalogue and of the site; the site's take precedence. Raises WorkloadError."""
    if not isinstance(own, Mapping):
        raise WorkloadError(f"{DEFINITIONS}: found {name_kind(own)}, expected a mapping of names to workloads")
    bundled = parse_workloads(read_yaml(FILE), str(FILE.name))
    return {**bundled, **parse_workloads(own, DEFINITIONS)}


def parse_workloads(entries: Mapping[str, Any], place: str) -> dict[str, Workload]:
    """Return the workloads by name. Raises WorkloadError, which begins with the place."""
    return {str(name): _parse(str(name), entry, f"{place}: {name}") for name, entry in entries.items()}


def choose_workloads(known: Mapping[str, Workload], names: Sequence[str]) -> list[Workload]:
    """Return the named workloads, all of them without names. Raises WorkloadError."""
    # "chat, agent" of the command line has a space.
    names = [name.strip() for name in names]
    for name in names:
        if name not in known:
            raise WorkloadError(f"bench_workloads: {name!r} is not a workload; {nearest(name, known)}")
    return [known[name] for name in (dict.fromkeys(names) if names else known)]


def read_concurrency(values: Sequence[Any], stack: str) -> list[int]:
    """Return the concurrency steps in order, the usual ones of the stack without values. Raises WorkloadError."""
    if not values:
        return list(STEPS_CPU if stack == "cpu" else STEPS)
    found = []
    for value in values:
        text = str(value).strip()
        if not (text.isascii() and text.isdigit()) or int(text) < 1:
            raise WorkloadError(
                f"bench_concurrency: found {show_value(value)}, expected whole numbers from 1 up, such as [1, 8, 64]"
            )
        found.append(int(text))
    return sorted(set(found))


def fit(
    workloads: Sequence[Workload],
    concurrency: Sequence[int],
    amount: Amount,
    longest: int | None,
    most_sequences: int | None,
    named: bool,
    shorten: bool,
) -> Fitted:
    """Return the steps that an instance can take.

    longest: its max-model-len, most_sequences: its max-num-seqs; None where unknown. A workload that does not fit is
    shortened with ``shorten``, else left out, or an error where the user has named it. Raises WorkloadError.
    """
    fitted = Fitted()
    kept = [step for step in concurrency if most_sequences is None or step <= most_sequences]
    if len(kept) < len(concurrency):
        left = ", ".join(str(step) for step in concurrency if step not in kept)
        fitted.notes.append(f"concurrency {left}: left out, because max-num-seqs of the instance is {most_sequences}")
    for workload in workloads:
        fits = _fitting(workload, longest, named, shorten, fitted.notes)
        fitted.steps += [Step(fits, step, requests_of(fits, step, amount)) for step in kept] if fits else []
    if not fitted.steps:
        raise WorkloadError(f"nothing is left to measure: {'; '.join(fitted.notes)}")
    return fitted


def requests_of(workload: Workload, concurrency: int, amount: Amount) -> int:
    """Return the number of requests of one measurement; with shared prefixes it is a multiple of those of a prefix."""
    return _rounded(workload, max(amount.at_least, amount.per_stream * concurrency))


def shortened(workload: Workload, longest: int) -> Workload:
    """Return the workload with all its lengths reduced by the same factor, so that it fits. Raises WorkloadError."""
    share = longest / workload.tokens
    lengths: dict[str, Any] = {
        name: int(getattr(workload, name) * share) for name in ("input_tokens", "output_tokens", "prefix_tokens")
    }
    if lengths["input_tokens"] < 2 or lengths["output_tokens"] < 1:
        raise WorkloadError(
            f"workload {workload.name}: max-model-len {longest} leaves no room for a prompt and an answer"
        )
    if workload.prefix_tokens:
        lengths["prefix_tokens"] = max(1, lengths["prefix_tokens"])
    return replace(workload, **lengths)


def _fitting(workload: Workload, longest: int | None, named: bool, shorten: bool, notes: list[str]) -> Workload | None:
    if longest is None or workload.tokens <= longest:
        return workload
    need = f"needs {workload.tokens} tokens, and max-model-len of the instance is {longest}"
    if shorten:
        short = shortened(workload, longest)
        notes.append(
            f"workload {workload.name}: shortened to {short.input_tokens} tokens in and {short.output_tokens} out, "
            f"because it {need}"
        )
        return short
    if named:
        raise WorkloadError(f"bench_workloads: {workload.name} {need}; leave it out, or set bench_shorten=true")
    notes.append(f"workload {workload.name}: left out, because it {need} (bench_shorten=true shortens it)")
    return None


def _rounded(workload: Workload, count: int) -> int:
    group = workload.requests_per_prefix if workload.dataset == PREFIX_REPETITION else 1
    return math.ceil(count / group) * group


def _parse(name: str, entry: Any, place: str) -> Workload:
    if not isinstance(entry, Mapping):
        raise WorkloadError(f"{place}: found {name_kind(entry)}, expected a mapping")
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise WorkloadError(f"{place}: a name has letters, digits, - and _ only")
    known = [item.name for item in fields(Workload) if item.name != "name"]
    for key in entry:
        if key not in known:
            raise WorkloadError(f"{place}: unknown key {show_value(key)}; {nearest(str(key), known)}")
    missing = [key for key in _NEEDED if key not in entry]
    if missing:
        raise WorkloadError(f"{place}: {missing[0]} is missing")
    if entry["dataset"] not in DATASETS:
        raise WorkloadError(
            f"{place}: dataset: found {show_value(entry['dataset'])}; {nearest(str(entry['dataset']), DATASETS)}"
        )
    for key in _WHOLE:
        if key in entry:
            _check(place, key, entry[key], int)
    for key in _NUMBERS:
        if key in entry:
            _check(place, key, entry[key], (int, float))
    found = Workload(name=name, **entry)
    _check_combination(place, found)
    return found


def _check_combination(place: str, found: Workload) -> None:
    if found.dataset != PREFIX_REPETITION and (found.prefix_tokens or found.requests_per_prefix):
        key = "prefix_tokens" if found.prefix_tokens else "requests_per_prefix"
        raise WorkloadError(f"{place}: {key} is only for dataset {PREFIX_REPETITION}, found {found.dataset}")
    if found.burstiness != 1 and not found.request_rate_per_stream:
        raise WorkloadError(f"{place}: burstiness needs request_rate_per_stream, which is missing")
    if found.dataset == PREFIX_REPETITION and not 0 < found.prefix_tokens < found.input_tokens:
        raise WorkloadError(
            f"{place}: prefix_tokens: found {found.prefix_tokens}, expected 1 to {found.input_tokens - 1}"
        )
    if found.dataset == PREFIX_REPETITION and not found.requests_per_prefix:
        raise WorkloadError(f"{place}: requests_per_prefix is missing")


def _check(place: str, key: str, value: Any, kind: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not value > 0:
        expected = "a whole number from 1 up" if kind is int else "a number above 0"
        raise WorkloadError(f"{place}: {key}: {not_a_number(value, expected)}")


def definition(workload: Workload) -> dict[str, Any]:
    """Return the definition of a workload in a measurement's file: a changed definition is another measurement."""
    return {key: value for key, value in asdict(workload).items() if key != "title"}
