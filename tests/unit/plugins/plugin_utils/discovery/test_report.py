# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import Entry, merge
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.report import (
    Discovery,
    Reader,
    age,
    bounded,
    change_lines,
    counts_of,
    report,
    timestamp,
)

READER = Reader(load_catalogue())
NOON, LATER = "2026-11-21T12:00:00Z", "2026-11-24T12:00:00Z"
CPU = {
    "arch": "x86_64",
    "model": "AMD EPYC 9654",
    "instruction_sets": ["avx2"],
    "cores": 192,
    "threads": 384,
    "numa_nodes": 2,
    "memory_mib": 1547642,
}


def shown(count=8, pci_id="10de 2335", first=0x10, **changes):
    functions = [f"0000:{first + number:02x}:00.0 {pci_id} 0302 - - 0" for number in range(count)]
    return {"functions": functions, "cpu": CPU, "drivers": {}, "memory_mib": {}, **changes}


def discover(before, answers, hosts=None):
    entries = {host: Entry(NOON, observation) for host, observation in before.items()}
    after, changes = merge(entries, answers, LATER, hosts or {*before, *answers})
    return Discovery(answers, entries, after, changes, LATER)


def test_times():
    assert timestamp(0) == "1970-01-01T00:00:00Z"
    assert timestamp(1795263600.9) == "2026-11-21T12:20:00Z"


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("2026-11-24T11:59:59Z", "1 second"),
        ("2026-11-24T11:58:01Z", "119 seconds"),
        ("2026-11-24T11:58:00Z", "2 minutes"),
        ("2026-11-24T10:00:01Z", "119 minutes"),
        ("2026-11-24T10:00:00Z", "2 hours"),
        ("2026-11-22T12:00:01Z", "47 hours"),
        ("2026-11-22T12:00:00Z", "2 days"),
        ("2026-11-25T12:00:00Z", "0 seconds"),  # a clock that was put back
        ("yesterday", "yesterday"),
    ],
)
def test_an_age_is_told_in_words(then, words):
    assert age(then, LATER) == words


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (shown(), "h200 x 8"),
        (shown(0), "cpu"),
        (shown(2, "10de 9999"), "unknown x 2"),
        ({**shown(), "functions": [*shown(4)["functions"], *shown(1, "10de 9999", 0x50)["functions"]]},
         "h200 x 4, unknown x 1"),
        ({"functions": "rubbish"}, "an answer that cannot be read"),
    ],
)  # fmt: skip
def test_hardware_in_a_few_words(observation, words):
    assert READER.hardware(observation) == words


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (shown(7), "h200 x 8 -> h200 x 7"),
        (shown(drivers={"nvidia": {"version": "580.159.04"}}), "driver none -> 580.159.04"),
        (shown(7, drivers={"nvidia": {"version": "580"}}), "h200 x 8 -> h200 x 7, driver none -> 580"),
        (shown(cpu={**CPU, "memory_mib": 1000}), "MiB of the host 1547642 -> 1000"),
        (shown(cpu={**CPU, "threads": 192}), "processor AMD EPYC 9654, 384 threads -> AMD EPYC 9654, 192 threads"),
        (shown(memory_mib={"0000:10:00.0": 1000}), "MiB of a chip 144384 -> 1000"),
        (shown(first=0x20), "h200 x 8, in another place or of another board"),
        ({}, "h200 x 8 -> an answer that cannot be read"),
    ],
)
def test_a_difference_is_told_in_a_few_words(after, words):
    assert READER.difference(shown(), after) == words


def test_each_host_that_is_different_has_a_line():
    discovery = discover(
        {"same": shown(), "less": shown(), "stopped": shown(), "left": shown()},
        {"same": shown(), "less": shown(7), "stopped": "timed out", "fresh": shown(0)},
        {"same", "less", "stopped", "fresh"},
    )
    assert change_lines(discovery, READER) == [
        "fresh: new, cpu",
        "left: is no longer in the inventory",
        "less: h200 x 8 -> h200 x 7",
        "stopped: no longer answers",
    ]


def test_a_report_says_all():
    discovery = discover(
        {"gpu-1": shown(), "gpu-2": shown()},
        {"gpu-1": shown(7), "gpu-2": "timed out", "gpu-3": "refused", "gpu-4": shown(1, "10de 9999")},
    )
    assert report(discovery, "cache.json", READER).splitlines() == [
        "2 of 4 hosts answered; all answers are kept in cache.json",
        "Accelerators of 3 hosts: h200 x 7 (1); h200 x 8 (1); unknown x 1 (1)",
        "Chips that the catalogue does not have (1 host):",
        "  gpu-4: 10de:9999 x 1",
        "No answer now, the last answer is kept (1 host):",
        f"  gpu-2: h200 x 8, 3 days old ({NOON}): timed out",
        "Never answered (1 host):",
        "  gpu-3: refused",
        "Different from before (3 hosts):",
        "  gpu-1: h200 x 8 -> h200 x 7",
        "  gpu-2: no longer answers",
        "  gpu-4: new, unknown x 1",
    ]


@pytest.mark.slow
def test_a_report_of_a_large_fleet_is_short():
    names = [f"gpu-{number:05}" for number in range(10_000)]
    first = report(discover({}, {name: shown() for name in names}), "c", READER)
    assert first.splitlines()[1:] == ["Accelerators of 10000 hosts: h200 x 8 (10000)"]
    lines = report(discover({name: shown() for name in names}, dict.fromkeys(names, "timed out")), "c", READER)
    assert len(lines.splitlines()) < 50
    assert "  and 9980 more" in lines


def test_without_a_difference_it_says_so():
    lines = report(discover({"gpu-1": shown()}, {"gpu-1": shown()}), "c", READER)
    assert lines.splitlines()[-1] == "Nothing is different from before."


def test_counts_have_the_most_frequent_first():
    discovery = discover({}, {"a": shown(0), "b": shown(), "c": shown()})
    assert list(counts_of(discovery.after, READER).items()) == [("h200 x 8", 2), ("cpu", 1)]


def test_a_long_list_is_cut_with_the_number_of_the_rest():
    assert bounded(["a", "b", "c"], 2) == ["a", "b", "and 1 more"]
    assert bounded(["a", "b"], 2) == ["a", "b"]
