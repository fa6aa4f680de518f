# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking the library of an instance: programs in its place answer, refuse, hang and fail."""

from __future__ import annotations

import getpass
import json
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.encodings import library_host
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import ENCODINGS
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.library import NEEDED, RefusedError, Use
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.library_host import (
    all_accepted,
    ask_library,
    read_accepted,
    read_state,
    write_accepted,
)

ME = getpass.getuser()


@pytest.fixture
def place(tmp_path):
    for name in ENCODINGS:
        (tmp_path / name).write_text(name)
    return tmp_path


def use(place, script="", image=""):
    python = place / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return Use(str(place), "0.33.0", str(python), image, "", ("chat",))


def answer(**said):
    return f"echo 'a warning of the library'; echo '{json.dumps(said)}'"


def test_a_library_that_loads_them_is_named(place):
    script = answer(library="oss-harmony 0.0.9", loaded="HarmonyGptOss")
    assert ask_library(use(place, script), "", ME) == ("oss-harmony 0.0.9", "")
    assert ask_library(use(place, answer(loaded="x")), "", ME) == ("harmony", "")


def test_the_library_runs_alone_in_the_place_of_the_instance(place):
    alone = f'test "$1" = -I && test "$TIKTOKEN_ENCODINGS_BASE" = {place} && test "$PWD" = / || exit'
    assert ask_library(use(place, f"{alone}\n{answer(loaded='x')}"), "", ME)[0] == "harmony"


def test_a_library_that_refuses_them_is_an_error_with_its_instances(place):
    with pytest.raises(RefusedError, match=r"oss-harmony 0\.0\.9 of release 0\.33\.0") as caught:
        ask_library(use(place, answer(library="oss-harmony 0.0.9", refused="bad hash")), "", ME)
    assert str(caught.value).endswith("chat would not start")


def test_without_the_file_no_library_is_asked(place):
    (place / NEEDED).unlink()
    with pytest.raises(RefusedError, match=NEEDED):
        ask_library(use(place, f"touch {place}/asked"), "", ME)
    assert not (place / "asked").exists()


@pytest.mark.parametrize("script", ["exit 3", "echo no json", "echo broken >&2", answer(missing="No module named x")])
def test_a_library_that_cannot_be_asked_is_a_warning(place, script):
    name, warning = ask_library(use(place, script), "", ME)
    assert name == "" and warning


def test_a_library_that_hangs_or_is_gone_is_a_warning(place, monkeypatch):
    monkeypatch.setattr(library_host, "PATIENCE_S", 0.2)
    assert "no answer in 0.2 seconds" in ask_library(use(place, "exec sleep 30"), "", ME)[1]
    gone = use(place)
    os.unlink(gone.python)
    assert "No such file" in ask_library(gone, "", ME)[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_that_the_host_does_not_have_is_named(place):
    with pytest.raises(RefusedError, match="found no user 'nobody-here' on this host"):
        ask_library(use(place), "", "nobody-here")


def test_answers_hold_until_a_file_the_library_or_the_reader_changes(place):
    one, path = use(place), str(place / "state/accepted.json")
    state = read_state(one, "", ME)
    assert set(state["files"]) == set(ENCODINGS) and all(state["files"].values())
    assert not all_accepted([one], "", ME, path) and all_accepted([], "", ME, path)
    write_accepted(path, {one.key: state})
    assert all_accepted([one], "", ME, path) and not all_accepted([one], "", "another", path)
    (place / "next").write_text(NEEDED)
    (place / "next").replace(place / NEEDED)
    assert not all_accepted([one], "", ME, path), "the same bytes in another file"
    write_accepted(path, {one.key: read_state(one, "", ME)})
    os.unlink(one.python)
    assert not all_accepted([one], "", ME, path)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 2, "good": {}}', '{"version": 1, "good": []}', '{"version": 1}', "\x00"]
)
def test_a_damaged_record_remembers_nothing(tmp_path, text):
    (tmp_path / "x").write_text(text)
    assert read_accepted(str(tmp_path / "x")) == read_accepted(str(tmp_path / "none")) == {}


def test_an_image_is_known_by_its_id_and_one_that_cannot_be_inspected_is_not(place):
    engine = place / "engine"
    engine.write_text("#!/bin/sh\necho sha256:1234\n")
    engine.chmod(0o755)
    image = use(place, image="vllm/vllm-openai:v0.33.0")
    assert read_state(image, str(engine), ME)["library"] == "sha256:1234"
    engine.write_text("#!/bin/sh\necho 'Error: no such image' >&2; exit 1\n")
    assert read_state(image, str(engine), ME)["library"] == "unknown: Error: no such image"
