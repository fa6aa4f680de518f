# SPDX-License-Identifier: GPL-3.0-or-later
"""Models on hubs, which are played: nothing is pinned that differs from its listing."""

from __future__ import annotations

import hashlib
import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning import hubs
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.contents import blob_id
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.hubs import Hub, ModelScope
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.web import Response
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError

MODEL, COMMIT, AT = "org/tiny", "a" * 40, "https://hub"
CONFIG, SHA = b'{"a": 1}', hashlib.sha256(b'{"a": 1}').hexdigest()
LARGE = {"type": "file", "path": "model.safetensors", "lfs": {"size": 9, "oid": "1" * 64}, "size": 1, "oid": "x"}


class Web:
    """Answers by the end of an address: a status and a body, and headers where they matter."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def get(self, url):
        self.asked.append(url)
        part = max((part for part in self.answers if part in url), key=len)
        status, body, *headers = self.answers[part]
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Response(url, status, dict(*headers), data)

    def hash(self, url, feed):
        body = self.get(url).body
        feed(body)
        return len(body), hashlib.sha256(body).hexdigest()


def small(size=8, blob=None):
    return {"type": "file", "path": "config.json", "size": size, "oid": blob or blob_id(CONFIG)}


def hub(name=MODEL, token=False, **answers):
    listing = [small(), LARGE, {"type": "directory", "path": "sub"}]
    known = {"revision": (200, {"sha": COMMIT, "id": MODEL}), "tree": (200, listing), "resolve": (200, CONFIG)}
    web = Web(**{**known, **answers})
    return Hub(web, AT, name, "main", token), web


def test_the_commit_and_the_files_of_a_branch_are_pinned():
    found, _web = hub()
    assert found.revision == COMMIT
    assert [(file.name, file.size, file.sha256) for file in found.files] == [
        ("config.json", len(CONFIG), ""), ("model.safetensors", 9, "1" * 64),
    ]  # fmt: skip


def test_a_small_file_is_read_for_its_hash_and_a_large_one_is_not():
    found, web = hub()
    config, large = found.files
    assert found.complete(config).sha256 == SHA
    before = len(web.asked)
    assert found.complete(large) == large and len(web.asked) == before
    # From the commit: the branch may move in between.
    assert COMMIT in web.asked[-1] and "main" not in web.asked[-1]


@pytest.mark.parametrize("listed", [small(size=3), small(blob="0" * 40)], ids=["another size", "another hash"])
def test_a_file_that_differs_from_its_listing_is_refused(listed):
    found, _web = hub(tree=(200, [listed]))
    with pytest.raises(WeightsError, match=r"config.json does not match the hub's listing"):
        found.complete(found.files[0])


def test_a_file_that_was_damaged_before_it_came_to_the_hub_is_refused():
    page = b"<!DOCTYPE html><html>login</html>"
    found, _web = hub(tree=(200, [small(len(page), blob_id(page))]), resolve=(200, page))
    with pytest.raises(WeightsError, match=r"org/tiny: config.json "):
        found.read(found.files[0])


def test_all_pages_of_a_listing_are_read_and_an_endless_one_is_not(monkeypatch):
    found, _web = hub(tree=(200, [LARGE], {"Link": f'<{AT}/next>; rel="next"'}), next=(200, [small()]))
    assert [file.name for file in found.files] == ["model.safetensors", "config.json"]
    monkeypatch.setattr(hubs, "MAX_PAGES", 3)
    with pytest.raises(WeightsError, match="more than 3 pages of files"):
        hub(tree=(200, [LARGE], {"Link": f'<{AT}/tree>; rel="next"'}))


def test_an_old_name_of_a_model_is_refused_with_the_new_one():
    """On hosts it would be another directory of the same weights."""
    with pytest.raises(WeightsError, match="found 'org/old', which the hub calls 'org/tiny'; use that name"):
        hub(name="org/old")


@pytest.mark.parametrize(
    ("status", "code", "token", "message"),
    [
        (404, "RevisionNotFound", False, "the hub has no revision 'main'"),
        (403, "GatedRepo", False, "no token was given"),
        (403, "GatedRepo", True, "the token's account has no access"),
        (401, "", False, "a private one needs a token"),
        (401, "", True, "the token is wrong or expired"),
        (500, "", False, "the hub answered HTTP 500"),
    ],
)
def test_a_refusal_says_what_it_means(status, code, token, message):
    with pytest.raises(WeightsError, match=message):
        hub(token=token, revision=(status, b"", {"X-Error-Code": code}))


def modelscope(**answers):
    known = {
        "revisions": (200, {"Data": {"RevisionMap": {"Branches": [{"Revision": "main", "CommitId": COMMIT}]}}}),
        "repo/files": (200, {"Data": {"Files": [
            {"Path": "config.json", "Size": len(CONFIG), "Sha256": ""}, {"Path": "w", "Size": 9, "Sha256": "1" * 64},
            {"Path": "sub", "Type": "tree"},
        ]}}),
        "resolve": (200, CONFIG),
    }  # fmt: skip
    web = Web(**{**known, **answers})
    return ModelScope(web, AT, MODEL, "main", False), web


def test_modelscope_states_the_hash_of_nearly_all_files():
    found, web = modelscope()
    assert (found.revision, [file.name for file in found.files]) == (COMMIT, ["config.json", "w"])
    assert found.complete(found.files[0]).sha256 == SHA
    before = len(web.asked)
    assert found.complete(found.files[1]).sha256 == "1" * 64 and len(web.asked) == before


def test_what_modelscope_serves_must_be_what_it_lists():
    found, _web = modelscope(resolve=(200, CONFIG + b" "))
    with pytest.raises(WeightsError, match=r"config\.json has 9 bytes, ModelScope lists 8"):
        found.complete(found.files[0])
    with pytest.raises(WeightsError, match=r"w does not match ModelScope's listing"):
        found.read(found.files[1])
    assert modelscope()[0].read(found.files[0]) == CONFIG


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"revisions": (404, b"")}, "ModelScope has no such model"),
        ({"repo/files": (404, b"")}, "ModelScope has no revision 'main'; give a branch"),
        ({"repo/files": (200, {"Success": False, "Message": "busy"})}, "ModelScope answered 'busy', expected its data"),
        ({"revisions": (200, b"<html>")}, "found no JSON in the answer"),
    ],
)
def test_a_model_that_modelscope_does_not_have_is_named(answers, message):
    with pytest.raises(WeightsError, match=message):
        modelscope(**answers)
