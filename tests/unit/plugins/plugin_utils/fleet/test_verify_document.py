# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.verify_document import (
    answers_table,
    checks_of,
    document,
    instances_of,
)

GOOD = {"name": "chat", "ok": True, "seconds": 0.1, "detail": "answered"}
BAD = {"name": "chat", "ok": False, "seconds": 0.1, "detail": "is empty"}


def test_a_loop_over_instances():
    good = {"item": "a", "ok": True, "checks": [GOOD], "answer": "Yes.", "tokens_per_second": 80.2, "msg": "passes"}
    bad = {"item": "b", "ok": False, "failed": True, "checks": [BAD], "msg": "b does not pass"}
    result = {"failed": True, "msg": "One or more items failed", "results": [good, bad]}
    assert checks_of("h", result) == [{"host": "h", "instance": "a", **GOOD}, {"host": "h", "instance": "b", **BAD}]
    assert instances_of("h", result) == [
        {"host": "h", "instance": "a", "ok": True, "answer": "Yes.", "tokens_per_second": 80.2},
        {"host": "h", "instance": "b", "ok": False, "msg": "b does not pass"},
    ]


def test_the_answers_are_a_table_with_seconds_and_rates():
    good = {"item": "a", "ok": True, "checks": [GOOD, GOOD], "answer": "Yes.\nIt is.", "model": "m", "msg": "passes",
            "tokens_per_second": 1080.2, "time_to_first_token_s": 0.031}  # fmt: skip
    bad = {"item": "b", "ok": False, "failed": True, "checks": [GOOD, BAD], "msg": "b does not pass " * 30}
    absent = {"item": "c", "failed": True, "msg": "instance c is not installed"}
    found = {"h-10": {"results": [good, absent]}, "h-2": {"results": [bad]}, "gone": {"unreachable": True}, "none": {}}
    declared = {"gone": {"z": {}, "d": {}}, "none": {"e": {}}, "h-2": {"b": {}}}
    lines = answers_table(found, declared, 400).splitlines()
    assert [" ".join(line.split()) for line in lines if "--" not in line] == [
        "host instance model passed seconds first token, s tokens/s answer",
        "gone d 0 of 1 not asked: the host was not reached, or a task before failed there",
        "gone z 0 of 1 not asked: the host was not reached, or a task before failed there",
        f"h-2 b 1 of 2 0.2 {('b does not pass ' * 30)[:300].strip()} ...",
        "h-10 a m 2 of 2 0.2 0.03 1,080 Yes. It is.",
        "h-10 c 0 of 1 0.0 instance c is not installed",
        "none e 0 of 1 not asked: the host was not reached, or a task before failed there",
    ]
    assert answers_table({}) == ""


def test_what_never_got_to_a_check():
    unreachable = {"unreachable": True, "msg": "ssh: connection refused"}
    refused = {"item": "a", "failed": True, "msg": "max_tokens: found 0, expected more than 0."}
    skipped = {"item": "a", "skipped": True, "ok": None, "msg": "Not verified: x."}
    assert checks_of("h", unreachable) == [
        {
            "host": "h",
            "instance": None,
            "name": "reach",
            "ok": False,
            "seconds": None,
            "detail": "ssh: connection refused",
        }
    ]
    assert [row["name"] for row in checks_of("h", {"results": [{"item": "a", **unreachable}]})] == ["reach"]
    assert [(row["name"], row["ok"]) for row in checks_of("h", {"results": [refused, skipped]})] == [
        ("endpoint", False), ("endpoint", None)]  # fmt: skip


def test_a_host_without_instances_has_no_rows():
    nothing = {"skipped": True, "skipped_reason": "No items in the list", "results": []}
    assert checks_of("h", nothing) == [] and instances_of("h", nothing) == []


def test_a_document_is_ok_only_when_something_was_verified_and_all_of_it_passed():
    assert document([GOOD], []) == {"ok": True, "checks": [GOOD], "instances": []}
    assert not document([GOOD, BAD], [])["ok"]
    assert not document([GOOD, {**GOOD, "ok": None}], [])["ok"]
    assert document([], [])["ok"] is False and "no instance was verified" in document([], [])["problem"]
