# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bundle import (
    BundleError,
    Content,
    carried_holds,
    format_bytes,
    merge_holds,
    parse_bundle,
    parse_holds,
    render_bundle,
    size_of,
    summarise_holds,
)

DIGEST = "0" * 64
OTHER = "1" * 64
FILE = {"size": 3, "sha256": DIGEST}


def holds(kind="weights", item="a/b/1", path="weights/a/b/1/x", **changes):
    return parse_holds({kind: {item: {path: {**FILE, **changes}}}}, "holds")


def test_what_is_written_is_what_is_read():
    written = {**holds(), **holds("wheels", "lock.txt", "wheels/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl")}
    found = parse_bundle(render_bundle(written), "bundle.json")
    assert {kind: items for kind, items in found.items() if items} == written
    assert json.loads(render_bundle(written))["bytes"] == 6


def test_a_file_of_two_items_counts_once():
    one, two = holds("wheels", "a.txt", "wheels/x-1.whl"), holds("wheels", "b.txt", "wheels/x-1.whl")
    assert size_of({"wheels": {**one["wheels"], **two["wheels"]}}) == 3


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ([], "found a list"),
        ({"wights": {}}, "unknown kind 'wights'"),
        ({"weights": {"a": {}}}, "expected a mapping of at least one file"),
        ({"weights": {"a": {"../x": FILE}}}, r"found the path '../x'"),
        ({"weights": {"a": {"/etc/x": FILE}}}, "found the path '/etc/x'"),
        ({"weights": {"a": {"weights/.x": FILE}}}, "found the path"),
        ({"controller": {"a": {"controller/../x": FILE}}}, "found the path"),
        ({"controller": {"a": {"controller/x/..": FILE}}}, "found the path"),
        ({"controller": {"a": {"controller/x\n": FILE}}}, "found the path"),
        ({"weights": {"a": {"weights/x": {"size": -1, "sha256": DIGEST}}}}, "expected size in bytes"),
        ({"weights": {"a": {"weights/x": {"size": True, "sha256": DIGEST}}}}, "expected size in bytes"),
        ({"weights": {"a": {"weights/x": {"size": 1, "sha256": "f"}}}}, "expected size in bytes"),
        ({"weights": {"a": {"weights/x": None}}}, "expected size in bytes"),
    ],
)
def test_wrong_content_is_named(data, part):
    with pytest.raises(BundleError, match=part):
        parse_holds(data, "holds")


@pytest.mark.parametrize(("text", "part"), [("{", "cannot be read"), ("[]", "version"), ('{"version": 2}', "found 2")])
def test_another_bundle_is_refused(text, part):
    with pytest.raises(BundleError, match=f"disk/bundle.json: .*{part}"):
        parse_bundle(text, "disk/bundle.json")


def test_what_an_earlier_fill_brought_stays_named():
    before, new = holds(), holds("encodings", "x", "encodings/x")
    merged, dropped = merge_holds(new, before, {"weights/a/b/1/x": 3})
    assert merged["weights"] == before["weights"] and merged["encodings"] == new["encodings"]
    assert dropped == []


@pytest.mark.parametrize("size", [None, 2])
def test_what_is_gone_or_cut_is_not_named_any_more(size):
    merged, dropped = merge_holds({}, holds(), {"weights/a/b/1/x": size})
    assert not merged["weights"]
    assert dropped == ["weights a/b/1"]


def test_two_items_never_say_two_things_of_one_file():
    merged, dropped = merge_holds(
        holds("wheels", "new", "wheels/x"), holds("wheels", "old", "wheels/x", sha256=OTHER), {"wheels/x": 3}
    )
    assert merged["wheels"] == {"new": {"wheels/x": Content(3, DIGEST)}}
    assert dropped == ["wheels old"]


def test_summary_and_amounts():
    assert summarise_holds(holds()) == ["weights: a/b/1 (1 file, 3 bytes)"]
    assert [format_bytes(count) for count in (999, 1000, 65_300_000_000, 2_000_000_000_000)] == [
        "999 bytes",
        "1.0 kB",
        "65.3 GB",
        "2.0 TB",
    ]


def test_the_controllers_files_are_items_by_their_top_name():
    content = Content(3, DIGEST)
    found = carried_holds({"controller/island/.vault": content, "controller/island/a b@c": content})
    assert list(found["controller"]) == ["island"] and len(found["controller"]["island"]) == 2
    assert carried_holds({"caches/a.json": content}) == {"caches": {"a.json": {"caches/a.json": content}}}
    assert carried_holds({}) == {}
    assert parse_bundle(render_bundle(found), "bundle.json")["controller"] == found["controller"]
    with pytest.raises(BundleError, match="rename the file"):
        carried_holds({"controller/\u00e9": content})


def test_the_controllers_files_of_an_earlier_fill_are_forgotten():
    before = carried_holds({"controller/old.whl": Content(3, DIGEST)})
    merged, dropped = merge_holds({}, before, {"controller/old.whl": 3})
    assert not merged["controller"] and not dropped


def test_a_disk_without_caches_is_read_by_older_releases():
    holds = carried_holds({"controller/a.whl": Content(3, DIGEST)})
    assert "caches" not in json.loads(render_bundle(holds))["holds"]
    with_caches = {**holds, **carried_holds({"caches/a.tar.gz": Content(3, DIGEST)})}
    assert parse_bundle(render_bundle(with_caches), "x")["caches"] == with_caches["caches"]
