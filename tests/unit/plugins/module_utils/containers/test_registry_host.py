# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a registry has an image: by HTTPS that is trusted here, or plain HTTP where nothing speaks TLS."""

from __future__ import annotations

import ssl
import urllib.error
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers import registry_host
from ansible_collections.baremetal.inference.plugins.module_utils.containers.registry_host import manifest_status

DIGEST = f"sha256:{'a' * 64}"
NO_TLS = urllib.error.URLError(ssl.SSLError(1, "WRONG_VERSION_NUMBER"))


@pytest.fixture
def registry(monkeypatch):
    """Return what was asked; ``answers`` has a status or an error by scheme."""
    found = SimpleNamespace(answers={"https": 200}, asked=[])

    def open_url(url, **_options):
        found.asked.append(url)
        answer = found.answers[url.partition(":")[0]]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(status=answer)

    monkeypatch.setattr(registry_host, "open_url", open_url)
    return found


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ("mirror:5000/lab/vllm:0.32.0", "mirror:5000/v2/lab/vllm/manifests/0.32.0"),
        (f"mirror:5000/lab/vllm@{DIGEST}", f"mirror:5000/v2/lab/vllm/manifests/{DIGEST}"),
    ],
)
def test_a_registry_is_asked_for_a_tag_or_a_digest(registry, reference, path):
    assert manifest_status(reference) == ("https", 200)
    assert registry.asked == [f"https://{path}"]


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_refusal_is_an_answer(registry, status):
    registry.answers["https"] = urllib.error.HTTPError("u", status, "no", {}, None)
    assert manifest_status("mirror/vllm:1") == ("https", status)


def test_a_registry_without_tls_is_asked_in_plain(registry):
    registry.answers = {"https": NO_TLS, "http": 200}
    assert manifest_status("mirror:5000/vllm:1") == ("http", 200)
    registry.answers["http"] = ConnectionResetError()
    assert manifest_status("mirror:5000/vllm:1") is None


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError(ssl.SSLCertVerificationError(1, "self-signed")),
        urllib.error.URLError(ConnectionRefusedError()),
        TimeoutError(),
        ValueError("odd"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_no_reason_for_plain_http(registry, error):
    registry.answers["https"] = error
    assert manifest_status("mirror/vllm:1") is None and len(registry.asked) == 1
