# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers.image_names import (
    reference,
    registry_of,
    trouble_with,
)


@pytest.mark.parametrize(
    ("image", "whole"),
    [
        ("vllm/vllm-openai:v0.33.0", "docker.io/vllm/vllm-openai:v0.33.0"),
        ("debian", "docker.io/library/debian:latest"),
        ("mirror:5000/vllm/x", "mirror:5000/vllm/x:latest"),
        ("localhost/x:1", "localhost/x:1"),
        ("mirror:5000/a/b:v1@sha256:00", "mirror:5000/a/b@sha256:00"),
        ("quay.io/ascend/vllm-ascend@sha256:00", "quay.io/ascend/vllm-ascend@sha256:00"),
    ],
)
def test_a_reference_is_spelt_out_for_podman(image, whole):
    assert reference(image) == whole
    assert registry_of(image) == whole.split("/")[0]


@pytest.mark.parametrize(
    ("engine", "said", "advice"),
    [
        (
            "podman",
            "http: server gave HTTP response to HTTPS client",
            "in a file of /etc/containers/registr",
        ),
        ("docker", "x509: certificate signed by unknown authority", "at /etc/docker/certs.d/mirror:5000/ca.crt"),
        ("docker", "no such manifest: mirror:5000/x:1", "the registry has no such image"),
        ("podman", "reading manifest 9 in mirror:5000/x: manifest unknown", "the registry has no such image"),
        ("docker", "no basic auth credentials", "vllm_registry_auth_file"),
        ("docker", "dial tcp 10.0.0.1:5000: connect: connection refused", "cannot be reached from this host"),
        ("podman", "dial tcp: lookup mirror: no such host", "cannot be reached from this host"),
        ("docker", "write /var/lib/docker/x: no space left on device", "the disk of the engine's images is full"),
    ],
)
def test_what_an_engine_says_becomes_advice(engine, said, advice):
    text = trouble_with(engine, "mirror:5000/x:1", said)
    assert text.startswith("image mirror:5000/x:1 is not available from registry mirror:5000: ")
    assert advice in text and said in text


def test_words_that_nobody_knows_are_handed_on():
    said = "something\nnew"
    assert trouble_with("docker", "m:5000/x:1", said).endswith("registry m:5000: docker reported: something new")
