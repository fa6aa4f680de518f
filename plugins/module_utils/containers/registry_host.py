# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a registry whether it has a container image, by the OCI distribution specification. Runs on the host."""

from __future__ import annotations

import functools
import http.client
import ssl
import urllib.error

from ansible.module_utils.urls import open_url

from ..common.deadline import finish_within
from .oci_index import MANIFESTS

TIMEOUT = 15


def manifest_status(reference: str, timeout: int = TIMEOUT) -> tuple[str, int] | None:
    """Return the scheme and the HTTP status of a registry's answer for ``host/name:tag`` or ``host/name@digest``.

    None where nothing answers over HTTPS that is trusted here, nor over plain HTTP. No login is sent.
    """
    registry, _slash, rest = reference.partition("/")
    name, at, digest = rest.partition("@")
    if not at:
        name, _colon, digest = rest.rpartition(":")
    path = f"{registry}/v2/{name}/manifests/{digest}"
    for scheme in ("https", "http"):
        try:
            return scheme, finish_within(timeout, functools.partial(_head, f"{scheme}://{path}", timeout))
        except urllib.error.HTTPError as exc:
            return scheme, exc.code
        except (OSError, ValueError, http.client.HTTPException) as exc:
            if not _speaks_plain_http(exc):
                return None
    return None


def _head(url: str, timeout: int) -> int:
    answer = open_url(url, method="HEAD", headers={"Accept": ", ".join(MANIFESTS)}, timeout=timeout)
    return int(answer.status)


def _speaks_plain_http(exc: Exception) -> bool:
    """Return whether a connection failed because the other side speaks no TLS."""
    reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
    certificate = isinstance(reason, ssl.SSLCertVerificationError)
    return isinstance(reason, ssl.SSLError) and not certificate
