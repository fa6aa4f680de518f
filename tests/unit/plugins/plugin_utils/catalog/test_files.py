# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import (
    VARIABLES,
    file_notes,
    find,
    load_manifest,
    load_recipe,
    load_release,
    locks_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import CATALOG
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

RECIPES = sorted(f"{path.parent.name}/{path.stem}" for path in (CATALOG / "recipes").rglob("*.y*ml"))
RELEASES = sorted(path.stem for path in (CATALOG / "releases").glob("*.yml"))


@pytest.fixture
def site(tmp_path):
    """A site's directory, and a way to put a recipe into it."""
    (tmp_path / "org").mkdir()

    def write(text):
        (tmp_path / "org/model.yaml").write_text(text)
        return [str(tmp_path)]

    return write


@pytest.mark.parametrize("name", RECIPES)
def test_bundled_recipe_loads(name):
    assert load_recipe(name)["model"]["model_id"] == name


@pytest.mark.parametrize("name", RELEASES)
def test_bundled_release_loads_with_its_locks(name):
    for stack in load_release(name)["stacks"].values():
        assert stack["runtime"] != "venv" or len(stack["requirements_sha256"]) == 64


def test_the_site_s_own_file_comes_first(site):
    directories = site("model: {model_id: theirs}\n")
    assert load_recipe("org/model", directories)["model"]["model_id"] == "theirs"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            "recipes",
            "baremetal/gpt-oss-smok",
            "no recipe .* nearest: 'baremetal/gpt-oss-smoke'",
        ),
        # Longer than the name of a file may be.
        *((kind, "a/" + "b" * 300, "no .* 'a/bbb.*") for kind in ("recipes", "releases", "weights")),
        ("releases", "0.32", "no release '0.32' .* nearest: '0.32.0'"),
        (
            "weights",
            "openai/gpt-oss-20",
            "no manifest of weights 'openai/gpt-oss-20' .* nearest: 'openai/gpt-oss-20b'; make a manifest: "
            "ansible-playbook playbooks/pin_weights.yml -e pin_model=openai/gpt-oss-20 -e pin_dest=DIR",
        ),
    ],
)
def test_unknown_name_gets_the_nearest(kind, name, message):
    with pytest.raises(PlanError, match=message):
        find(kind, name, (".yaml", ".yml"), [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {model_id: a, base_arg: []}\n", "unknown key 'model.base_arg'; nearest: 'base_args'"),
        ("model: {model_id: a}\nvariant: {}\n", "unknown key 'variant'; nearest: 'variants'"),
        ("meta: {}\n", "model is missing"),
        ("- a\n", "found a list, expected a mapping"),
        ("", "found nothing, expected a mapping"),
        ("model: {model_id: a}\nvariants: [default]\n", "variants: found a list, expected a mapping"),
        ("a: [\n", "cannot be read: did not find expected node content (line 2, column 1)"),
        ("a: b: c\n", "cannot be read: mapping values are not allowed in this context (line 1, column 5)"),
        (
            "model:\n\tmodel_id: a\n",
            "cannot be read: found a tab, YAML is indented with spaces (line 2, column 1)",
        ),
        (
            "model:\n  model_id: a\n\tbase_args: []\n",
            "cannot be read: found a tab, YAML is indented with spaces (line 3, column 1)",
        ),
        ("model: {}\nmodel: {}\n", "cannot be read: the key 'model' is there twice (line 2, column 1)"),
        (
            "model:\n  model_id: a\n  base_env: {A: 1, A: 2}\n",
            "cannot be read: the key 'A' is there twice (line 3, column 20)",
        ),
        (
            "model: {{ mine }}\n",
            "cannot be read: found {'mine': null} as a key, expected a text; put a value with braces in quotes "
            "(line 1, column 9)",
        ),
    ],
)
def test_a_malformed_recipe_is_one_line_with_file_and_key(site, text, message):
    directories = site(text)
    with pytest.raises(PlanError) as caught:
        load_recipe("org/model", directories)
    assert str(caught.value) == f"{directories[0]}/org/model.yaml: {message}"


def test_a_recipe_that_is_no_text(site, tmp_path):
    directories = site("")
    (tmp_path / "org/model.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match=r"org/model.yaml: cannot be read: 'utf-8' codec can't decode"):
        load_recipe("org/model", directories)


def test_a_manifest_may_be_missing():
    assert load_manifest("org/nobody") is None
    assert load_manifest("openai/gpt-oss-20b")["repository"] == "openai/gpt-oss-20b"


@pytest.mark.parametrize("name", ["none.txt", "9" * 300])
def test_release_whose_lock_is_missing(tmp_path, name):
    (tmp_path / "x.yml").write_text(f"vllm: x\nstacks: {{cpu: {{runtime: venv, requirements: '{name}'}}}}\n")
    with pytest.raises(PlanError, match=rf"requirements/{name}: cannot read this requirements lock"):
        load_release("x", [str(tmp_path)])


def test_a_copy_of_a_bundled_release_finds_its_locks(tmp_path):
    bundled = CATALOG / "releases"
    (tmp_path / "x.yml").write_text((bundled / "0.33.0.yml").read_text(encoding="utf-8"))
    locks = locks_of(load_release("x", [str(tmp_path)])["stacks"]["cuda"])
    assert locks and all(lock.startswith(f"{bundled}/requirements/") for lock in locks)


def test_a_lock_beside_a_copied_release_comes_first(tmp_path):
    text = (CATALOG / "releases" / "0.33.0.yml").read_text(encoding="utf-8")
    (tmp_path / "x.yml").write_text(text)
    (tmp_path / "requirements").mkdir()
    name = sorted((CATALOG / "releases" / "requirements").glob("0.33.0-cuda-*.txt"))[0].name
    (tmp_path / "requirements" / name).write_text("vllm==1\n")
    assert f"{tmp_path}/requirements/{name}" in locks_of(load_release("x", [str(tmp_path)])["stacks"]["cuda"])


def test_release_with_its_lock(tmp_path):
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/lock.txt").write_text("vllm==1\n")
    (tmp_path / "x.yml").write_text("vllm: x\nstacks: {cpu: {runtime: venv, requirements: lock.txt}}\n")
    stack = load_release("x", [str(tmp_path)])["stacks"]["cpu"]
    assert stack["requirements"] == f"{tmp_path}/requirements/lock.txt"
    assert stack["requirements_text"] == "vllm==1\n"
    assert stack["requirements_sha256"] == hashlib.sha256(b"vllm==1\n").hexdigest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vllm: x\n", "'stacks' is missing"),
        ("stacks: {}\n", "'vllm' is missing"),
        ("vllm: x\nstacks: {}\nsuports: [a]\n", "unknown key 'suports'; nearest: 'supports'"),
        ("vllm: x\nstacks: {}\n1: [a]\n", "unknown key 1; known: stacks, supports, vllm"),
        ("vllm: x\nstacks: [cuda]\n", "stacks: found ['cuda'], expected a mapping of stacks"),
        ("vllm: x\nstacks: {cuda: {image: y}}\n", "stacks.cuda: 'runtime' is missing; expected container or venv"),
        ("vllm: x\nstacks: {cuda: y}\n", "stacks.cuda: 'runtime' is missing; expected container or venv"),
        (
            "vllm: x\nstacks: {cuda: {runtime: conteiner}}\n",
            "stacks.cuda.runtime: found 'conteiner'; nearest: 'container'",
        ),
        (
            "vllm: x\nstacks: {cpu: {runtime: venv, requirements: {'3.12': ' '}}}\n",
            "stacks.cpu.requirements: found ' ', expected the name of a file",
        ),
        (
            "vllm: x\nstacks: {cuda: {runtime: container, entrypoint: vllm serve}}\n",
            "stacks.cuda.entrypoint: found 'vllm serve', expected image, module or a list of words",
        ),
    ],
)
def test_a_malformed_release_is_one_line_with_file_and_key(tmp_path, text, message):
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(PlanError) as caught:
        load_release("x", [str(tmp_path)])
    assert str(caught.value) == f"{tmp_path}/x.yml: {message}"


def test_a_stack_has_a_lock_for_each_python(tmp_path):
    (tmp_path / "requirements").mkdir()
    for python in ("3.11", "3.12"):
        (tmp_path / "requirements" / f"{python}.txt").write_text(f"vllm=={python}\n")
    stack = {"runtime": "venv", "requirements": {python: f"{python}.txt" for python in ("3.11", "3.12")}}
    path = tmp_path / "1.yml"
    path.write_text(json.dumps({"vllm": "1.0.0", "stacks": {"cuda": stack}}))
    found = load_release("1", [str(tmp_path)])["stacks"]["cuda"]
    assert locks_of(found) == [f"{tmp_path}/requirements/{python}.txt" for python in ("3.11", "3.12")]
    assert found["requirements"]["3.12"]["requirements_text"] == "vllm==3.12\n"
    assert found["requirements"]["3.12"]["requirements_sha256"] == hashlib.sha256(b"vllm==3.12\n").hexdigest()
    assert locks_of({"runtime": "container"}) == []


@pytest.mark.parametrize("key", ["3", "cp312", "3.12.1"])
def test_a_lock_is_for_a_version_of_python(tmp_path, key):
    stack = {"runtime": "venv", "requirements": {key: "lock.txt"}}
    (tmp_path / "2.yml").write_text(json.dumps({"vllm": "1.0.0", "stacks": {"cuda": stack}}))
    with pytest.raises(
        PlanError, match=r"stacks\.cuda\.requirements: found the key '.*', expected a version of Python"
    ):
        load_release("2", [str(tmp_path)])


OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture
def revisions(tmp_path):
    """A directory with manifests of two revisions: org/model.yml of the old one, and a file for the new one."""
    manifest = "repository: org/model\nrevision: '%s'\nfiles: {a.safetensors: {size: 1, sha256: '%s'}}\n"
    (tmp_path / "org").mkdir()
    (tmp_path / "org/model.yml").write_text(manifest % (OLD, "0" * 64))
    (tmp_path / f"org/model@{NEW}.yml").write_text(manifest % (NEW, "1" * 64))
    return tmp_path


@pytest.mark.parametrize(("name", "revision"), [("", OLD), (f"@{OLD}", OLD), (f"@{NEW}", NEW), ("@" + "c" * 40, None)])
def test_a_manifest_is_found_by_its_revision(revisions, name, revision):
    found = load_manifest(f"org/model{name}", [str(revisions)])
    assert (found and found["revision"]) == revision


def test_a_revision_that_no_manifest_pins_names_the_command(revisions):
    with pytest.raises(PlanError, match=f"-e pin_model=org/model -e pin_revision={'c' * 40} -e pin_beside=true"):
        find("weights", "org/model@" + "c" * 40, (".yml",), [str(revisions)])


def test_a_manifest_of_another_revision_than_its_name(revisions):
    (revisions / f"org/model@{NEW}.yml").rename(revisions / f"org/model@{'c' * 40}.yml")
    with pytest.raises(PlanError, match=f"revision: found '{NEW}', expected {'c' * 40} as in the file's name"):
        load_manifest("org/model@" + "c" * 40, [str(revisions)])


@pytest.mark.parametrize(
    ("kind", "name", "suffix"),
    [
        ("recipes", "openai/gpt-oss-20b", ".yml"),
        ("releases", "0.33.0", ".yml"),
        ("weights", "openai/gpt-oss-20b", ".yaml"),
    ],
)
def test_a_file_of_the_site_that_replaces_another_of_the_collection_is_named(tmp_path, kind, name, suffix):
    own = tmp_path / f"{name}{suffix}"
    own.parent.mkdir(parents=True, exist_ok=True)
    text = (CATALOG / kind / f"{name}.yml").read_text(encoding="utf-8")
    own.write_text(text, encoding="utf-8")
    assert file_notes(kind, name, [str(tmp_path)]) == []
    own = tmp_path / "second" / own.relative_to(tmp_path)
    own.parent.mkdir(parents=True)
    own.write_text(f"{text}\nguide: '# other'\n", encoding="utf-8")
    (note,) = file_notes(kind, name, [str(tmp_path / "second")])
    variable = VARIABLES[kind].replace("vllm_weights", "weights")
    assert note == f"{variable}: {own} replaces the collection's own file for {name}"
    assert file_notes(kind, name) == []
    assert file_notes(kind, "no/such", [str(tmp_path)]) == []
