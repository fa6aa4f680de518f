# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from types import SimpleNamespace

from ansible_collections.baremetal.inference.plugins.module_utils.health.proofs_host import Proofs


def test_a_proof_that_fails_oddly_has_ended_with_a_reason():
    def token_problem(_name):
        raise KeyError("model")

    settings = SimpleNamespace(prove=30.0, addresses=())
    proofs = Proofs(settings, None, SimpleNamespace(token_problem=token_problem))
    proofs.begin(["chat"])
    deadline, found = time.monotonic() + 60, []
    while not found:
        assert time.monotonic() < deadline
        found = list(proofs.ended())
    assert found == [("chat", "the proof failed: KeyError: 'model'")]
