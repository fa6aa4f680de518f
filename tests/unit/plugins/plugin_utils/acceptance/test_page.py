# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's text: nothing that a host says can become HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re

from ansible_collections.baremetal.inference.plugins.plugin_utils.acceptance.page import PARTS, page
from ansible_collections.baremetal.inference.plugins.plugin_utils.pages.file import read_parts

from tests.unit.plugins.plugin_utils.acceptance.test_judge import changed
from tests.unit.plugins.plugin_utils.acceptance.test_report import document_of

HOSTILE = "</script><img src=x onerror=alert(1)>@DATA@"


def test_the_page_holds_the_document_and_nothing_that_a_host_injects():
    document = document_of(changed(("chats",), [{"item": "chat", "ok": False, "msg": HOSTILE}]))
    text = page({**document, "host": HOSTILE})
    assert HOSTILE not in text
    held = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    data = json.loads(held.group(1))
    assert data["findings"] == document["findings"]
    assert data["titles"]["bf16_tflops"] == "bf16 matrix products, TFLOP/s"


def test_only_its_own_script_and_style_may_run():
    text = page(document_of({}))
    for kind, name in (("script", "js"), ("style", "css")):
        digest = base64.b64encode(hashlib.sha256(read_parts(PARTS)[name].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
