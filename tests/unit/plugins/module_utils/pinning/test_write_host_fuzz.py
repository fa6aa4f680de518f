# SPDX-License-Identifier: GPL-3.0-or-later
"""Hubs and mirrors that list whatever they like: a manifest that can be read, or an error, in time."""

from __future__ import annotations

import hashlib
import json
import random
import urllib.parse

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.pinning import hubs as _hubs
from ansible_collections.baremetal.inference.plugins.module_utils.pinning import web as _web
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.contents import render_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.write_host import Request, pin_model
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest

from tests.fakes.fuzz import (
    NASTY_TEXTS,
    HostileServer,
    assert_enough,
    assert_presentable,
    cases,
    mutated,
    told_apart,
    within,
)
from tests.fakes.tensors import safetensors

CANARY = "canary-token-77ab"
DEADLINE = 120
COMMIT, SHARD = "c" * 40, safetensors(b"w" * 900)
SHA = hashlib.sha256(SHARD).hexdigest()
INDEX = json.dumps({"weight_map": {"a": "model.safetensors"}}).encode()


def blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


TREE = [
    {"type": "directory", "path": "sub", "size": 0, "oid": COMMIT},
    {"type": "file", "path": "config.json", "size": 2, "oid": blob(b"{}")},
    {
        "type": "file",
        "path": "model.safetensors",
        "size": len(SHARD),
        "oid": COMMIT,
        "lfs": {"oid": SHA, "size": len(SHARD)},
    },
    {"type": "file", "path": "model.safetensors.index.json", "size": len(INDEX), "oid": blob(INDEX)},
]
LISTED = [
    {"Path": "config.json", "Type": "blob", "Size": 2, "Sha256": hashlib.sha256(b"{}").hexdigest()},
    {"Path": "model.safetensors", "Type": "blob", "Size": len(SHARD), "Sha256": SHA},
    {"Path": "sub/x.json", "Type": "blob", "Size": 2, "Sha256": ""},
]
REVISIONS = {"Branches": [{"Revision": "master", "CommitId": COMMIT}], "Tags": []}
PAGE = '<a href="../">up</a><a href="config.json">c</a><a href="model.safetensors">m</a><a href="sub/">s</a>'
DEEP = b"[" * 100_000


def content_of(path):
    """Return the right answer: data that is sent as JSON, or bytes."""
    url = urllib.parse.urlsplit(path)
    if "/tree/" in url.path:
        return TREE
    if url.path.startswith("/api/v1/"):
        known = {"RevisionMap": REVISIONS} if url.path.endswith("revisions") else {"Files": LISTED}
        return {"Code": 200, "Success": True, "Message": "success", "Data": known}
    if url.path.startswith("/api/models/"):
        return {"id": "org/name", "sha": COMMIT}
    if url.path.endswith("/"):
        return PAGE.encode() if "sub" not in url.path else b'<a href="x.json">x</a>'
    return {"model.safetensors": SHARD, "model.safetensors.index.json": INDEX}.get(url.path.rpartition("/")[2], b"{}")


def answer(choose, head):
    """Yield an answer in which something is changed now and then."""
    found = content_of(head.split()[1].decode("latin-1"))
    if not isinstance(found, bytes):
        found = mutated(choose, found) if choose.random() < 0.5 else found
        found = json.dumps(found, default=lambda _value: None, skipkeys=True).encode("utf-8", "surrogatepass")
    elif choose.random() < 0.2:
        place = choose.randint(0, len(found))
        text = choose.choice(NASTY_TEXTS).encode()
        found = found[:place] + choose.choice((text, b'<a href="' + text + b'">x</a>')) + found[place:]
    if choose.random() < 0.05:
        found = choose.choice((b"", DEEP, b"null", b"\xff\xfe", b"[]", b"{}"))
    link = choose.choice(
        ("",) * 5 + NASTY_TEXTS + ("/api/models/org/name/tree/main", head.split()[1].decode("latin-1"))
    )
    lines = [f"HTTP/1.1 {choose.choice((200,) * 12 + (401, 404, 500))} OK", f"Content-Length: {len(found)}"]
    if choose.random() < 0.1 and link.isprintable():
        lines.append(f'Link: <{link}>; rel="next"')
    if choose.random() < 0.1:
        lines.append("Content-Type: application/json")
    yield "\r\n".join((*lines, "", "")).encode("latin-1", "replace") + found
    yield True


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hub:", "modelscope:", ""])
def test_whatever_a_server_lists_it_is_pinned_or_refused_in_one_sentence(monkeypatch, kind):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(_web, "ATTEMPTS", 2)
    monkeypatch.setattr(_web.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(_hubs, "MAX_PAGES", 5)
    pinned = 0
    for label, choose in cases(f"pin-{kind or 'mirror:'}", 300):
        seed = choose.random()

        def script(head, seed=seed):
            # Several threads ask at once: each path has its own choices.
            return answer(random.Random(f"{seed} {head.split()[1]!r}"), head)

        with told_apart(label), HostileServer(script) as server:
            request = Request("org/name", f"{kind}{server.url}{'' if kind else '/'}")
            environment = {"HF_TOKEN": CANARY, "MODELSCOPE_API_TOKEN": CANARY}
            try:
                found = within(DEADLINE, lambda request=request, known=environment: pin_model(request, known))
            except WeightsError as exc:
                assert_presentable(str(exc))
                assert CANARY not in str(exc)
                continue
            pinned += 1
            text = render_manifest(found.manifest, found.precision)
            assert parse_manifest(yaml.safe_load(text)) == found.manifest
    assert_enough(pinned, 5, "pinned")
