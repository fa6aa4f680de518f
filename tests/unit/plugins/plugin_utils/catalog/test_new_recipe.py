# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.new_recipe import read_new
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

TEXT = "model:\n  model_id: org/model\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "any name.yaml"
    path.write_text(TEXT)
    return path


def test_a_recipe_is_placed_by_its_model_as_it_is(file, tmp_path):
    new = read_new(str(file))
    site = tmp_path / "site"
    assert (new.name, new.text_at(str(site))) == ("org/model", "")
    new.write(str(site))
    assert new.place(str(site)) == site / "org" / "model.yaml"
    assert new.text_at(str(site)) == (site / "org" / "model.yaml").read_text() == TEXT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model:\n  model_id: ../../etc/x\n",
            "model.model_id: found the text '../../etc/x', expected <organisation>/<name>",
        ),
        ("model:\n  model_id: org/model\n  base_arg: []\n", "unknown key 'model.base_arg'; nearest: 'base_args'"),
        ("[]\n", "expected a mapping"),
        ("model: [\n", "any name.yaml"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_with_its_name(file, text, message):
    file.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_new(str(file))
    assert message in str(caught.value) and "any name.yaml" in str(caught.value)


def test_a_place_that_cannot_be_read_or_written_is_one_sentence(file, tmp_path):
    new = read_new(str(file))
    (tmp_path / "org" / "model.yaml").mkdir(parents=True)
    with pytest.raises(PlanError, match=r"model\.yaml: cannot be read: Is a directory"):
        new.text_at(str(tmp_path))
    (tmp_path / "blocked").write_text("")
    with pytest.raises(PlanError, match=r"model\.yaml: cannot be written: "):
        new.write(str(tmp_path / "blocked"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PlanError, match=r"nowhere\.yaml"):
        read_new(str(tmp_path / "nowhere.yaml"))
