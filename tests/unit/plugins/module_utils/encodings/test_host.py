# SPDX-License-Identifier: GPL-3.0-or-later
"""The encodings of a host: the first source that has the published file, and no other file, ever."""

from __future__ import annotations

import hashlib
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.encodings import host as encodings
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import (
    ENCODINGS,
    EncodingsError,
    Published,
)
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.host import (
    check_sources,
    choose_source,
    fetch_encoding,
    inspect_encodings,
)
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import Settings

NAME, TEXT = sorted(ENCODINGS)[0], b"IQ== 0\n"
DIGEST = hashlib.sha256(TEXT).hexdigest()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two mirrors, the second with the file."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    published = Published(len(TEXT), DIGEST)
    monkeypatch.setattr(encodings, "expected_files", lambda names: dict.fromkeys(names, published))
    for name in ("empty", "mirror", "etc"):
        (tmp_path / name).mkdir()
    (tmp_path / "mirror" / NAME).write_bytes(TEXT)
    return tmp_path


@pytest.fixture
def state(place):
    """Return a function that inspects the file of the host."""
    return lambda: inspect_encodings(str(place / "etc"), [NAME])[0]


SETTINGS = Settings()


def test_a_file_that_is_not_the_published_one_is_to_be_replaced(place, state):
    assert state().changed and state().found == ""
    (place / "etc" / NAME).write_bytes(b"other")
    assert state().changed and "sha256 " in encodings.EncodingOutcome(state()).diff()["before"]
    (place / "etc" / NAME).write_bytes(TEXT)
    assert not state().changed


def test_the_first_source_that_has_the_file_gives_it(place, state):
    sources = [str(place / "empty"), str(place / "mirror")]
    chosen = choose_source(state(), sources, SETTINGS)
    assert chosen.source == sources[1] and len(chosen.skipped) == 1
    assert not (place / "etc" / NAME).exists(), "it was only looked for"
    done = fetch_encoding(chosen, sources, SETTINGS)
    assert (place / "etc" / NAME).read_bytes() == TEXT and not state().changed
    assert done.as_dict()["source"] == sources[1] and done.as_dict()["changed"]


def test_a_source_with_another_file_of_that_size_is_passed_over(place, state):
    (place / "empty" / NAME).write_bytes(b"x" * len(TEXT))
    sources = [str(place / "empty"), str(place / "mirror")]
    done = fetch_encoding(choose_source(state(), sources, SETTINGS), sources, SETTINGS)
    assert done.source == sources[1] and "sha256" in done.skipped[0]
    assert (place / "etc" / NAME).read_bytes() == TEXT


@pytest.mark.parametrize(("names", "reason"), [([], "encodings_sources is empty"), (["empty"], "empty/")])
def test_without_a_source_that_has_it_the_reasons_are_said(place, state, names, reason):
    with pytest.raises(EncodingsError, match=f"no source has {NAME} .*{reason}"):
        choose_source(state(), [str(place / name) for name in names], SETTINGS)


def test_a_file_that_is_right_needs_no_source(place, state):
    (place / "etc" / NAME).write_bytes(TEXT)
    chosen = choose_source(state(), [], SETTINGS)
    assert fetch_encoding(chosen, [], SETTINGS) == chosen and not chosen.as_dict()["changed"]


def test_only_published_names_are_known():
    with pytest.raises(EncodingsError, match="unknown encodings file 'x'; known files: "):
        inspect_encodings("/nothing/here", ["x"])


def test_a_source_is_a_path_an_address_a_wheel_or_an_index():
    check_sources(["/srv/encodings", "https://mirror/encodings", "https://mirror/a.whl", "index:https://mirror/simple"])
    with pytest.raises(EncodingsError, match=r"^encodings_sources: "):
        check_sources(["ftp://mirror/encodings"])
