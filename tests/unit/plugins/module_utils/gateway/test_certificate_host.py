# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates of a gateway: those of the collection's own CA, and those that a site brings."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.certificate_host import (
    DAY,
    CertificateError,
    check_site_certificate,
    issue_from_site_ca,
    refuse_other_authority,
)

from tests.fakes.wheelhouse import run_module


def make_certificate(directory, start="-1", end="90", names="DNS:gw"):
    """Make key and self-signed certificate that hold from ``start`` to ``end``, in days from now."""
    certificate, key = directory / "own.crt", directory / "own.key"
    openssl = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=x",
    ]
    subprocess.run([*openssl, "-keyout", key, "-out", certificate, "-days", end, "-addext", f"subjectAltName={names}"],
                   check=True, capture_output=True)  # fmt: skip
    return str(certificate), str(key)


class TestCertificates:
    def test_a_ca_is_made_once_and_certificates_are_kept(self, tmp_path):
        ca = str(tmp_path / "ca")
        assert issue_from_site_ca(ca, "gw", ["gw", "10.0.0.1", "fd00::1"], 825, 30, True).reason == "there is no CA yet"
        assert not (tmp_path / "ca").exists()
        first = issue_from_site_ca(ca, "gw", ["gw", "10.0.0.1", "fd00::1"], 825, 30, False)
        assert first.reason and first.not_after == time.strftime("%Y-%m-%d", time.gmtime(time.time() + 825 * DAY))
        assert issue_from_site_ca(ca, "gw", ["10.0.0.1", "gw", "fd00::1"], 825, 30, False).reason == ""
        assert issue_from_site_ca(ca, "gw2", ["gw2"], 825, 30, False).reason == "the gateway has no certificate yet"
        text = (tmp_path / "ca/ca.crt").read_text()
        assert issue_from_site_ca(ca, "gw", ["gw"], 9999, 30, False).reason == "the names have changed"
        assert (tmp_path / "ca/ca.crt").read_text() == text
        assert {path.name: path.stat().st_mode & 0o077 for path in (tmp_path / "ca").glob("*.key")} == {
            "ca.key": 0, "gw.key": 0, "gw2.key": 0,
        }  # fmt: skip
        verify = ["openssl", "verify", "-CAfile", f"{ca}/ca.crt", "-purpose", "sslserver", f"{ca}/gw.crt"]
        assert subprocess.run(verify, check=False, capture_output=True).returncode == 0

    @pytest.mark.parametrize("name", ["10.0.0.9,DNS:*.bank.example", "gw\nbasicConstraints=CA:TRUE", "::1%,DNS:a"])
    def test_a_name_is_no_other_extension(self, tmp_path, name):
        with pytest.raises(CertificateError, match="expected that of a host"):
            issue_from_site_ca(str(tmp_path / "ca"), "gw", ["gw", name], 825, 30, False)
        assert not (tmp_path / "ca/gw.crt").exists()

    @pytest.mark.slow
    def test_a_certificate_is_renewed_in_time_and_where_it_is_of_another_ca(self, tmp_path):
        ca = str(tmp_path / "ca")
        issue_from_site_ca(ca, "gw", ["gw"], 20, 10, False)
        assert issue_from_site_ca(ca, "gw", ["gw"], 825, 10, False).reason == ""
        assert issue_from_site_ca(ca, "gw", ["gw"], 825, 30, False).reason.startswith("the certificate expires on ")
        (tmp_path / "ca/gw.key").write_bytes((tmp_path / "ca/ca.key").read_bytes())
        assert (
            issue_from_site_ca(ca, "gw", ["gw"], 825, 30, False).reason == "the key does not belong to the certificate"
        )
        for name in ("ca.crt", "ca.key"):
            (tmp_path / "ca" / name).unlink()
        issue_from_site_ca(ca, "gw2", ["gw2"], 825, 30, False)
        assert issue_from_site_ca(ca, "gw", ["gw"], 825, 30, False).reason == "another CA issued the certificate"
        (tmp_path / "ca/ca.crt").unlink()
        with pytest.raises(CertificateError, match="is missing, but its key"):
            issue_from_site_ca(ca, "gw", ["gw"], 825, 30, False)

    @pytest.mark.slow
    def test_a_ca_is_not_replaced_where_a_gateway_has_a_certificate_of_another(self, tmp_path):
        ca, other = str(tmp_path / "ca"), str(tmp_path / "other")
        issue_from_site_ca(ca, "gw", ["gw"], 825, 30, False)
        issue_from_site_ca(other, "gw2", ["gw2"], 825, 30, False)
        present = (tmp_path / "ca/gw.crt").read_text()
        refuse_other_authority(ca, "gw", present)
        refuse_other_authority(f"{ca}-lost", "gw", "")
        with pytest.raises(
            CertificateError, match=r"gw: clients trust 'baremetal\.inference site CA \w+', .*-lost/ca.crt is missing"
        ):
            refuse_other_authority(f"{ca}-lost", "gw", present)
        with pytest.raises(CertificateError, match=r"other/ca.crt is 'baremetal.inference site CA"):
            refuse_other_authority(other, "gw", present)
        # A certificate that the site took from elsewhere gives way to the site's own CA.
        elsewhere = Path(make_certificate(tmp_path)[0]).read_text()
        refuse_other_authority(f"{ca}-lost", "gw", elsewhere)
        asked = {"ca_dir": f"{ca}-lost", "host": "gw", "names": ["gw"]}
        assert "is missing" in run_module("gateway_certificate", present=present, **asked)["msg"]
        assert not Path(f"{ca}-lost").exists()
        assert run_module("gateway_certificate", present="", **asked)["changed"]

    def test_half_a_certificate_is_named_by_its_own_place(self, tmp_path):
        ca = str(tmp_path / "ca")
        issue_from_site_ca(ca, "gw", ["gw"], 825, 30, False)
        present = (tmp_path / "ca/gw.crt").read_text()
        with pytest.raises(CertificateError, match=r"^the certificate that gw has now: openssl cannot use it: "):
            refuse_other_authority(ca, "gw", present[:200])
        authority = tmp_path / "ca/ca.crt"
        authority.write_text(authority.read_text()[:200])
        with pytest.raises(
            CertificateError, match=rf"^{re.escape(str(authority))}: openssl cannot use it: (?!.*/tmp/tmp)"
        ):
            refuse_other_authority(ca, "gw", present)

    def test_a_certificate_of_the_site_is_looked_at(self, tmp_path):
        certificate, key = make_certificate(tmp_path)
        assert check_site_certificate(certificate, key, ["gw"], 30, time.time()).warnings == []
        assert "expires on" in check_site_certificate(certificate, key, ["gw"], 99, time.time()).warnings[0]
        assert (
            "has none of the names" in check_site_certificate(certificate, key, ["other"], 30, time.time()).warnings[0]
        )

    def test_a_certificate_that_has_run_out_is_refused_with_dates(self, tmp_path):
        certificate, key = make_certificate(tmp_path)
        with pytest.raises(CertificateError, match=r"expired on \d{4}-\d\d-\d\d \(today is \d{4}-\d\d-\d\d\)"):
            check_site_certificate(certificate, key, ["gw"], 30, time.time() + 91 * DAY)
        with pytest.raises(CertificateError, match="is valid from"):
            check_site_certificate(certificate, key, ["gw"], 30, time.time() - 2 * DAY)

    def test_a_key_that_does_not_fit_is_refused(self, tmp_path):
        certificate, key = make_certificate(tmp_path)
        (tmp_path / "other").mkdir()
        _certificate, other = make_certificate(tmp_path / "other")
        for wrong, words in (
            (other, "is not the key of"),
            (certificate, "chmod 600|cannot use it"),
            ("/none", "cannot be read"),
        ):
            with pytest.raises(CertificateError, match=words):
                check_site_certificate(certificate, wrong, ["gw"], 30, time.time())
        (tmp_path / "own.key").chmod(0o644)
        with pytest.raises(CertificateError, match="is open to everybody"):
            check_site_certificate(certificate, key, ["gw"], 30, time.time())
        (tmp_path / "text").write_text("no certificate")
        (tmp_path / "own.key").chmod(0o600)
        assert (
            "openssl cannot use it"
            in run_module(
                "gateway_certificate",
                source="files",
                host="gw",
                names=["gw"],
                certificate=str(tmp_path / "text"),
                key=key,
            )["msg"]
        )
