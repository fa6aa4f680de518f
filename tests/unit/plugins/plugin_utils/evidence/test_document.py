# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import hashlib

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import (
    EvidenceError,
    is_older,
    plan_digest,
    read_document,
)

from tests.fakes.benches import PLAN
from tests.fakes.evidence import NAME, document


def refused(name=NAME, **change):
    with pytest.raises(EvidenceError) as raised:
        read_document({**document(), **change}, name, "x.yml")
    return str(raised.value)


def test_a_good_document():
    found = read_document(document(date=datetime.date(2026, 11, 23)), NAME, "x.yml")
    assert (found.date, found.document["date"]) == ("2026-11-23", "2026-11-23")
    assert (found.model, found.accelerator, found.count, found.preset) == ("openai/gpt-oss-20b", "h200", 1, "balanced")


def test_a_name_may_follow_the_date():
    read_document(document(), f"{NAME}-marlin", "x.yml")


def test_the_place_is_that_of_the_content():
    assert refused("openai/gpt-oss-20b/h200x2/0.25.1-2026-11-23") == (
        "x.yml: found the content of openai/gpt-oss-20b/h200x1/0.25.1-2026-11-23.yml; expected the file at that path, "
        "or openai/gpt-oss-20b/h200x1/0.25.1-2026-11-23-NAME.yml"
    )


def test_a_misspelt_key_names_the_nearest():
    assert refused(presset="x") == "x.yml: unknown key 'presset'; nearest: 'preset'"


def test_a_wrong_figure_names_its_place():
    wrong = [{**document()["results"][0], "ttft_ms": {"median": 5, "lowest": 6, "highest": 7}}]
    assert refused(results=wrong).startswith("x.yml: results[0].ttft_ms: found {'median': 5")


def test_a_missing_key():
    without = document()
    del without["weights"]
    with pytest.raises(EvidenceError, match=r"x.yml: weights: is missing; expected a revision in 40"):
        read_document(without, NAME, "x.yml")


def test_an_empty_result_says_nothing():
    empty = document(results=[])
    empty.pop("start_seconds")
    with pytest.raises(EvidenceError, match="expected one of them, or start_seconds"):
        read_document(empty, NAME, "x.yml")


def test_a_document_that_is_no_mapping():
    with pytest.raises(EvidenceError, match=r"x.yml: the file: found \[\], expected a mapping"):
        read_document([], NAME, "x.yml")


def test_a_plan_is_named_by_argv_and_env():
    text = '{"argv": ["vllm", "serve", "/srv/models/m"], "env": {"A": "1", "B": "2"}}'
    assert plan_digest(PLAN) == hashlib.sha256(text.encode()).hexdigest()
    assert plan_digest({**PLAN, "preset": "latency"}) == plan_digest(PLAN)
    assert plan_digest({**PLAN, "env": {}}) != plan_digest(PLAN)


@pytest.mark.parametrize(
    ("release", "older"), [("0.33.0", True), ("0.25.1", False), ("0.3.0", False), ("nightly", False)]
)
def test_older(release, older):
    assert is_older(read_document(document(), NAME, "x.yml"), release) is older
