# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses, certificates and bodies of BMCs; test_ask.py asks real servers with every fault."""

from __future__ import annotations

import gzip
import ssl
import zlib
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish import service
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import RedfishError
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.service import base_url, tls_context


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("bmc-1", "https://bmc-1"), (" bmc-1:8443 ", "https://bmc-1:8443"), ("https://bmc-1/", "https://bmc-1"),
        ("2001:db8::1", "https://[2001:db8::1]"), ("[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ("fe80::1%eth0", "https://[fe80::1%eth0]"), ("https://[::1]:5000", "https://[::1]:5000"),
    ],
)  # fmt: skip
def test_an_address_is_a_host_with_or_without_a_port(address, url):
    assert base_url(address, with_password=True) == url


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("bmc-1:x", "is not a host, host:port or URL"), ("https://bmc-1:99999", "is not a host"),
        ("https://bmc-1/redfish/v1", "holds more than https://host:port"), ("bmc-1?x=1", "holds more than"),
        ("root:secret@bmc-1", "put the account into accelerator_bmc_username"), ("ftp://bmc-1", "holds more than"),
        ("", "has no host name"), ("https://", "has no host name"), ("bmc 1", "has no host name"),
        ("http://bmc-1", "would send the password unencrypted; use https"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_without_the_password(address, reason):
    with pytest.raises(RedfishError) as caught:
        base_url(address, with_password=True)
    assert reason in str(caught.value) and "secret" not in str(caught.value)


def test_without_a_password_nothing_needs_to_be_secret():
    assert base_url("http://bmc-1", with_password=False) == "http://bmc-1"


def test_certificates_are_checked_unless_the_site_says_otherwise(tmp_path):
    assert tls_context(True, None).verify_mode == ssl.CERT_REQUIRED
    careless = tls_context(False, "/nowhere")
    assert careless.verify_mode == ssl.CERT_NONE and not careless.check_hostname
    (tmp_path / "ca.pem").write_text("no certificate")
    for file, reason in (("/nowhere", "No such file"), (str(tmp_path / "ca.pem"), "no PEM certificate")):
        with pytest.raises(RedfishError, match=f"{file}: cannot be read as certificates of an authority: {reason}"):
            tls_context(True, file)


def answer(body, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return SimpleNamespace(read=body, getheader=named.get)


def parse(path, given):
    return service._parse(path, service._decompressed(path, given), given)


BODY = b'{"Name": "x"}'
TOO_LARGE = gzip.compress(b" " * (service.MAX_BODY + 1), mtime=0)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(BODY, None), (BODY, "identity"), (gzip.compress(BODY, mtime=0), " GZIP "), (zlib.compress(BODY), "deflate")],
)
def test_a_body_may_be_compressed(body, encoding):
    assert parse("/redfish/v1/", answer(body, Content_Encoding=encoding)) == {"Name": "x"}


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b"<html>", {"Content_Type": "text/html; charset=x"}, "/redfish/v1/ is not a JSON object but text/html"),
        (b"[]", {"Content_Type": "application/json"}, r"is not a JSON object\Z"),
        (b"x", {"Content_Type": "a b/\n"}, r"object\Z"),
        (BODY, {"Content_Encoding": "gzip"}, "is compressed although no compression was requested"),
        (BODY, {"Content_Encoding": "br"}, "is compressed although"),
        (TOO_LARGE, {"Content_Encoding": "gzip"}, "an answer is larger than 2 MiB"),
    ],
)  # fmt: skip
def test_a_body_that_is_no_document_is_refused(body, headers, reason):
    with pytest.raises(RedfishError, match=reason):
        parse("/redfish/v1/?$expand=x", answer(body, **headers))


@pytest.mark.parametrize(
    ("offered", "session"), [(None, True), ("", True), ('Digest realm="x"', True), ('BASIC realm="x"', False)]
)
def test_a_session_is_tried_where_basic_authentication_is_not_offered(offered, session):
    assert service._wants_session(answer(b"", WWW_Authenticate=offered)) == session


def test_causes_end_although_they_name_each_other():
    one, other = OSError(111, "refused"), ValueError("x")
    one.__cause__, other.__context__ = other, one
    assert list(service._causes(one)) == [one, other]
    wrapped = ValueError("y")
    wrapped.os_error = one
    assert list(service._causes(wrapped))[:2] == [wrapped, one]
