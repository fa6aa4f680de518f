# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a host prints in place of the probe's output: hardware, or one sentence; never a crash."""

from __future__ import annotations

import json
import random

from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import (
    BEGIN,
    END,
    DiscoveryError,
    Observation,
    detected,
    from_document,
    parse_probe,
    summary,
    to_document,
)

from tests.fakes.fuzz import assert_enough, assert_presentable, cases, mutated, mutated_text, told_apart, within

CATALOGUE = load_catalogue()
LINES = """\
machine x86_64
cpuinfo processor\t: 0
cpuinfo model name\t: AMD EPYC 9654 96-Core Processor
cpuinfo flags\t\t: fpu avx2 avx512f
threads 384
cores 192
meminfo MemTotal:       1584785408 kB
nodes 2
pci 0000:15:00.0 1002 74a1 1200 1002 74a1 1 bytes 206141652992
pci 0000:05:00.0 10de 2335 0302 - - -
pci 0000:c1:00.0 19e5 d802 1200 - - 0 virtual
nvidia 580.159.04
nvrm NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
amdgpu 6.14.14
ascend Version=25.2.0
mec 0x000000b1
mec 175
"""


def printed(choose: random.Random) -> str:
    """Return changed lines of a probe, for the most part between marks that fit them."""
    inside = mutated_text(choose, LINES).splitlines()
    whole = "\n".join([BEGIN, *inside, f"{END} {len(inside)}", ""])
    return mutated_text(choose, whole) if choose.random() < 0.2 else whole


def test_whatever_the_probe_prints_it_is_hardware_or_one_sentence():
    read = refused = 0
    for label, choose in cases("probe", 1500):
        with told_apart(label):
            text = printed(choose)
            try:
                found = within(30, lambda text=text: parse_probe(text))
            except DiscoveryError as exc:
                assert_presentable(str(exc), 1000)
                refused += 1
                continue
            read += 1
            hardware = summary(detected(found, CATALOGUE))
            assert_presentable(json.dumps(hardware, ensure_ascii=False))
            # What is stored is read again as it was.
            assert Observation.from_dict(json.loads(json.dumps(found.as_dict()))) == found
    assert_enough(read, 100, "read")
    assert_enough(refused, 100, "refused")


def test_whatever_the_stored_answers_hold_they_are_read_or_refused():
    kept = {"schema": 1, "hosts": {}}
    inside = LINES.splitlines()
    observation = parse_probe("\n".join([BEGIN, *inside, f"{END} {len(inside)}"])).as_dict()
    for name in ("gpu-1", "gpu-2"):
        kept["hosts"][name] = {"at": "2026-11-21T12:00:00Z", "observation": observation}
    read = refused = 0
    for label, choose in cases("stored-answers", 1000):
        with told_apart(label):
            document = mutated(choose, kept)
            try:
                entries = from_document(document)
                for entry in entries.values():
                    detected(Observation.from_dict(entry.observation), CATALOGUE)
                assert from_document(to_document(entries)) == entries
                read += 1
            except DiscoveryError as exc:
                assert_presentable(str(exc), 1000)
                refused += 1
    assert_enough(read, 20, "read")
    assert_enough(refused, 100, "refused")
