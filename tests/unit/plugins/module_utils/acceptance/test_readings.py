# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.acceptance.readings import parse_burn_in

SOFTWARE = json.dumps({"event": "result", "phase": "software", "value": {"torch": "2.11.0"}})
PRODUCTS = json.dumps({"event": "result", "phase": "products", "value": [{"chip": 0}]})
BEGINS = json.dumps({"event": "begins", "phase": "copy"})


def parse(*lines, err="", rc=0, timed_out=False):
    return parse_burn_in("\n".join(lines), err, rc, timed_out, 480)


def test_what_was_measured():
    found = parse(SOFTWARE, "a library prints this", "[1]", PRODUCTS)
    assert found.problem == ""
    assert found.measured == {"software": {"torch": "2.11.0"}, "products": [{"chip": 0}]}


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        ({"rc": -9, "timed_out": True}, "the burn-in did not end within 480 s and was killed during copies in memory"),
        ({"rc": 5}, "the burn-in did not end within 480 s and was killed during copies in memory"),
        ({"rc": -9}, "the burn-in was killed during copies in memory (signal 9): look for the kernel's out-of-memory"),
        ({"rc": 137}, "the burn-in was killed during copies in memory (signal 9)"),
        ({"rc": -11, "err": "Fatal\nSegmentation fault\n"}, "ended with status -11 during copies in memory: Segment"),
        ({"rc": 1}, "the burn-in ended with status 1 during copies in memory: no output"),
    ],
)
def test_a_burn_in_that_did_not_come_to_its_end(ended, problem):
    found = parse(SOFTWARE, PRODUCTS, BEGINS, **ended)
    assert problem in found.problem
    assert "products" in found.measured


def test_the_programs_own_words_go_before_its_status():
    found = parse(
        json.dumps({"event": "failed", "what": "/usr/bin/python3 cannot import torch: No module"}), rc=3, err="x"
    )
    assert found.problem == "the burn-in failed: /usr/bin/python3 cannot import torch: No module"
