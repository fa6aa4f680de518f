# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bundle import BundleError
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.signature import (
    Verdict,
    judge_gpgv,
    judge_sqv,
    read_keyring,
)

from tests.fakes.signer import signer


@pytest.mark.parametrize("data", [b"", b"text\n", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!\n", b"\x00" * 9])
def test_anything_but_a_keyring_is_named(data):
    with pytest.raises(BundleError, match=r"keyring: not a keyring of OpenPGP.*gpg --export"):
        read_keyring(data, "keyring")


def test_a_secret_key_is_named():
    with signer() as site:
        keys = (site.secret(), site.gpg("--armor", "--export-secret-keys"))
    for data in keys:
        with pytest.raises(BundleError, match="it holds a secret key"):
            read_keyring(data, "keyring")


def test_every_signature_must_be_good():
    good = "[GNUPG:] GOODSIG AA Site\n[GNUPG:] VALIDSIG F1NGER 2026-01-01\n"
    assert judge_gpgv(good, False) == Verdict("F1NGER", "")
    assert judge_gpgv(f"{good}[GNUPG:] ERRSIG BB\n[GNUPG:] NO_PUBKEY BB\n", True).reason
    assert judge_gpgv(good, True).reason and judge_gpgv("", False).reason and judge_gpgv("[GNUPG:] \n", False).reason


def test_what_sqv_reports():
    assert judge_sqv("F1NGER\n", False, "") == Verdict("F1NGER", "")
    assert judge_sqv("", True, "expired\nkey").reason == "expired key"
    assert judge_sqv("", False, "").reason
