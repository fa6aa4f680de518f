# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.credentials import (
    MASK,
    redact_credentials,
)

DEB = "deb [signed-by=/etc/apt/keyrings/docker.asc trusted=yes] https://{}m:8443/download.docker.com bookworm stable"
TEXTS = [
    (DEB.format("reader:hunter2@"), DEB.format("********@")),
    ("URIs: http://hunter2@m/a https://r:hunter2@n/b\n", "URIs: http://********@m/a https://********@n/b\n"),
    ("http://r:hunter2/hunter2@m/a", "http://********@m/a"),
    ("http://r:hunter2@hunter2@m/a", "http://********@m/a"),
    ("baseurl=https://m/a?token=hunter2&x=1\nenabled=1", "baseurl=https://m/a?********\nenabled=1"),
    ("username=hunter2\npassword = hunter2 x\n", "username=********\npassword =********\n"),
    ("proxy_username: hunter2\nproxy_password=hunter2", "proxy_username:********\nproxy_password=********"),
]
SAFE = [
    DEB.format(""),
    "http://m:8080/pkg@1/",
    "https://m/pkg@1",
    "# mail to people@site.example\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-docker-ce\n",
    "baseurl=https://download.docker.com/linux/centos/9/$basearch/stable\n",
    "",
]


@pytest.mark.parametrize(("text", "shown"), TEXTS)
def test_credentials_are_masked(text, shown):
    assert redact_credentials(text) == shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("text", [*SAFE, "a" * 200_000, "\n" * 200_000])
def test_a_text_without_credentials_is_unchanged(text):
    assert redact_credentials(text) == text


@pytest.mark.parametrize("text", [text for text, _shown in TEXTS])
def test_masking_twice_changes_nothing(text):
    once = redact_credentials(text)
    assert redact_credentials(once) == once


@pytest.mark.parametrize("shape", ["a://", "a://x:y", "a://#", "a://:1:@", "a://?'", "@", "?", "password\n"])
def test_the_time_grows_with_the_text_only(shape):
    # A quadratic search of these takes minutes.
    hidden = redact_credentials(shape * (400_000 // len(shape)) + " http://me:secret@host/x?token=t#")
    assert hidden.endswith(f"http://{MASK}@host/x?{MASK}")
