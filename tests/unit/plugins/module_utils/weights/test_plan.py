# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.plan import (
    FileStatus,
    check_inodes,
    check_space,
    make_stamp,
    plan_fetch,
)

REVISION = "6cee5e81ee83917806bbde320786a8fb61efebee"
SHA = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
GOOD = {
    "repository": "openai/gpt-oss-20b",
    "revision": REVISION,
    "files": {"config.json": {"size": 2, "sha256": SHA}, "model.safetensors": {"size": 5, "sha256": SHA}},
}
SEEN = {"config.json": FileStatus(2, 10, 7), "model.safetensors": FileStatus(5, 11, 8)}


def names(files):
    return [file.name for file in files]


def test_verified_files_are_kept_unread():
    manifest = parse_manifest(GOOD)
    result = plan_fetch(manifest, SEEN, make_stamp(manifest, SEEN))
    assert names(result.keep) == ["config.json", "model.safetensors"]
    assert not result.check
    assert not result.fetch


def test_full_verification_reads_all():
    manifest = parse_manifest(GOOD)
    assert names(plan_fetch(manifest, SEEN, make_stamp(manifest, SEEN), full=True).check) == [
        "config.json",
        "model.safetensors",
    ]


OF_ANOTHER_VERSION = {**make_stamp(parse_manifest(GOOD), SEEN), "version": 2}


@pytest.mark.parametrize("stamp", [{}, OF_ANOTHER_VERSION, {"version": 1}, {"version": 1, "files": {"config.json": 3}}])
def test_without_a_good_stamp_all_is_read(stamp):
    assert names(plan_fetch(parse_manifest(GOOD), SEEN, stamp).check) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("found", [FileStatus(2, 99, 7), FileStatus(2, 10, 99)])
def test_touched_file_is_read(found):
    manifest = parse_manifest(GOOD)
    result = plan_fetch(manifest, {**SEEN, "config.json": found}, make_stamp(manifest, SEEN))
    assert names(result.check) == ["config.json"]


@pytest.mark.parametrize("seen", [{}, {"config.json": FileStatus(3, 10, 7)}])
def test_missing_or_longer_file_is_fetched(seen):
    manifest = parse_manifest(GOOD)
    result = plan_fetch(manifest, {"model.safetensors": SEEN["model.safetensors"], **seen}, make_stamp(manifest, SEEN))
    assert names(result.fetch) == ["config.json"]
    assert names(result.keep) == ["model.safetensors"]


def test_stamp_for_another_hash_does_not_count():
    other = parse_manifest(
        {**GOOD, "files": {name: {**entry, "sha256": "0" * 64} for name, entry in GOOD["files"].items()}}
    )
    assert names(plan_fetch(other, SEEN, make_stamp(parse_manifest(GOOD), SEEN)).check) == [
        "config.json",
        "model.safetensors",
    ]


def test_too_little_space_names_both_figures():
    with pytest.raises(WeightsError) as error:
        check_space("/srv", 65_248_893_184, 1_000_000_000, ["openai/gpt-oss-120b"])
    assert str(error.value) == (
        "/srv: 65248893184 bytes (60.77 GiB) are needed for openai/gpt-oss-120b, 1000000000 bytes (0.93 GiB) are free; "
        "free some space, or set weights_root to a larger file system"
    )
    check_space("/srv", 5, 5, ["a/b"])
    with pytest.raises(WeightsError, match=r"/srv: 6 inodes are needed for a/b, 5 are free \(df -i\)"):
        check_inodes("/srv", 6, 5, ["a/b"])
    check_inodes("/srv", 5, 5, ["a/b"])
