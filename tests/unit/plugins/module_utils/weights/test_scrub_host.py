# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.scrub_host import describe_damage, has_scrub

from tests.fakes.weights_store import A, flip, publish


def test_a_scrub_is_installed_as_long_as_its_timer_is_there(tmp_path):
    assert not has_scrub(str(tmp_path / "timer"))
    (tmp_path / "timer").symlink_to("/nowhere")
    assert has_scrub(str(tmp_path / "timer"))


def test_damage_is_told_until_the_file_is_right_again(run, root, tmp_path):
    path = root / "example/tiny" / A / "model.safetensors"
    flip(path)
    report = str(tmp_path / "state/report.json")
    run()
    (sentence,) = describe_damage(str(root), report)
    assert sentence.startswith(f"{path}: damaged when the scrub read it on 20")
    assert run()[0] == 1
    assert describe_damage(str(root), report) == [sentence]
    publish(root, A)
    assert describe_damage(str(root), report) == []
    status, found = run()
    assert (status, found["damaged"]) == (0, {})


def test_damage_is_forgotten_with_its_model(run, root, tmp_path):
    flip(root / "example/tiny" / A / "model.safetensors")
    run()
    (root / "example/tiny" / A).rename(tmp_path / "elsewhere")
    assert describe_damage(str(root), str(tmp_path / "state/report.json")) == []
    status, report = run()
    assert (status, report["damaged"]) == (0, {})


def test_a_fifo_in_place_of_the_stamp_is_not_waited_for(run, root, tmp_path):
    flip(root / "example/tiny" / A / "model.safetensors")
    run()
    stamp = root / "example/tiny" / A / ".verified.json"
    stamp.unlink()
    os.mkfifo(stamp)
    assert describe_damage(str(root), str(tmp_path / "state/report.json")) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "damaged": {"x": 1}}', '{"version": 1, "damaged": []}']
)
def test_report_that_is_none_says_nothing_and_is_written_anew(run, root, tmp_path, text):
    report = tmp_path / "state/report.json"
    report.parent.mkdir()
    report.write_text(text)
    assert describe_damage(str(root), str(report)) == []
    assert run()[0] == 0
