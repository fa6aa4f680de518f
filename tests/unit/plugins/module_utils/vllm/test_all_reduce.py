# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.all_reduce import parse_all_reduce


def lines(*entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


RESULT = {"event": "result", "gb_per_s": 41.23456, "chips": 16, "bytes": 64 << 20}


def test_a_run_that_finished():
    out = lines({"event": "versions", "versions": {"torch": "2.13.0"}}, {"event": "phase", "phase": "measure"})
    out += "gpu-01:77 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/3(0)/GDRDMA\n" + lines(RESULT)
    found = parse_all_reduce(out, "", 0, False, 60)
    assert found == {
        "problem": "", "phase": "measure", "missing": [], "gb_per_s": 41.235, "chips": 16,
        "versions": {"torch": "2.13.0"}, "networks": ["IB/GDRDMA"],
    }  # fmt: skip


def test_a_host_that_is_missing():
    out = lines({"event": "failed", "phase": "join", "what": "hosts did not join", "missing": ["gpu-02"]})
    found = parse_all_reduce(out, "", 4, False, 60)
    assert (found["problem"], found["missing"]) == ("hosts did not join", ["gpu-02"])


@pytest.mark.parametrize(
    ("out", "err", "rc", "timed_out", "text"),
    [
        ("", "Traceback\nModuleNotFoundError: json\n", 1, False, "it ended with status 1: ModuleNotFoundError: json"),
        ("", "", -11, False, "it ended with status -11: no message"),
        ("", "", 0, False, "it ended with status 0: no message"),
        ("", "", -9, True, "it did not end within 60 s"),
    ],
)
def test_a_run_that_did_not(out, err, rc, timed_out, text):
    assert parse_all_reduce(out, err, rc, timed_out, 60)["problem"] == text


@pytest.mark.parametrize(
    "out",
    [
        '{"event": "result", "gb_per_s": NaN}\n',
        '{"event": "result", "gb_per_s": 1e999}\n',
        '{"event": "result", "gb_per_s": "fast"}\n',
        '{"event": "result", "gb_per_s": true}\n',
        '{"event": "result"}\n',
        '{"event": "result", "gb_per_s": -1}\n',
        '{"event": ["result"]}\n',
        "{" + '"a":[' * 5000 + "\n",
        '{"event": "phase", "phase": {"a": 1}}\n[1]\n{}\n{"event"\n\x00\n',
        '{"event": "versions", "versions": [1]}\n',
        '{"event": "versions", "versions": {"torch": [1]}}\n',
    ],
)
def test_output_of_something_else_is_no_result(out):
    found = parse_all_reduce(out, "", 0, False, 60)
    assert found["problem"] and found["gb_per_s"] is None
    assert found["phase"] == "load"
    assert all(isinstance(text, str) for text in found["versions"].values())


def test_a_failure_with_hostile_fields():
    found = parse_all_reduce('{"event": "failed", "what": null, "missing": "gpu-02"}\n', "", 6, False, 60)
    assert (found["problem"], found["missing"]) == ("it failed", [])
    found = parse_all_reduce(lines({"event": "failed", "what": "x" * 9999, "missing": [1, None]}), "", 6, False, 60)
    assert len(found["problem"]) == 400 and found["missing"] == ["1", "None"]
