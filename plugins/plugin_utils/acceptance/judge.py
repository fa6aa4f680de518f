# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a machine by its measurements: findings with place, what was found, what was expected, what to do."""

from dataclasses import asdict, dataclass
from typing import Any, Iterator, Mapping, Sequence

# Names and units of the figures, and what to check if one is too low.
FIGURES = {
    "bf16_tflops": ("bf16 matrix products", "TFLOP/s", "check its temperature, power limit and clocks"),
    "copy_tb_per_s": ("copies in memory", "TB/s", "check its memory errors, temperature and memory clock"),
    "peer_gb_per_s": (
        "copies between chips",
        "GB/s",
        "check the links with the vendor's tool (nvidia-smi nvlink -s)",
    ),
}
PHASE_FIGURES = {"products": "bf16_tflops", "copy": "copy_tb_per_s"}
# The figure of the phase peer, which has a row for each pair.
PEER_FIGURE = "peer_gb_per_s"
RESET = "reset the chip, repeat the acceptance, and replace the chip if the error returns"


@dataclass(frozen=True)
class AcceptanceFinding:
    """Why a machine is not accepted. One about a figure has ``found``, ``expected``, ``fraction`` and ``unit``."""

    where: str
    what: str
    action: str
    found: float | None = None
    expected: float | None = None
    fraction: float | None = None
    unit: str = ""

    @property
    def sentence(self) -> str:
        """The finding as a sentence for a message: place, what is wrong, what to do."""
        return f"{self.where}: {self.what}; {self.action}"

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain data, without missing figures."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


@dataclass(frozen=True)
class Judgement:
    """The findings, the notes, and the skipped checks with the reason."""

    findings: tuple[AcceptanceFinding, ...]
    notes: tuple[str, ...]
    not_tried: tuple[dict[str, str], ...]

    @property
    def accepted(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def judge(document: Mapping[str, Any]) -> Judgement:
    """Judge the measurements of one host.

    ``document`` has ``accelerator`` (the fact accelerator_detected), ``expected`` (of options.expected_figures),
    ``driver`` (findings of the stack's state module), ``burn_in`` (result of the module acceptance_burn_in),
    ``storage``, ``network``, ``chats``, ``benches`` (results of acceptance_bench) and ``limits``; a part that was not
    tried is empty.
    """
    findings = [
        *_driver(document.get("driver") or {}),
        *_burn_in(document),
        *_counters(document.get("burn_in") or {}),
        *_throughput("storage", "gb_per_s", "GB/s", document),
        *_throughput("network", "gbit_per_s", "Gbit/s", document),
        *_chats(document.get("chats") or []),
        *_benches(document),
    ]
    return Judgement(tuple(findings), tuple(_notes(document)), tuple(_not_tried(document)))


def _driver(driver: Mapping[str, Any]) -> Iterator[AcceptanceFinding]:
    for finding in driver.get("findings") or ():
        yield AcceptanceFinding(finding["where"], finding["what"], finding["action"])
    if driver.get("failed"):
        yield AcceptanceFinding("driver", str(driver.get("msg", "it cannot be read")), "see the message")


def _burn_in(document: Mapping[str, Any]) -> Iterator[AcceptanceFinding]:
    burn_in = document.get("burn_in") or {}
    if burn_in.get("problem"):
        yield AcceptanceFinding(
            "burn-in", burn_in["problem"], "the figures that it had measured before are in the report"
        )
    measured = burn_in.get("measured") or {}
    for phase, figure in PHASE_FIGURES.items():
        for row in measured.get(phase) or ():
            yield from _chip(chip_name(row["chip"], document), figure, row, document)
    chips, count = len(document.get("expected") or {}), len(measured.get("products") or ())
    if 0 < count < chips:
        what = f"torch saw {count} of {chips} chips, and the others were not tested"
        yield AcceptanceFinding("burn-in", what, "check the driver's findings and the kernel's log")
    for row in measured.get("peer") or ():
        one, other = (chip_name(row[end], document) for end in ("from", "to"))
        if row["wrong"]:
            yield AcceptanceFinding(f"chip {one}", f"a copy to chip {other} arrived with wrong data", RESET)
        expected = expected_of_pair(row, document)
        if expected:
            yield from _short(f"chip {one} to chip {other}", PEER_FIGURE, row["median"], expected, document)


def _chip(chip: str, figure: str, row: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[AcceptanceFinding]:
    if row["wrong"]:
        yield AcceptanceFinding(
            f"chip {chip}", f"{FIGURES[figure][0]} gave wrong results ({row['wrong']} times)", RESET
        )
    expected = expected_of(chip, document).get(figure)
    if expected:
        yield from _short(f"chip {chip}", figure, row["median"], expected, document)


def _short(
    where: str, figure: str, found: float, expected: Mapping[str, Any], document: Mapping[str, Any]
) -> Iterator[AcceptanceFinding]:
    """Yield a figure that is below the acceptable fraction of what is expected."""
    fraction = found / expected["value"]
    if fraction >= expected["acceptable"]:
        return
    title, unit, action = FIGURES[figure]
    users = [unit for unit in (document.get("driver") or {}).get("active") or () if unit.startswith("vllm@")]
    if users:
        action = f"{', '.join(users)} was running: drain the host or stop it and repeat; otherwise {action}"
    yield AcceptanceFinding(
        where,
        f"{title} at {found:g} {unit}, {fraction:.2f} of the expected {expected['value']:g} "
        f"({expected['status']}: {expected['source']}), at least {expected['acceptable']:g} is acceptable",
        action,
        found,
        expected["value"],
        round(fraction, 3),
        unit,
    )


def expected_of(chip: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the figures that a chip is compared with, empty where the catalogue has none."""
    figures: Mapping[str, Any] = (document.get("expected") or {}).get(chip) or {}
    return figures


def expected_of_pair(row: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what copies between two chips are compared with; None where they do not reach each other directly."""
    return expected_of(chip_name(row["from"], document), document).get(PEER_FIGURE) if row["direct"] else None


def chip_name(number: int, document: Mapping[str, Any]) -> str:
    """Return the PCI address of a chip by torch's number: as torch reports it, else by the order of the addresses."""
    rows = ((document.get("burn_in") or {}).get("measured") or {}).get("products") or []
    told = {row["chip"]: row["address"] for row in rows}
    addresses = sorted(document.get("expected") or {})
    if told.get(number) in addresses:
        return str(told[number])
    return addresses[number] if number < len(addresses) else "cpu" if not addresses else str(number)


def _counters(burn_in: Mapping[str, Any]) -> Iterator[AcceptanceFinding]:
    """Yield counters that rose, chips that were slowed down, faults, links below their width, chips that vanished."""
    counters = burn_in.get("counters") or {}
    before = {row["chip"]: row for row in counters.get("before") or ()}
    after = {row["chip"]: row for row in counters.get("after") or ()}
    if counters.get("problem"):
        yield AcceptanceFinding("error counters", counters["problem"], "correct that, then repeat the acceptance")
    for chip in sorted(set(before) - set(after)) if after else ():
        yield AcceptanceFinding(f"chip {chip}", "the vendor's tool no longer lists it after the burn-in", RESET)
    samples = counters.get("samples") or []
    for chip, row in after.items():
        where, first = f"chip {chip}", before.get(chip, {"errors": {}, "slowed": {}})
        for name, count in row["errors"].items():
            if count > first["errors"].get(name, 0):
                what = f"{name} rose from {first['errors'].get(name, 0)} to {count} during the burn-in"
                yield AcceptanceFinding(where, what, RESET)
        for fault in row["faults"]:
            yield AcceptanceFinding(where, fault, RESET)
        yield from _slowed(where, first, row, [sample for sample in samples if sample["chip"] == chip])
        yield from _link(where, [*(sample for sample in samples if sample["chip"] == chip), row])


def _slowed(
    where: str, first: Mapping[str, Any], last: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]
) -> Iterator[AcceptanceFinding]:
    names = {name for name, count in last["slowed"].items() if count > first["slowed"].get(name, 0)}
    names |= {name for sample in samples for name in sample["slowing"]}
    if names:
        hottest = max((value for row in [*samples, last] for value in row["celsius"].values()), default=None)
        heat = "" if hottest is None else f", at up to {hottest:g} C"
        what = f"it was slowed down during the burn-in ({', '.join(sorted(names))}{heat})"
        yield AcceptanceFinding(where, what, "check fans, airflow, the temperature of the room, and power supplies")


def _link(where: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[AcceptanceFinding]:
    """Yield a PCIe link below its maximum under load; an idle one may be slower to save power."""
    for name, unit in (("link_width", "lanes"), ("link_gen", "generation")):
        best, most = max(row[name] for row in rows), max(row[f"{name}_max"] for row in rows)
        if best and most and best < most:
            what = f"its PCIe link ran at {unit} {best} of {most}"
            yield AcceptanceFinding(where, what, "check its seat, the riser, and the slot's settings in the BIOS")


def _throughput(part: str, figure: str, unit: str, document: Mapping[str, Any]) -> Iterator[AcceptanceFinding]:
    result = document.get(part) or {}
    if result.get("problem"):
        yield AcceptanceFinding(part, result["problem"], "then repeat the acceptance")
        return
    name = f"accept_{part}_{figure}"
    least = (document.get("limits") or {}).get(f"{part}_{figure}") or 0
    found = result.get(figure)
    if found is not None and found < least:
        yield AcceptanceFinding(
            part,
            f"{found:g} {unit}, {found / least:.2f} of the {least:g} that {name} asks for",
            "check what else uses it",
            found,
            least,
            round(found / least, 3),
            unit,
        )


def _chats(chats: Sequence[Mapping[str, Any]]) -> Iterator[AcceptanceFinding]:
    for chat in chats:
        if not chat.get("ok") and not chat.get("skipped"):
            yield AcceptanceFinding(f"instance {chat['item']}", str(chat.get("msg", "no answer")), "see verify.yml")


def _benches(document: Mapping[str, Any]) -> Iterator[AcceptanceFinding]:
    least = (document.get("limits") or {}).get("bench_tokens_per_s") or 0
    for bench in document.get("benches") or ():
        where, figures = f"bench of {bench['item']}", bench.get("figures") or {}
        found = figures.get("output_tokens_per_second")
        if found is None:
            if not bench.get("not_tried"):
                what = str(bench.get("problem") or bench.get("msg") or "no result")
                yield AcceptanceFinding(where, what, "see the journal of its unit, then repeat the acceptance")
        elif found < least:
            yield AcceptanceFinding(
                where,
                f"{found:g} output tokens/s with {figures['concurrency']} requests at a time, {found / least:.2f} of "
                f"the {least:g} that accept_bench_tokens_per_s asks for",
                "look at what else uses the host, at its temperature, and at its settings (explain.yml)",
                found,
                least,
                round(found / least, 3),
                "tokens/s",
            )


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    counters = (document.get("burn_in") or {}).get("counters") or {}
    for row in counters.get("before") or ():
        old = {name: count for name, count in row["errors"].items() if count}
        if old:
            yield f"chip {row['chip']} already had errors before the burn-in: " + ", ".join(
                f"{name} {n}" for name, n in sorted(old.items())
            )
    capped = sorted({row["chip"] for row in counters.get("samples") or () if row["capped"]})
    if capped:
        yield f"at its power limit, as is usual under full load: {', '.join(capped)}"
    for finding in (document.get("driver") or {}).get("later") or ():
        yield f"at a later boot: {finding['where']}: {finding['what']}; {finding['action']}"
    rows = ((document.get("burn_in") or {}).get("measured") or {}).get("peer") or []
    apart = [f"{row['from']} to {row['to']}" for row in rows if row["direct"] is False]
    if apart:
        yield f"chips without direct access to each other's memory: {', '.join(apart)}"
    if (document.get("storage") or {}).get("direct") is False:
        yield "storage: the file system has no direct reads, so the figure may be that of the page cache"


def _not_tried(document: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for part in ("burn_in", "storage"):
        why = (document.get(part) or {}).get("not_tried")
        if why:
            yield {"what": part.replace("_", "-"), "why": why}
    measured = (document.get("burn_in") or {}).get("measured") or {}
    chips = document.get("expected") or {}
    for chip, figures in sorted(chips.items()):
        if not figures and measured.get("products"):
            yield {
                "what": f"comparison of chip {chip}",
                "why": "the catalogue has no figures of it, so it is only reported",
            }
    if not chips and measured:
        yield {"what": "comparison of the processor", "why": "processors are only reported"}
    if len(chips) < 2:
        yield {"what": "copies between chips", "why": "there are no two chips"}
    if not document.get("network"):
        yield {"what": "network", "why": "accept_peer names no second host"}
    if not document.get("chats"):
        yield {"what": "chat", "why": "no instance of vLLM is installed"}
        yield {"what": "bench", "why": "no instance of vLLM is installed"}
    for chat in document.get("chats") or ():
        if chat.get("skipped"):
            yield {"what": f"chat with {chat['item']}", "why": str(chat.get("msg", "it is not installed"))}
    benches = {bench["item"]: bench for bench in document.get("benches") or ()}
    for chat in document.get("chats") or ():
        bench = benches.get(chat["item"], {"not_tried": "it answered no chat"})
        if bench.get("not_tried"):
            yield {"what": f"bench of {chat['item']}", "why": str(bench["not_tried"])}
