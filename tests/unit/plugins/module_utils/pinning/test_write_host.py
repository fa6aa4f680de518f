# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.write_host import Request, pin_model
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError

from tests.fakes.hub_server import Model, hubs_running, sha256

COMMIT, NEWER = "c" * 40, "d" * 40
SHARDS = {"model-1.safetensors": b"1" * 1000, "model-2.safetensors": b"2" * 3000}
FILES = {
    **SHARDS,
    "config.json": b'{"quantization_config": {"quant_method": "mxfp4"}}',
    "model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", SHARDS))}).encode(),
    "tokenizer.json": b"tokens",
    "sub/vocab.txt": b"words",
    ".gitattributes": b"*.safetensors filter=lfs",
    "README.md": b"# Name",
    "original/model.safetensors": b"once more",
}
PINNED = sorted(set(FILES) - {".gitattributes", "README.md", "original/model.safetensors"})


@pytest.fixture
def hubs(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with hubs_running() as running:
        running.hub["org/name"] = Model({COMMIT: FILES}, {"main": COMMIT, "refs/pr/1": COMMIT}, {"v1": COMMIT})
        running.modelscope["org/name"] = Model({NEWER: FILES}, {"master": NEWER}, {"v1.0": NEWER})
        yield running


def look(hubs, kind="hub", environment=None, **requested):
    requested = {"model": "org/name", "modelscope_endpoint": hubs.url, **requested}
    return pin_model(Request(source=f"{kind}:{hubs.url}", **requested), environment or {})


def contents(manifest):
    return {file.name: (file.size, file.sha256) for file in manifest.files}


EXPECTED = {name: (len(FILES[name]), sha256(FILES[name])) for name in PINNED}


@pytest.mark.parametrize("revision", ["", "main", "v1", "refs/pr/1", COMMIT])
@pytest.mark.parametrize("page", [1000, 2])
def test_a_branch_on_the_hub_becomes_its_commit(hubs, revision, page):
    hubs.page = page
    pinned = look(hubs, revision=revision)
    assert pinned.manifest.revision == COMMIT
    assert contents(pinned.manifest) == EXPECTED
    assert pinned.left_out == (".gitattributes", "README.md", "original/model.safetensors")
    assert (pinned.precision, pinned.derived) == ("mxfp4", False)


def test_no_weights_are_downloaded_from_the_hub(hubs):
    look(hubs)
    assert not hubs.asked("store")


def test_a_moved_branch(hubs):
    hubs.hub["org/name"].commits[NEWER] = {**FILES, "tokenizer.json": b"other tokens"}
    before = look(hubs)
    hubs.hub["org/name"].branches["main"] = NEWER
    after = look(hubs)
    assert (before.manifest.revision, after.manifest.revision) == (COMMIT, NEWER)
    assert {name for name, file in contents(after.manifest).items() if file != EXPECTED[name]} == {"tokenizer.json"}


@pytest.mark.parametrize("altered", [b"x" * len(FILES["sub/vocab.txt"]), b"", b"longer than it was"])
def test_small_files_are_those_of_the_listing(hubs, altered):
    hubs.altered["sub/vocab.txt"] = altered
    with pytest.raises(WeightsError, match=r"org/name: sub/vocab\.txt does not match the hub's listing"):
        look(hubs)


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        ({"model": "org/other"}, "org/other: the hub has no such model; a private one needs a token"),
        ({"revision": "v9"}, "org/name: the hub has no revision 'v9'"),
        ({"revision": "e" * 40}, "org/name: the hub has no revision"),
        ({"model": "org/gated"}, "org/gated: the model is gated and no token was given"),
        ({"model": "org/bins"}, r"org/bins: found no \*.safetensors"),
        ({"model": "org/half"}, r"org/half: model-2.safetensors of the 2 shards that .* is missing"),
        ({"model": "Org/Name"}, "found 'Org/Name', which the hub calls 'org/name'; use that name"),
        ({"model": "org/na me"}, "model: found 'org/na me', expected <organisation>/<name>"),
        ({"model": "name"}, "model: found 'name', expected <organisation>/<name>"),
        ({"exclude": ["model-2*"]}, "exclude leaves the shard out"),
        ({"include": ["*.pth"]}, "none of its 9 files matches include"),
        ({"token_file": "/no/such"}, "token_file /no/such: cannot be read: No such file"),
        ({"modelscope_model": "a b"}, "modelscope_model: found 'a b'"),
    ],
)
def test_what_cannot_be_pinned_from_the_hub(hubs, requested, said):
    hubs.hub["org/gated"] = Model({COMMIT: FILES}, {"main": COMMIT}, gated=True)
    hubs.hub["org/bins"] = Model({COMMIT: {"pytorch_model.bin": b"1", "config.json": b"{}"}}, {"main": COMMIT})
    hubs.hub["org/half"] = Model({COMMIT: {**FILES}}, {"main": COMMIT})
    hubs.hub["org/half"].commits[COMMIT].pop("model-2.safetensors")
    hubs.hub["Org/Name"] = Model({COMMIT: FILES}, {"main": COMMIT}, renamed="org/name")
    with pytest.raises(WeightsError, match=said):
        look(hubs, **requested)


@pytest.mark.parametrize("kind", ["gated", "private"])
def test_a_token_opens_the_model_and_goes_to_the_hub_alone(hubs, kind, tmp_path):
    hubs.tokens = {"hf_right"}
    hubs.hub["org/name"] = Model({COMMIT: {**FILES, "x.json": b"{}"}}, {"main": COMMIT}, **{kind: True})
    with pytest.raises(WeightsError, match="token"):
        look(hubs)
    assert contents(look(hubs, environment={"HF_TOKEN": "hf_right"}).manifest).items() >= EXPECTED.items()
    (tmp_path / "token").write_text("hf_right\n")
    look(hubs, environment={"HF_TOKEN": "hf_wrong"}, token_file=str(tmp_path / "token"))
    with pytest.raises(WeightsError, match="wrong or expired") as caught:
        look(hubs, environment={"HF_TOKEN": "hf_wrong"})
    assert "hf_wrong" not in str(caught.value)
    assert all("hf_" not in path for _server, _method, path, _headers in hubs.log)


def test_an_account_without_access_to_a_gated_model(hubs):
    hubs.tokens = hubs.readers = {"hf_reader"}
    hubs.hub["org/name"].gated = True
    with pytest.raises(WeightsError, match="gated and the token's account has no access"):
        look(hubs, environment={"HF_TOKEN": "hf_reader"})


def test_a_token_that_is_none(hubs, tmp_path):
    (tmp_path / "token").write_text("two words\n")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(WeightsError, match="token: holds a blank") as caught:
        look(hubs, token_file=str(tmp_path / "token"))
    assert "two words" not in str(caught.value)
    with pytest.raises(WeightsError, match="empty: the file is empty"):
        look(hubs, token_file=str(tmp_path / "empty"))


@pytest.mark.parametrize(("revision", "there"), [("", "master"), ("v1.0", "v1.0"), (NEWER, NEWER)])
def test_modelscope(hubs, revision, there):
    pinned = look(hubs, "modelscope", revision=revision)
    assert contents(pinned.manifest) == EXPECTED
    assert pinned.manifest.revision == NEWER
    assert (pinned.manifest.modelscope_repository, pinned.manifest.modelscope_revision) == ("org/name", there)
    assert not hubs.asked("store")


def test_modelscope_that_tells_no_commits(hubs):
    hubs.commits_hidden = True
    pinned = look(hubs, "modelscope")
    assert pinned.derived
    assert look(hubs, "modelscope").manifest == pinned.manifest


def test_a_model_with_another_name_on_modelscope(hubs):
    hubs.modelscope["mirror/name"] = hubs.modelscope.pop("org/name")
    pinned = look(hubs, "modelscope", modelscope_model="mirror/name")
    assert (pinned.manifest.repository, pinned.manifest.modelscope_repository) == ("org/name", "mirror/name")
    both = look(hubs, modelscope_model="mirror/name")
    assert (both.manifest.revision, both.manifest.modelscope_repository) == (COMMIT, "mirror/name")
    hubs.modelscope["mirror/name"].commits[NEWER] = {**FILES, "tokenizer.json": b"others"}
    with pytest.raises(WeightsError, match=r"mirror/name: revision master there has not the same tokenizer\.json as"):
        look(hubs, modelscope_model="mirror/name")


def test_modelscope_wants_the_token_twice(hubs):
    hubs.tokens = {"ms-right"}
    hubs.modelscope["org/name"].private = True
    with pytest.raises(WeightsError, match="ModelScope has no such model; a private one needs a token"):
        look(hubs, "modelscope")
    look(hubs, "modelscope", environment={"MODELSCOPE_API_TOKEN": "ms-right"})
    with pytest.raises(WeightsError, match="no such model, or the token is wrong"):
        look(hubs, "modelscope", environment={"MODELSCOPE_API_TOKEN": "ms-wrong"})


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        ({"model": "org/other"}, "org/other: ModelScope has no such model"),
        ({"revision": "main"}, "org/name: ModelScope has no revision 'main'; its branches and tags: master, v1.0"),
        ({"revision": "e" * 40}, "org/name: ModelScope has no revision 'eeee"),
    ],
)
def test_what_cannot_be_pinned_from_modelscope(hubs, requested, said):
    with pytest.raises(WeightsError, match=said):
        look(hubs, "modelscope", **requested)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("hub:http://user:secret@host/x", "found an address with a user"),
        ("http://host/x?token=secret", "found an address with a user, a query"),
        ("some/where", "source: found 'some/where', expected hub, modelscope"),
        ("ftp://host/x", "source: found 'ftp://host/x', expected"),
        ("hubs", "source: found 'hubs', expected"),
        ("hub:http://127.0.0.1:1/", "http://127.0.0.1:1/api/models/org/name/revision/main: .*refused"),
    ],
)
def test_sources_that_are_none(source, said, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with pytest.raises(WeightsError, match=said) as caught:
        pin_model(Request("org/name", source), {})
    assert "secret" not in str(caught.value)
