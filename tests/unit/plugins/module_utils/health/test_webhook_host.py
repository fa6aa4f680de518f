# SPDX-License-Identifier: GPL-3.0-or-later
"""What a webhook gets after messages that it did not get; tests/unit/roles/health runs it with a real server."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health import webhook_host
from ansible_collections.baremetal.inference.plugins.module_utils.health.webhook import WebhookError
from ansible_collections.baremetal.inference.plugins.module_utils.health.webhook_host import (
    RefusedError,
    Target,
    Webhook,
)

from tests.fakes.gateways import until


class Fake:
    """A target that takes no message while it is closed."""

    per_hour = 100

    def __init__(self):
        self.is_open, self.found = False, []

    def post(self, message):
        if not self.is_open:
            raise RefusedError("it answered 503")
        self.found.append(message)


def test_the_next_message_says_how_many_were_not_sent(monkeypatch):
    monkeypatch.setattr(webhook_host, "AGAIN", (0.0,))
    said, target = [], Fake()
    webhook = Webhook(target, said.append)
    webhook.tell({"text": "one"})
    until(lambda: "The webhook did not get: one" in said)
    target.is_open = True
    webhook.tell({"text": "two"})
    webhook.tell({"text": "three"})
    until(lambda: len(target.found) == 2)
    assert target.found[0] == {"text": "two (1 earlier messages were not sent)", "not_sent": 1}
    assert target.found[1] == {"text": "three"}


def test_a_file_with_another_address_is_refused(tmp_path):
    (tmp_path / "webhook.json").write_text(json.dumps({"url": "http://chat.example.com/x"}))
    with pytest.raises(WebhookError):
        Target.read(str(tmp_path / "webhook.json"))
