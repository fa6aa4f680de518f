# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates of an instance: the checks before it gets requests again, and the judgement of its figures."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ..common.kinds import show_value
from .answers import BadAnswerError
from .client import Reply
from .questions import Question, judge, text_request_of
from .streams import read_complete_stream

# Figures are comparable only where these are equal.
SETTINGS = ("streams", "prompts", "max_tokens", "ignore_eos")
# The accepted difference of two measurements of the same instance, as a share of the better one.
STEADY = 0.1
DEFAULTS = {"streams": 4, "prompts": 8, "max_tokens": 64}
PROMPT_TOKENS = 256
_MOST = {"streams": 256, "prompts": 4096, "max_tokens": 131072}
_SHOWN = 120


class GateError(Exception):
    """An option is invalid; the message is the whole sentence."""


@dataclass(frozen=True)
class Prompt:
    """A question with its answer: one of the texts in expect must be in the answer; empty for any text."""

    text: str
    expect: tuple[str, ...]
    system: str
    max_tokens: int


@dataclass(frozen=True)
class MeasuredLoad:
    """The load: ``prompts`` streamed chats, ``streams`` of them at once; with ignore_eos each up to the last token."""

    streams: int
    prompts: int
    max_tokens: int
    ignore_eos: bool = False


@dataclass(frozen=True)
class Limits:
    """The accepted loss against earlier figures; see the options of the module instance_gate."""

    throughput_share: float = 0.8
    first_token_share: float = 0.8
    first_token_slack: float = 0.05


@dataclass(frozen=True)
class Verdict:
    """The outcome of one gate."""

    name: str
    ok: bool
    detail: str

    def row(self) -> dict[str, Any]:
        """Return the reported data of a gate."""
        return {"name": self.name, "ok": self.ok, "detail": self.detail}


@dataclass(frozen=True)
class Sample:
    """One measured stream: seconds until its first token, and the number of tokens that the server counted."""

    first: float
    tokens: int


def prompts_of(entries: Any) -> list[Prompt]:
    """Return the prompts of the option; raises GateError that names the faulty entry."""
    return [_prompt(number, entry) for number, entry in enumerate(entries or [], 1)]


def _prompt(number: int, entry: Any) -> Prompt:
    where = f"prompts: entry {number}"
    if not isinstance(entry, Mapping):
        raise GateError(
            f"{where} is {show_value(entry)}, expected prompt and expect, such as {{prompt: 6 times 7?, expect: 42}}"
        )
    unknown = sorted(set(entry) - {"prompt", "expect", "expect_any", "system", "max_tokens"})
    if unknown:
        known = "prompt, expect, expect_any, system, max_tokens"
        raise GateError(f"{where} has {', '.join(map(str, unknown))}, expected only {known}")
    text = str(entry.get("prompt") or "")
    if not text.strip():
        raise GateError(f"{where} has no prompt, expected a text")
    any_of = entry.get("expect_any") or []
    if isinstance(any_of, str) or not isinstance(any_of, Sequence):
        raise GateError(f"{where} has expect_any {show_value(any_of)}, expected a list of texts")
    if entry.get("expect") not in (None, "") and any_of:
        raise GateError(f"{where} has expect and expect_any, expected one of them")
    # A number in YAML, such as 42, is a valid answer.
    expect = tuple(str(part) for part in (any_of or [entry.get("expect")]) if part not in (None, ""))
    tokens = entry.get("max_tokens")
    limit = _whole(PROMPT_TOKENS if tokens is None else tokens, f"{where} has max_tokens", 1, _MOST["max_tokens"])
    return Prompt(text, expect, str(entry.get("system") or ""), limit)


def load_of(measure: Mapping[str, Any] | None) -> MeasuredLoad:
    """Return the load of the option; missing keys have defaults. Raises GateError that names the key."""
    given = {key: value for key, value in (measure or {}).items() if value is not None}
    unknown = sorted(set(given) - {*DEFAULTS, "ignore_eos"})
    if unknown:
        known = ", ".join([*DEFAULTS, "ignore_eos"])
        raise GateError(f"measure: has {', '.join(map(str, unknown))}, expected only {known}")
    ignore_eos = {"true": True, "false": False}.get(str(given.get("ignore_eos", False)).lower())
    if ignore_eos is None:
        raise GateError(f"measure: has ignore_eos {show_value(given['ignore_eos'])}, expected true or false")
    found = {
        key: _whole(given.get(key, default), f"measure: has {key}", 0 if key == "prompts" else 1, _MOST[key])
        for key, default in DEFAULTS.items()
    }
    return MeasuredLoad(**found, ignore_eos=ignore_eos)


def limits_of(options: Mapping[str, Any]) -> Limits:
    """Return the limits of the module's options; raises GateError that names an invalid one."""
    for name in ("throughput_share", "first_token_share"):
        if not 0 <= options[name] <= 1:
            raise GateError(f"{name}: found {options[name]:g}, expected a share from 0 (any figure will do) to 1")
    return Limits(options["throughput_share"], options["first_token_share"])


def _whole(value: Any, where: str, least: int, most: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise GateError(f"{where} {show_value(value)}, expected a whole number from {least} to {most}")
    return number


def chat_of(model: str, prompt: Prompt, stream: bool) -> tuple[str, str, dict[str, Any] | None]:
    """Return method, path and payload of the request for a prompt."""
    question = Question((model,), prompt.text, "", "", prompt.max_tokens)
    method, path, payload = text_request_of("chat_stream" if stream else "chat", question)
    if prompt.system and payload:
        payload["messages"] = [{"role": "system", "content": prompt.system}, *payload["messages"]]
    return method, path, payload


def measured_chat(model: str, mark: str, number: int, load: MeasuredLoad) -> tuple[str, str, dict[str, Any] | None]:
    """Return method, path and payload of a measured stream."""
    method, path, payload = chat_of(model, measured_prompt(mark, number, load.max_tokens), True)
    if load.ignore_eos and payload:
        payload["ignore_eos"] = True
    return method, path, payload


def measured_prompt(mark: str, number: int, max_tokens: int) -> Prompt:
    """Return the prompt of a measured stream.

    The mark differs each time and comes first. The server answers a prompt from its cache sooner, and the instance
    before a change has answered more prompts than the one after it.
    """
    text = f"Note {mark}-{number}. Describe in about two hundred words what happens in a data centre during a day."
    return Prompt(text, (), "", max_tokens)


def judge_prompt(number: int, prompt: Prompt, reply: Reply) -> Verdict:
    """Return the verdict on a prompt of the fixed set."""
    name = f"prompt {number}"
    finding = judge("chat", Question(("",), prompt.text, "", "", prompt.max_tokens), reply)
    if not finding.ok:
        return Verdict(name, False, f"{short(prompt.text)!r}: {finding.detail}")
    if prompt.expect and not any(text in finding.answer for text in prompt.expect):
        expected = " or ".join(repr(short(text)) for text in prompt.expect)
        said = f"answered {short(finding.answer)!r}, expected it to contain {expected}"
        return Verdict(name, False, f"{short(prompt.text)!r}: {said}")
    return Verdict(name, True, finding.detail)


def sample_of(reply: Reply) -> Sample:
    """Return the sample of a measured stream; raises BadAnswerError for an incomplete one.

    Its text does not matter: a model that reasons may need all tokens for that.
    """
    stream = read_complete_stream(reply)
    if not stream.tokens or not stream.first:
        raise BadAnswerError(f"the stream held no token (finish_reason {stream.finish}), expected some")
    return Sample(stream.first, stream.tokens)


def figures_of(samples: Sequence[Sample], seconds: float, load: MeasuredLoad) -> dict[str, Any]:
    """Return the figures of a measurement, with its seconds from the first request to the last token."""
    if not samples:
        return {}
    firsts = sorted(sample.first for sample in samples)
    tokens = sum(sample.tokens for sample in samples)
    figures: dict[str, Any] = {
        "tokens_per_second": round(tokens / max(seconds, 1e-6), 2),
        "first_token_s": round(statistics.median(firsts), 4),
        "first_token_p90_s": round(firsts[math.ceil(0.9 * len(firsts)) - 1], 4),
        "requests": len(samples),
        "seconds": round(seconds, 3),
        "tokens": tokens,
        "prompts": load.prompts,
        "streams": load.streams,
        "max_tokens": load.max_tokens,
    }
    if load.ignore_eos:
        # A number like the others: records of figures may accept nothing else.
        figures["ignore_eos"] = 1
    return figures


def compared(figures: Mapping[str, Any], baseline: Mapping[str, Any], limits: Limits) -> list[Verdict]:
    """Return the verdicts on figures against those of an earlier run; runs with other settings are not compared."""
    if not figures or not baseline:
        return []
    why = _not_comparable(figures, baseline)
    if why:
        return [Verdict("baseline", True, f"not compared: {why}")]
    return [_throughput(figures, baseline, limits), _first_token(figures, baseline, limits)]


def steady(figures: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    """Return whether the tokens per second of two measurements agree, so that a third is not needed."""
    if not figures or not best:
        return False
    fewer, more = sorted((figures["tokens_per_second"], best["tokens_per_second"]))
    return bool(fewer >= (1 - STEADY) * more)


def _not_comparable(figures: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
    for name in SETTINGS:
        now, before = figures.get(name, ""), baseline.get(name, "")
        if now != before:
            return f"the baseline was measured with {name} {before or 'unknown'}, now it is {now or 'unknown'}"
    for name in ("tokens_per_second", "first_token_s"):
        value = baseline.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            return f"{name} of the baseline is {show_value(value)}, expected a number above 0"
    return ""


def _throughput(figures: Mapping[str, Any], baseline: Mapping[str, Any], limits: Limits) -> Verdict:
    now, before = figures["tokens_per_second"], baseline["tokens_per_second"]
    share = now / before
    told = f"{now:g} tokens/s, before {before:g}: {share:.2f} of it, expected at least {limits.throughput_share:g}"
    each, each_before = _tokens_each(figures), _tokens_each(baseline)
    # The time before the first token weighs more on short answers.
    if each and each_before and not 0.8 <= each / each_before <= 1.25:
        told += f" (an answer had {each:.0f} tokens, before {each_before:.0f})"
    return Verdict("throughput", share >= limits.throughput_share, told)


def _tokens_each(figures: Mapping[str, Any]) -> float:
    tokens, requests = figures.get("tokens"), figures.get("requests")
    return tokens / requests if isinstance(tokens, (int, float)) and isinstance(requests, int) and requests else 0.0


def _first_token(figures: Mapping[str, Any], baseline: Mapping[str, Any], limits: Limits) -> Verdict:
    now, before = figures["first_token_s"], baseline["first_token_s"]
    # Too short for the clock.
    share = before / max(now, 1e-6)
    ok = share >= limits.first_token_share or now - before <= limits.first_token_slack
    told = (
        f"first token after {now:.3f} s (median), before {before:.3f} s: {share:.2f} as fast, "
        f"expected at least {limits.first_token_share:g} or at most {limits.first_token_slack:g} s more"
    )
    return Verdict("first_token", ok, told)


def describe_figures(figures: Mapping[str, Any] | None) -> str:
    """Return figures as text for a message."""
    if not figures:
        return "not measured"
    shown = {key: figures.get(key) for key in ("tokens_per_second", "first_token_s", "first_token_p90_s", "requests")}
    return (
        f"{shown['tokens_per_second']} tokens/s, first token after {shown['first_token_s']} s (median), "
        f"{shown['first_token_p90_s']} s (p90), {shown['requests']} requests, {figures.get('streams')} at a time"
    )


def message(
    what: str, verdicts: Sequence[Verdict], figures: Mapping[str, Any], baseline: Mapping[str, Any] | None
) -> str:
    """Return one line where all gates passed, else every failure with the figures before and now."""
    bad = [verdict for verdict in verdicts if not verdict.ok]
    if not bad:
        summary = f"{what} passes {len(verdicts)} gates" if verdicts else f"{what}: no gate was requested"
        return f"{summary}: {describe_figures(figures)}" if figures else summary
    lines = [f"{what} does not pass {len(bad)} of {len(verdicts)} gates:"]
    lines += [f"- {verdict.name}: {verdict.detail}" for verdict in bad]
    if figures:
        lines += [f"Before: {describe_figures(baseline)}.", f"Now: {describe_figures(figures)}."]
    return "\n".join(lines)


def short(text: str) -> str:
    """Return a text in the length that a message allows."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
