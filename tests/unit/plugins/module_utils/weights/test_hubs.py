# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights import hubs as _hubs
from ansible_collections.baremetal.inference.plugins.module_utils.weights.hubs import Listed
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError

COMMIT = "c" * 40


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (_hubs.hub_file("https://h/", "o/n", COMMIT, "a b/c.json"), f"https://h/o/n/resolve/{COMMIT}/a%20b/c.json"),
        (_hubs.hub_file("https://h", "o/n", "refs/pr/1", "x"), "https://h/o/n/resolve/refs%2Fpr%2F1/x"),
        (_hubs.hub_revision("https://h", "o/n", "main"), "https://h/api/models/o/n/revision/main"),
        (
            _hubs.modelscope_file("https://m", "o/n", "v1.0", "a/b&c+d"),
            "https://m/models/o/n/resolve/v1.0/a/b%26c%2Bd",
        ),
        (
            _hubs.modelscope_tree("https://m/", "o/n", "master"),
            "https://m/api/v1/models/o/n/repo/files?Revision=master&Recursive=True",
        ),
    ],
)
def test_addresses(made, expected):
    assert made == expected


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ('<https://h/next?cursor=a%2Cb>; rel="next"', "https://h/next?cursor=a%2Cb"),
        ('<https://h/first>; rel="prev", <https://h/n>; rel="next"', "https://h/n"),
        ('<https://h/first>; rel="prev"', ""),
        ("", ""),
    ],
)
def test_next_page(link, expected):
    assert _hubs.next_page(link) == expected


def test_large_files_have_their_sha256_and_small_ones_their_blob_id():
    page = [
        {"type": "directory", "oid": "d", "size": 0, "path": "sub"},
        {"type": "file", "oid": "b" * 40, "size": 3, "path": "config.json"},
        {
            "type": "file",
            "oid": "e" * 40,
            "size": 7,
            "path": "m.safetensors",
            "lfs": {"oid": "f" * 64, "size": 7, "pointerSize": 134},
            "xetHash": "0" * 64,
        },
    ]
    assert _hubs.hub_files(page, "there") == [
        Listed("config.json", 3, blob="b" * 40),
        Listed("m.safetensors", 7, "f" * 64),
    ]


@pytest.mark.parametrize("page", [None, {"error": "x"}, [{"path": "x"}], [{"type": "file", "path": "x"}]])
def test_an_answer_that_is_no_listing(page):
    with pytest.raises(WeightsError, match="there: the listing of files cannot be read"):
        _hubs.hub_files(page, "there")


@pytest.mark.parametrize(
    ("status", "code", "token", "said"),
    [
        (401, "GatedRepo", False, "gated and no token was given; name its file in token_file or set HF_TOKEN"),
        (403, "GatedRepo", True, "the token's account has no access"),
        # A fine-grained token that may not read gated repositories.
        (403, "", True, "let a fine-grained token read gated repositories in its settings"),
        (401, "RepoNotFound", False, "no such model; a private one needs a token"),
        (404, "RepoNotFound", True, "no such model, or the token is wrong or expired"),
        (401, "", True, "the token is wrong or expired"),
        (404, "RevisionNotFound", False, "no revision 'v9'"),
        (500, "", False, "HTTP 500"),
    ],
)
def test_refusals_of_a_hub(status, code, token, said):
    message = _hubs.hub_refusal("o/n", "v9", status, code, token)
    assert said in message
    assert message.startswith("o/n: ")


def revisions(*branches):
    return {"RevisionMap": {"Branches": list(branches), "Tags": [{"Revision": "v1", "CommitId": COMMIT}]}}


def test_modelscope_branches_and_tags_lead_to_commits():
    data = revisions({"Revision": "master"})
    assert _hubs.modelscope_commit(data, "o/n", "v1") == COMMIT
    assert _hubs.modelscope_commit(data, "o/n", "master") == ""
    assert _hubs.modelscope_commit(data, "o/n", "e" * 40) == "e" * 40
    with pytest.raises(
        WeightsError, match=r"o/n: ModelScope has no revision 'main'; its branches and tags: master, v1"
    ):
        _hubs.modelscope_commit(data, "o/n", "main")


def test_a_listing_of_modelscope_is_a_list():
    with pytest.raises(WeightsError, match="there: the listing of files is a mapping, expected a list"):
        _hubs.modelscope_files({"Files": {"Path": "x"}}, "there")


def test_a_listing_that_modelscope_cut_off():
    entry = {"Path": "x", "Type": "blob", "Size": 1, "Sha256": "0" * 64}
    with pytest.raises(WeightsError, match="lists no more than 3000 files"):
        _hubs.modelscope_files({"Files": [entry] * 3000}, "there")


def test_modelscope_says_200_to_errors():
    with pytest.raises(WeightsError, match="record not found"):
        _hubs.modelscope_data({"Code": 404, "Success": False, "Data": {}, "Message": "record not found"}, "there")
    with pytest.raises(WeightsError, match="nothing that can be read"):
        _hubs.modelscope_data([], "there")


def test_differences_are_missing_and_other_files():
    files = [Listed("a", 1, "1"), Listed("b", 2, "2"), Listed("c", 3, "3")]
    assert _hubs.differing_files(files, [Listed("a", 1, "1"), Listed("b", 2, "x"), Listed("d", 4, "4")]) == ["b", "c"]


def test_a_header_of_brackets_takes_no_time():
    """It has 64 KiB at most; with a search from each bracket to the end it took 13 s."""
    began = time.process_time()
    assert not _hubs.next_page("<" * 65_000)
    assert time.process_time() - began < 1
