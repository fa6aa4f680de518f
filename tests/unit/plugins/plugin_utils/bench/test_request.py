# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.records import RecordError
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.request import check_request
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import WorkloadError

GOOD = {
    "workloads": ["chat"],
    "workload_definitions": {},
    "concurrency": ["1", "8"],
    "repeats": 3,
    "requests_per_stream": 4,
    "requests_min": 8,
    "seed": "7",
    "timeout": 1800.0,
    "compare": "",
}


def test_a_good_request_passes():
    check_request(GOOD)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workloads": ["chta"]}, "bench_workloads: 'chta' is not a workload; nearest: 'chat'"),
        ({"workload_definitions": {"own": None}}, "bench_workload_definitions: own: found nothing, expected a mapping"),
        ({"concurrency": ["²"]}, "bench_concurrency: found '²', expected whole numbers from 1 up"),
        ({"repeats": 0}, "bench_repeats: found 0, expected a whole number from 1 up"),
        ({"seed": "²"}, "bench_seed: found '²', expected a whole number from 0 up"),
        ({"timeout": 0.0}, "bench_timeout: found 0, expected more than 0 seconds"),
        ({"compare": "/nowhere"}, "bench_compare: /nowhere is not there, expected a directory with the results"),
    ],
)
def test_what_is_refused(change, words):
    with pytest.raises((WorkloadError, RecordError)) as caught:
        check_request({**GOOD, **change})
    assert str(caught.value).startswith(words)
