# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a registry answers, there is a status, a digest or one sentence."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers import registry_host, registry_socket_host
from ansible_collections.baremetal.inference.plugins.module_utils.containers.oci_index import Image, OciError

from tests.fakes.fuzz import HostileServer, assert_enough, assert_presentable, cases, mutated_text, told_apart, within
from tests.fakes.unix_relay import at_a_socket

DIGEST = f"sha256:{'0' * 64}"
ANSWER = f"HTTP/1.1 200 OK\r\nDocker-Content-Digest: {DIGEST}\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.slow
def test_whatever_a_registry_answers_there_is_a_digest_or_one_sentence(monkeypatch):
    monkeypatch.setattr(registry_socket_host, "TIMEOUT", 1)
    monkeypatch.setattr(registry_host, "TIMEOUT", 1)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    image = Image("/srv/images/vllm", "vllm/vllm", "v1", DIGEST)
    answered = refused = 0
    for label, choose in cases("registry", 60):

        def script(_head, choose=choose):
            answer = ANSWER.replace("200 OK", choose.choice(("200 OK",) * 3 + ("404 Not Found", "401 Unauthorized")))
            if choose.random() < 0.7:
                answer = mutated_text(choose, answer)
            yield answer.encode("utf-8", "surrogatepass")
            if choose.random() < 0.05:
                yield choose.choice((1.5, None))

        with told_apart(label), HostileServer(script) as server:
            address = server.url.removeprefix("http://")
            with at_a_socket(address) as path:
                registry = registry_socket_host.Registry(path)
                try:
                    within(60, lambda registry=registry: registry.answers(0))
                    digest = within(60, lambda registry=registry: registry.digest_of(image))
                    answered += digest == DIGEST
                except OciError as exc:
                    assert_presentable(str(exc), 2000)
                    refused += 1
            status = within(60, lambda address=address: registry_host.manifest_status(f"{address}/vllm:v1", 1))
            assert status is None or (status[0] == "http" and 100 <= status[1] <= 999)
    assert_enough(answered, 4, "answered")
    assert_enough(refused, 4, "refused")
