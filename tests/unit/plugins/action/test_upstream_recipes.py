# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes out of a source distribution: from an index, an address, a file or a directory."""

from __future__ import annotations

import hashlib
import json

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.inference.plugins.action import upstream_recipes as upstream_action
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog import upstream_recipes

from tests.fakes.actions import Task, run_action
from tests.fakes.file_server import FileServer, serving
from tests.fakes.upstream import CONTENTS, TINY, VERSION, write_archive
from tools.vllm.pin_recipes import pins_of

NAME = f"vllm-{VERSION}.tar.gz"


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A pinned source distribution."""
    path = write_archive(tmp_path / NAME)
    pins = tmp_path / "pins"
    pins.mkdir()
    (pins / f"{VERSION}.yml").write_text(pins_of(path, VERSION))
    monkeypatch.setattr(upstream_recipes, "PINS", pins)
    upstream_recipes.load_pins.cache_clear()
    yield path
    upstream_recipes.load_pins.cache_clear()


def fetch(tmp_path, source, **more):
    return run_action("upstream_recipes", {"dest": str(tmp_path / "site"), "source": str(source), **more}, {})


def test_all_recipes_come_with_their_licence_and_their_origin(archive, tmp_path):
    found = fetch(tmp_path, archive)
    assert found["changed"] and found["recipes"] == ["org/big", "org/tiny"] and found["release"] == VERSION
    site = tmp_path / "site"
    assert (site / "org" / "tiny.yaml").read_bytes() == TINY
    assert (site / "LICENSE").read_bytes() == CONTENTS["LICENSE"]
    record = json.loads((site / "upstream.json").read_text())
    assert "Apache-2.0" in record["about"] and record["archive"]["name"] == NAME
    assert record["files"]["org/tiny.yaml"] == hashlib.sha256(TINY).hexdigest()
    # Nothing else of the archive, and nothing is fetched again.
    assert sorted(str(path.relative_to(site)) for path in site.rglob("*.*")) == [
        *("org/big.yaml", "org/tiny.yaml", "upstream.json"),
    ]
    archive.unlink()
    assert not fetch(tmp_path, archive)["changed"]


def test_an_index_names_the_file(archive, tmp_path):
    page = f'<a href="../../files/{NAME}#sha256=0">{NAME}</a> <a href="vllm-8.0.tar.gz">x</a>'
    with serving(FileServer()) as server:
        server.files = {"/simple/vllm/": page.encode(), f"/files/{NAME}": archive.read_bytes()}
        found = fetch(tmp_path, f"index:{server.url}/simple", names=["org/tiny"])
        assert found["fetched"] == ["org/tiny.yaml", "LICENSE"]
        server.files["/simple/vllm/"] = b"nothing"
        with pytest.raises(AnsibleActionFail, match=f"has no {NAME}; set fetch_source to an address or a path"):
            fetch(tmp_path, f"index:{server.url}/simple")


def test_a_directory_does_as_well(archive, tmp_path):
    unpacked = tmp_path / "unpacked"
    for name, data in CONTENTS.items():
        (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
        (unpacked / name).write_bytes(data)
    assert fetch(tmp_path, unpacked)["changed"]
    (unpacked / "recipes/models/org/big.yaml").unlink()
    (tmp_path / "site/org/big.yaml").unlink()
    with pytest.raises(AnsibleActionFail, match=r"big\.yaml: No such file"):
        fetch(tmp_path, unpacked)


def test_a_file_that_the_site_changed_stays_and_an_older_one_of_vllm_goes(archive, tmp_path):
    fetch(tmp_path, archive)
    site = tmp_path / "site"
    (site / "org/tiny.yaml").write_text("model: {model_id: org/mine}\n")
    # As an older release had it.
    (site / "org/big.yaml").write_text("old\n")
    record = json.loads((site / "upstream.json").read_text())
    record["files"]["org/big.yaml"] = hashlib.sha256(b"old\n").hexdigest()
    (site / "upstream.json").write_text(json.dumps(record))
    found = fetch(tmp_path, archive)
    assert found["fetched"] == ["org/big.yaml"] and found["kept"] == ["org/tiny.yaml"]
    assert found["warnings"] == ["org/tiny.yaml was changed on this site and stays"]
    assert (site / "org/tiny.yaml").read_text() == "model: {model_id: org/mine}\n"
    assert (site / "org/big.yaml").read_bytes() == CONTENTS["recipes/models/org/big.yaml"]


def test_check_mode_writes_nothing(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(Task, "check_mode", True)
    found = fetch(tmp_path, archive)
    assert found["changed"] and "+org/tiny.yaml" in found["diff"]["prepared"] and not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["org/tini"]}, f"fetch_names: vLLM {VERSION} has no recipe 'org/tini'; nearest: 'org/tiny'"),
        ({"release": "9.9"}, f"the recipes of vLLM 9.9 are not pinned; known: {VERSION}; pin them with"),
        ({"source": "relative/path"}, "found a relative path"),
    ],
)
def test_bad_input_is_one_sentence(archive, tmp_path, options, message):
    with pytest.raises(AnsibleActionFail, match=message):
        fetch(tmp_path, **{"source": archive, **options})


@pytest.mark.parametrize("text", ["[]", "x", '{"files": []}', '{"files": null}', '{"files": {"LICENSE": 1}}'])
def test_a_damaged_record_is_one_sentence(archive, tmp_path, text):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "upstream.json").write_text(text)
    with pytest.raises(AnsibleActionFail, match=r"upstream\.json: found no record of an earlier run; remove it"):
        fetch(tmp_path, archive)


def test_another_file_than_the_pinned_one_is_refused(archive, tmp_path):
    other = write_archive(tmp_path / "other.tar.gz", {**CONTENTS, "recipes/models/org/tiny.yaml": b"evil\n"})
    with pytest.raises(AnsibleActionFail, match=r"fetch_source: .*other\.tar\.gz"):
        fetch(tmp_path, other)
    (tmp_path / "unpacked/recipes/models/org").mkdir(parents=True)
    for name, data in CONTENTS.items():
        (tmp_path / "unpacked" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "unpacked" / name).write_bytes(data + b"#")
    with pytest.raises(AnsibleActionFail, match="LICENSE is missing or not that of vLLM"):
        fetch(tmp_path, tmp_path / "unpacked")
    assert not (tmp_path / "site").exists()


def test_a_recipe_that_a_release_carries_is_offered(archive):
    with pytest.raises(AnsibleActionFail, match=f"vLLM {VERSION} carries it: set vllm_recipe_path: .DIR., then"):
        run_action("recipe_trial", {"recipes": ["org/tiny"]}, {})


def test_what_an_instance_has_to_allow_is_said(archive, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("ansible.utils.display.Display.warning", lambda _self, text, **_more: told.append(text))
    fetch(tmp_path, archive)
    site = tmp_path / "site"
    (site / "org/tiny.yaml").write_text("model: {model_id: org/tiny, base_env: {LD_PRELOAD: /x.so}}\n")
    found = fetch(tmp_path, archive)
    assert any("org/tiny sets LD_PRELOAD, which an instance" in text for text in [*told, *found.get("warnings", [])])


def test_a_recipe_of_the_collection_is_replaced_only_by_name_and_never_silently(archive, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("ansible.utils.display.Display.warning", lambda _self, text, **_more: told.append(text))
    monkeypatch.setattr(upstream_action, "known_names", lambda *_: ["org/tiny", "org/elsewhere"])
    found = fetch(tmp_path, archive)
    assert found["recipes"] == ["org/big"] and not (tmp_path / "site/org/tiny.yaml").exists()
    assert "org/tiny was not fetched, because the collection has its own recipe for it" in str([told, found])
    found = fetch(tmp_path, archive, names=["org/tiny"])
    assert (tmp_path / "site/org/tiny.yaml").exists()
    assert "replaces the collection's own recipe org/tiny" in str([told, found])
    # Also where an earlier run fetched it.
    told.clear()
    assert "replaces the collection's own recipe org/tiny" in str([fetch(tmp_path, archive), told])
