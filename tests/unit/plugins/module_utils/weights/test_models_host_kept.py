# SPDX-License-Identifier: GPL-3.0-or-later
"""One revision after the other through the module: what stays, what goes, and the way back without a download."""

from __future__ import annotations

import hashlib
import os
import secrets

import pytest

from tests.fakes.wheelhouse import run_module

# A revision that a process on this machine names is in use: no other test may have the same.
A, B, C, D = sorted(secrets.token_hex(20) for _each in "abcd")


def manifest(revision):
    content = revision.encode()
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {"repository": "example/tiny", "revision": revision, "files": {"config.json": entry}}


@pytest.fixture
def source(tmp_path):
    for revision in (A, B, C, D):
        directory = tmp_path / "disk/example/tiny" / revision
        directory.mkdir(parents=True)
        (directory / "config.json").write_text(revision)
    return tmp_path / "disk"


@pytest.fixture
def weights(tmp_path, source):
    """Run the module for one revision as the role does."""

    def run(revision, **arguments):
        defaults = {
            "models": [manifest(revision)],
            "sources": [str(source)],
            "root": str(tmp_path / "models"),
            "state_dir": str(tmp_path / "state"),
            # The store is this machine's, whatever file system its tests are on.
            "shared": "no",
        }
        return run_module("weights", **{**defaults, **arguments})

    return run


@pytest.fixture
def serve(tmp_path):
    """Point the instance to a revision, as the role vllm does."""

    def serve(revision):
        link = tmp_path / "state/chat/model"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / "models/example/tiny" / revision)

    return serve


def there(tmp_path):
    return sorted(name for name in os.listdir(tmp_path / "models/example/tiny") if name != ".lock")


def removed(result):
    return [os.path.basename(old["path"]) for old in result["removed"]]


def test_the_newest_other_revision_stays(weights, tmp_path):
    assert removed(weights(A)) == []
    assert removed(weights(B)) == []
    predicted = weights(C, _ansible_check_mode=True)
    assert removed(predicted) == [A]
    assert there(tmp_path) == [A, B]
    assert removed(weights(C)) == [A]
    assert there(tmp_path) == [B, C]
    again = weights(C)
    assert not again["changed"]
    assert again["removed"] == []


def test_what_serves_stays_until_the_instance_has_left_and_then_as_the_one_to_go_back_to(weights, serve, tmp_path):
    weights(A)
    serve(A)
    weights(B)
    # B is never served; when C comes, A is what there is to go back to.
    assert removed(weights(C)) == [B]
    serve(C)
    assert not weights(C)["changed"]
    assert there(tmp_path) == [A, C]


def test_the_way_back_needs_no_source(weights, serve, tmp_path):
    weights(A)
    serve(A)
    weights(B)
    serve(B)
    back = weights(A, sources=[])
    assert not back["changed"]
    assert there(tmp_path) == [A, B]


def test_none_is_kept_but_what_serves(weights, serve, tmp_path):
    weights(A, keep=0)
    serve(A)
    assert removed(weights(B, keep=0)) == []
    serve(B)
    assert removed(weights(B, keep=0)) == [A]
    assert there(tmp_path) == [B]


@pytest.mark.parametrize("options", [{"keep": -1}, {"shared": "yes", "keep": 0}])
def test_all_are_kept(weights, tmp_path, options):
    for revision in (A, B, C, D):
        assert removed(weights(revision, **options)) == []
    assert there(tmp_path) == [A, B, C, D]


def test_a_wrong_number_is_refused(weights):
    assert "weights_keep: found -2, expected -1 or more" in weights(A, keep=-2)["msg"]
