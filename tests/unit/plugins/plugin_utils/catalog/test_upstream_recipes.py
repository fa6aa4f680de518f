# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped pins, and what is written into a directory that has some files already."""

from __future__ import annotations

import re

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_recipes import (
    Directory,
    UpstreamError,
    has_recipe,
    load_pins,
    pinned_releases,
    read_directory,
)

WANTED = {"org/a.yaml": "1", "org/b.yaml": "2", "LICENSE": "3"}


@pytest.mark.parametrize("version", pinned_releases())
def test_the_shipped_pins_are_whole(version):
    pins = load_pins(version)
    assert pins.vllm == version and pins.archive.name == f"vllm-{version}.tar.gz" and pins.licence == "Apache-2.0"
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in [pins.archive.sha256, *pins.files.values()])
    assert len(pins.recipes) + 1 == len(pins.files)


def test_the_newest_release_is_taken_without_a_version():
    assert load_pins() == load_pins(pinned_releases()[-1])
    assert has_recipe("openai/gpt-oss-20b") == pinned_releases()[-1] and has_recipe("org/none") is None


@pytest.mark.parametrize(
    ("present", "recorded", "missing", "kept"),
    [
        ({}, {}, ["org/a.yaml", "org/b.yaml", "LICENSE"], []),
        (WANTED, {}, [], []),
        ({**WANTED, "org/a.yaml": "own"}, {}, [], ["org/a.yaml"]),
        ({**WANTED, "org/a.yaml": "own"}, {"org/a.yaml": "1"}, [], ["org/a.yaml"]),
        ({**WANTED, "org/a.yaml": "old"}, {"org/a.yaml": "old"}, ["org/a.yaml"], []),
    ],
)
def test_only_files_that_are_vllms_are_replaced(present, recorded, missing, kept):
    directory = Directory(present, recorded)
    assert directory.missing(WANTED) == missing and directory.kept(WANTED) == kept


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "upstream.json").write_text("[]")
    with pytest.raises(UpstreamError, match=r"fetch_dest: .*upstream.json: found no record of an earlier run"):
        read_directory(tmp_path, WANTED)
