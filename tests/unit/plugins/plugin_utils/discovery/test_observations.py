# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import (
    Changes,
    DiscoveryError,
    Entry,
    Observation,
    detected,
    from_document,
    merge,
    parse_probe,
    summary,
    to_document,
)

CATALOGUE = load_catalogue()
ANSWER = """\
accelerator-probe 1 begin
machine x86_64
cpuinfo processor\t: 0
cpuinfo model name\t: AMD EPYC 9654 96-Core Processor
cpuinfo flags\t\t: fpu avx2 avx512f
threads 384
cores 192
meminfo MemTotal:       1584785408 kB
nodes 2
pci 0000:15:00.0 1002 74a1 1200 1002 74a1 1 bytes 206141652992
pci 0000:05:00.0 1002 74a1 1200 - - -
amdgpu 6.14.14
mec 0x000000b1
mec 0x000000af
accelerator-probe 1 end 13
"""
NOON, ONE, TWO = (f"2026-11-21T{hour}:00:00Z" for hour in (12, 13, 14))


def observation(**changes):
    return {**parse_probe(ANSWER).as_dict(), **changes}


def with_lines(*lines):
    """Return an answer that has these lines in place of ANSWER's PCI functions."""
    kept = [line for line in ANSWER.splitlines()[1:-1] if not line.startswith("pci ")]
    inside = [*kept, *lines]
    return "\n".join(["accelerator-probe 1 begin", *inside, f"accelerator-probe 1 end {len(inside)}", ""])


def test_an_answer_is_read_whole():
    assert parse_probe(ANSWER).as_dict() == {
        "functions": ["0000:05:00.0 1002 74a1 1200 - - -", "0000:15:00.0 1002 74a1 1200 1002 74a1 1"],
        "cpu": {
            "arch": "x86_64",
            "model": "AMD EPYC 9654 96-Core Processor",
            "instruction_sets": ["avx2", "avx512f"],
            "cores": 192,
            "threads": 384,
            "numa_nodes": 2,
            "memory_mib": 1547642,
        },
        "drivers": {"amd": {"version": "6.14.14", "mec_firmware": 175}},
        "memory_mib": {"0000:15:00.0": 196592},
    }


@pytest.mark.parametrize(
    "around",
    [
        "Welcome!\n\naccelerator-probe 1 begin of maintenance\n{}",
        "{}logout\n",
        "accelerator-probe 1 begin\nmachine s390x\n{}",  # a first try that was broken off
    ],
)
def test_what_a_login_prints_does_not_matter(around):
    assert parse_probe(around.format(ANSWER)) == parse_probe(ANSWER)
    assert parse_probe(around.format(ANSWER).replace("\n", "\r\n")) == parse_probe(ANSWER)


def test_an_answer_that_is_cut_anywhere_is_an_error():
    lines = ANSWER.splitlines()
    for end in range(len(lines)):
        with pytest.raises(DiscoveryError, match=r"did not start|is cut"):
            parse_probe("\n".join(lines[:end]))
    for missing in range(1, len(lines) - 1):
        with pytest.raises(DiscoveryError, match="is cut"):
            parse_probe("\n".join(lines[:missing] + lines[missing + 1 :]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the probe did not start: it printed nothing"),
        ("\nThis account is currently not available.\n", "did not start: This account is currently not available."),
        (with_lines("error /sys: no sysfs there"), "^/sys: no sysfs there$"),
        (with_lines("pci 0000:05:00.0 1002 74a1"), "functions: found '0000:05:00.0 1002 74a1', expected address, "),
        (ANSWER.replace("threads 384", "threads many"), "threads: found 'many', expected a number"),
        (ANSWER.replace("cores 192", "odd 1"), "cores: found 'nothing', expected a number"),
        (ANSWER.replace("MemTotal", "MemFree"), "meminfo has no line 'MemTotal"),
    ],
)
def test_a_bad_answer_is_one_sentence(text, message):
    with pytest.raises(DiscoveryError, match=message):
        parse_probe(text)


def test_an_observation_survives_json():
    first = parse_probe(ANSWER)
    assert Observation.from_dict(json.loads(json.dumps(first.as_dict()))) == first


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), []),
        (("more",), 1),
        (("functions",), {}),
        (("functions", 0), "0000:05:00.0 1002 74A1 1200 - - -"),
        (("functions", 0), None),
        (("cpu",), {}),
        (("cpu", "cores"), "192"),
        (("cpu", "cores"), True),
        (("cpu", "instruction_sets"), [1]),
        (("drivers",), []),
        (("drivers", "amd"), "6.14"),
        (("drivers", "amd", "version"), 6),
        (("drivers", "amd", "more"), "x"),
        (("memory_mib",), []),
        (("memory_mib", "0000:15:00.0"), "big"),
        (("memory_mib", "0000:15:00.0"), -1),
    ],
    ids=str,
)
def test_an_odd_observation_is_an_error(path, value):
    data = copy.deepcopy(observation())
    place = data
    for key in path[:-1]:
        place = place[key]
    if path:
        place[path[-1]] = value
    with pytest.raises(DiscoveryError, match=r"found .*, expected "):
        Observation.from_dict(data if path else value)


def test_measured_memory_goes_before_the_nominal():
    found = detected(parse_probe(ANSWER), CATALOGUE)
    assert [device["memory_mib"] for device in found.devices] == [192 * 1024, 196592]
    assert found.memory_mib == 196592
    assert (found.model, found.count, found.driver_version, found.mec_firmware) == ("mi300x", 2, "6.14.14", 175)


def test_measured_memory_of_another_model_does_not_matter():
    lines = [f"pci 0000:0{n}:00.0 1002 74a1 1200 - - -" for n in range(2)]
    found = detected(parse_probe(with_lines(*lines, "pci 0000:0a:00.0 1002 7551 0380 - - - bytes 1048576")), CATALOGUE)
    assert (found.model, found.memory_mib, found.devices[-1]["memory_mib"]) == ("mi300x", 192 * 1024, 1)


def test_memory_that_is_shared_with_the_host_stays_without_a_number():
    found = detected(parse_probe(with_lines("pci 0000:c4:00.0 1002 1586 0380 - - - bytes 536870912")), CATALOGUE)
    assert (found.model, found.memory_mib, found.devices[0]["memory_mib"]) == ("strix_halo", None, None)


def test_the_short_form_leaves_out_what_only_the_host_needs():
    short = summary(detected(parse_probe(ANSWER), CATALOGUE))
    assert short == {
        "model": "mi300x",
        "stack": "rocm",
        "generation": "gfx942",
        "vendor": "amd",
        "count": 2,
        "memory_mib": 196592,
        "compute_capability": None,
        "devices_per_card": 1,
        "mixed": False,
        "models": {"mi300x": 2},
        "unknown": [],
        "driver_version": "6.14.14",
        "mec_firmware": 175,
        "partition": None,
        "numbers": {},
    }


def test_first_answers_are_new():
    entries, changes = merge({}, {"b": observation(), "a": observation()}, NOON, ["a", "b", "c"])
    assert list(entries.items()) == [("a", Entry(NOON, observation())), ("b", Entry(NOON, observation()))]
    assert changes == Changes(new=("a", "b"))


def test_the_same_answer_is_no_change_and_confirmed():
    entries, changes = merge({"a": Entry(NOON, observation())}, {"a": observation()}, ONE, ["a"])
    assert entries == {"a": Entry(ONE, observation())}
    assert not changes


def test_another_answer_is_a_change():
    entries, changes = merge({"a": Entry(NOON, observation())}, {"a": observation(functions=[])}, ONE, ["a"])
    assert entries["a"] == Entry(ONE, observation(functions=[]))
    assert changes == Changes(changed=("a",))


def test_a_host_that_was_asked_in_vain_keeps_its_answer_and_the_first_time():
    entries, changes = merge({"a": Entry(NOON, observation())}, {"a": "timed out"}, ONE, ["a"])
    assert entries == {"a": Entry(NOON, observation(), ONE, "timed out")}
    assert changes == Changes(stale=("a",))
    entries, changes = merge(entries, {"a": "refused"}, TWO, ["a"])
    assert entries == {"a": Entry(NOON, observation(), ONE, "refused")}
    assert not changes


@pytest.mark.parametrize(("answer", "kind"), [(observation(), "back"), (observation(functions=[]), "changed")])
def test_a_host_that_answers_again_is_stale_no_more(answer, kind):
    entries, changes = merge({"a": Entry(NOON, observation(), ONE, "timed out")}, {"a": answer}, TWO, ["a"])
    assert entries == {"a": Entry(TWO, answer)}
    assert changes == Changes(**{kind: ("a",)})


def test_of_a_host_that_never_answered_nothing_is_kept():
    assert merge({}, {"a": "timed out"}, NOON, ["a"]) == ({}, Changes())


def test_hosts_that_were_not_asked_stay_and_those_that_left_go():
    before = {"a": Entry(NOON, observation()), "left": Entry(NOON, observation())}
    entries, changes = merge(before, {"stranger": observation()}, ONE, ["a", "b"])
    assert entries == {"a": before["a"]}
    assert changes == Changes(gone=("left",))


def test_entries_survive_json():
    entries = {"a": Entry(NOON, observation()), "b": Entry(NOON, observation(), ONE, "timed out")}
    document = json.loads(json.dumps(to_document(entries)))
    assert document["hosts"]["a"] == {"at": NOON, "observation": observation()}
    assert from_document(document) == entries


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "holds no answers of hosts"),
        ({"schema": 1}, "holds no answers of hosts"),
        ({"schema": 2, "hosts": {}}, "is of schema 2, expected 1"),
        ({"schema": 1, "hosts": {"a": []}}, "hosts.a: found "),
        ({"schema": 1, "hosts": {"a": {"at": NOON}}}, "hosts.a: found "),
        ({"schema": 1, "hosts": {"a": {"at": 1, "observation": {}}}}, "hosts.a: found "),
        ({"schema": 1, "hosts": {"a": {"at": NOON, "observation": {}, "more": 1}}}, "hosts.a: found "),
        ({"schema": 1, "hosts": {"a": {"at": NOON, "observation": {}, "stale_reason": {}}}}, "hosts.a: found "),
    ],
)
def test_an_odd_document_is_an_error(document, message):
    with pytest.raises(DiscoveryError, match=message):
        from_document(document)


@pytest.mark.parametrize(("model", "gib"), [("h200", 141), ("h100", 80)])
def test_the_probe_of_real_hosts(model, gib):
    # Recorded on hardware with driver 580.159.04; module accelerator_info said the same of these hosts.
    text = (Path(__file__).parents[4] / "fixtures" / model / "probe.txt").read_text()
    found = summary(detected(parse_probe(text), load_catalogue()))
    assert (found["model"], found["count"], found["memory_mib"]) == (model, 1, gib * 1024)
    assert (found["driver_version"], found["unknown"], found["mixed"]) == ("580.159.04", [], False)
