# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health.webhook import (
    WebhookError,
    check_token,
    check_url,
)


@pytest.mark.parametrize("url", [
    "https://chat.example.com/hooks/KEY", "https://chat.example.com:8443?x=1", "http://127.0.0.1:9/x", "http://[::1]:9/",
])  # fmt: skip
def test_addresses(url):
    check_url(url)


@pytest.mark.parametrize("url, told", [
    ("http://chat.example.com/KEY", "found the scheme 'http'"), ("file:///etc/KEY", "expected an address such as"),
    ("ftp://chat.example.com/KEY", "found the scheme 'ftp'"), ("https://u:KEY@chat.example.com", "without a user"),
    ("https://chat.example.com/a b", "without spaces"), ("https://chat.example.com:99999/", "Port out of range"),
    ("https://[::1/KEY", "Invalid IPv6 URL"), (["https://a"], "expected an address"),
    ("https://a/" + "x" * 2048, "2048"),
    ("https://chat.example.com/\r\nX: KEY", "without spaces"), ("chat.example.com/KEY", "expected an address such as"),
])  # fmt: skip
def test_what_is_no_address_and_never_shown(url, told):
    with pytest.raises(WebhookError) as caught:
        check_url(url)
    assert str(caught.value).startswith("health_webhook_url: ") and told in str(caught.value)
    assert "KEY" not in str(caught.value).replace("https://chat.example.com/hooks/KEY", "")


@pytest.mark.parametrize("token", ["", None, "xoxb-1~/+=", 12345])
def test_tokens(token):
    check_token(token)


@pytest.mark.parametrize("token", ["KEY\n", "KEY\r\nX: 1", "KEY 2", "KEY\u00fc", "KEY" * 1000])
def test_what_no_header_can_carry(token):
    with pytest.raises(WebhookError, match=r"^health_webhook_token: expected at most 2048 characters") as caught:
        check_token(token)
    assert "KEY" not in str(caught.value)
