# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus and the log get."""

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.module_utils.usage.counters import Counters, log_lines

from tests.fakes.usage_records import NOW, part, record


def test_prometheus_gets_what_this_gateway_served(store):
    counters = Counters("gw1")
    made, missing = store.add("a", [part(record(1), record(2, gateway="gw2"), record(5, model='a"b'))], NOW)
    counters.add(made, missing)
    text = counters.text(True)
    labels = 'client="alice",team="research",model="m"'
    assert f"inference_usage_requests_total{{{labels}}} 1" in text
    assert f'inference_usage_tokens_total{{{labels},kind="completion"}} 5' in text
    assert 'model="a\\"b"' in text and "inference_usage_missing_records_total 2" in text


def test_the_log_has_the_answers_of_this_gateway_that_have_an_id(store):
    records = record(1, id="r1"), record(2), record(3, id="r3", gateway="gw2")
    made, _missing = store.add("a", [part(*records)], NOW)
    (line,) = log_lines(made, "gw1").splitlines()
    assert json.loads(line)["id"] == "r1" and json.loads(line)["completion"] == 5
