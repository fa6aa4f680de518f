# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever is wrong with manifests, sources or the place of weights: one clear error, and nothing written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.manifests import resolve
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

from tests.fakes.file_server import FileServer, serving
from tests.fakes.wheelhouse import run_module

REVISION = "0d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de"
MODEL = f"example/tiny/{REVISION}"
FILES = {"config.json": b"{}", "model.safetensors": b"w" * 5000}
ENTRY = f"{{size: 1, sha256: '{'0' * 64}'}}"
GOOD = f"repository: example/tiny\nrevision: '{REVISION}'\nfiles: {{a: {ENTRY}}}\n"


def manifest(**changes):
    entries = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in FILES.items()
    }
    return {"repository": "example/tiny", "revision": REVISION, "files": entries, **changes}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD.replace(ENTRY, f"{{sha256: '{'0' * 64}'}}"),
            "manifest of example/tiny: files.a: found {'sha256': '0000",
        ),
        (GOOD.replace("size: 1", "size: 1.5"), "files.a.size: found 1.5, expected a number of bytes"),
        (GOOD.replace("size: 1", "size: -1"), "files.a.size: found -1, expected a number of bytes"),
        (GOOD.replace("size: 1", "size: '1'"), "files.a.size: found '1', expected a number of bytes"),
        # Plain YAML would take the last one in silence.
        (
            GOOD.replace("files: {a:", f"files: {{a: {ENTRY}, a:"),
            "the key 'a' is there twice, first in line 3 (line 3, ",
        ),
        (
            GOOD.replace("files: {a:", f"files: {{sub/a: {ENTRY}, 'sub/a':"),
            "the key 'sub/a' is there twice, first in line 3 (line 3, ",
        ),
        (GOOD + "revision: main\n", "the key 'revision' is there twice (line 4, column 1)"),
        (GOOD.replace("{a:", "{/etc/passwd:"), "files: found '/etc/passwd', expected a relative path without '..'"),
        (GOOD.replace("{a:", "{../a:"), "files: found '../a', expected a relative path without '..', leading dots"),
        (GOOD.replace("{a:", "{sub/../../a:"), "files: found 'sub/../../a', expected a relative path"),
        (GOOD.replace("{a:", "{sub//a:"), "files: found 'sub//a', expected a relative path"),
        (GOOD.replace("{a:", "{.verified.json:"), "files: found '.verified.json', expected a relative path"),
        (GOOD.replace("{a:", '{"a\\nb":'), r"files: found 'a\nb', expected a relative path"),
        (GOOD.replace("{a:", "{1:"), "files: found 1, expected a relative path"),
        (GOOD + "schema_version: 2\n", "schema_version: found 2, expected 1, the only one that this release"),
        (GOOD + "schema_version: '1'\n", "schema_version: found '1', expected 1"),
        (GOOD.replace("files: {a: " + ENTRY + "}", "files: {}"), "files: found {}, expected a mapping of at least one"),
        (GOOD.replace("files: {a: " + ENTRY + "}", "files: [a]"), "files: found ['a'], expected a mapping of at least"),
        (GOOD.replace(f"'{REVISION}'", "main"), "revision: found 'main', expected 40 hexadecimal digits"),
        (GOOD.replace("example/tiny", "example"), "repository: found 'example', expected <organisation>/<name>"),
        (GOOD.replace("example/tiny", "../tiny"), "repository: found '../tiny', expected <organisation>/<name>"),
        (GOOD.replace("example/tiny", "'example/ti ny'"), "repository: found 'example/ti ny', expected"),
        (GOOD.replace("example/tiny", "'example/tiny;rm'"), "repository: found 'example/tiny;rm', expected"),
        (GOOD.replace("example/tiny", "example/tïny"), "repository: found 'example/tïny', expected"),
        (GOOD.replace("example/tiny", "example/tiny/more"), "repository: found 'example/tiny/more', expected"),
        (GOOD.replace("repository:", "repo:"), "'repository' is missing"),
        (GOOD + "sizes: 1\n", "unknown key 'sizes'; "),
        (GOOD + "1: 1\n", "unknown key 1; "),
        (
            GOOD.replace("{a:", f"{{a.partial: {ENTRY}, a:"),
            "files.a: 'a.partial' is a name of this manifest too, and that of the file's partial download",
        ),
        (
            GOOD.replace("{a:", f"{{a.partial/b: {ENTRY}, a:"),
            "files.a: 'a.partial' is a name of this manifest too",
        ),
        (GOOD.replace("size: 1", f"size: {2**63}"), "files.a.size: found a number beyond 64 bits, expected a number"),
        (GOOD.replace("{a:", f"{{{'x' * 248}:"), "expected a relative path without '..'"),
        (GOOD.replace("{a:", "{'a/ b':"), "files: found 'a/ b', expected a relative path"),
        (GOOD.replace("{a:", '{"a\\u202Eb":'), r"files: found 'a\u202eb', expected a relative path"),
        ("- a\n", "found a list, expected a mapping"),
        ("", "found nothing, expected a mapping"),
        (GOOD.replace("files:", "\tfiles:"), "found a tab, YAML is indented with spaces (line 3, column 1)"),
    ],
)
def test_manifest_that_is_wrong_names_its_file_and_what_was_found(tmp_path, text, message):
    path = tmp_path / "example" / "tiny.yml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises((PlanError, WeightsError)) as caught:
        resolve(["example/tiny"], [str(tmp_path)])
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["../etc/passwd", "/etc/passwd", "example", "", "a b/c", "a/b/c", "openai/gpt-oss-20b\n"]
)
def test_model_id_with_strange_characters_leads_nowhere(tmp_path, name):
    """No name reaches a file outside of the directories of manifests."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd.yml").write_text(GOOD)
    with pytest.raises((PlanError, WeightsError)) as caught:
        resolve([name], [str(tmp_path / "manifests")])
    assert repr(name) in str(caught.value)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer()) as running:
        running.files = {f"/weights/{MODEL}/{name}": content for name, content in FILES.items()}
        yield running


@pytest.fixture
def root(tmp_path):
    return tmp_path / "models"


@pytest.fixture
def weights(server, root, tmp_path):
    """Run the module as the role does."""

    def run(**arguments):
        defaults = {
            "models": [manifest()],
            "sources": [f"{server.url}/weights"],
            "root": str(root),
            "state_dir": str(tmp_path / "state"),
        }
        return run_module("weights", **{**defaults, **arguments})

    return run


def published(root):
    """Return what has the name of a model, or the name of a file of one."""
    return [path for path in root.rglob("*") if path.name == REVISION or path.name in FILES] if root.exists() else []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sources": []}, "weights_sources is empty"),
        ({"sources": ["weights"]}, "weights_sources: found 'weights', expected an absolute path, file://, http"),
        (
            {"sources": ["ftp://mirror/weights"]},
            "weights_sources: ftp://mirror/weights: scheme 'ftp' is not known; expected http",
        ),
        ({"sources": [""]}, "weights_sources"),
        ({"models": [manifest(files={"../a": {"size": 1, "sha256": "0" * 64}})]}, "found '../a', expected a relative"),
        ({"models": [manifest(schema_version=7)]}, "schema_version: found 7, expected 1"),
        ({"models": ["example/tiny"]}, "found a text, expected a mapping"),
        ({"models": [manifest(), manifest(files={"a": {"size": 1, "sha256": "0" * 64}})]}, "two manifests of revision"),
        # A file and a directory of one name.
        (
            {"models": [manifest(files={name: {"size": 1, "sha256": "0" * 64} for name in ("a", "a/b")})]},
            "files.a/b: 'a' is a file of this manifest too",
        ),
        ({"connections": 0}, "weights_connections: found 0, expected 1 or more"),
        ({"bandwidth": -1}, "weights_bandwidth: found -1, expected 0 or more"),
        ({"stall_timeout": 0}, "weights_stall_timeout: found 0, expected 1 or more"),
        ({"lowest_rate": -1}, "weights_lowest_rate: found -1, expected 0 or more"),
    ],
)
def test_wrong_arguments_are_one_error_and_nothing_is_written(weights, root, server, arguments, message):
    result = weights(**arguments)
    assert result["failed"]
    assert message in result["msg"]
    assert "\n" not in result["msg"]
    assert "Traceback" not in result["msg"]
    assert not root.exists()
    assert [line for line in server.log if "GET" in str(line)] == []


def test_source_that_lacks_the_revision_is_named_with_what_it_said(weights, server, root):
    server.files = {path.replace(REVISION, "f" * 40): content for path, content in server.files.items()}
    result = weights()
    assert f"{server.url}/weights/{MODEL}/" in result["msg"]
    assert "HTTP 404 Not Found" in result["msg"]
    assert published(root) == []


@contextlib.contextmanager
def mounted(path, options):
    """Mount a small file system there."""
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("needs leave to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_file_system_that_is_too_small_is_named_before_the_first_byte(weights, root, server):
    with mounted(root, "size=4k"):
        result = weights()
        assert result["msg"].startswith(f"{root}: ")
        assert "example/tiny" in result["msg"]
        assert " are free; free some space, or set weights_root to a larger file system" in result["msg"]
        assert published(root) == []
    assert [line for line in server.log if "GET" in str(line)] == []


def test_file_system_that_may_not_be_written_to_is_named(weights, root):
    with mounted(root, "size=1m,ro"):
        result = weights()
        assert result["failed"]
        assert str(root) in result["msg"]
        assert "ead-only" in result["msg"]
        assert "Traceback" not in result["msg"]


def test_directory_that_no_rename_can_reach_is_named(weights, root):
    """A file system mounted where the revision is to be: the rename into its place cannot work."""
    with mounted(root / MODEL, "size=1m"):
        result = weights()
        assert result["failed"]
        assert str(root / MODEL) in result["msg"]
        assert "Traceback" not in result["msg"]
        assert os.listdir(root / MODEL) == []


def refusal_on_ascend(requested, **settings):
    defaults = {
        "release": "0.23.0",
        "weights_root": "/srv/models",
        "encodings_dir": "/srv/encodings",
        "cache_root": "/var/cache/vllm",
        "venv_root": "/opt/vllm",
        "drain_timeout": 60,
    }
    accelerator = declared_accelerator(load_catalogue(), "ascend_a2", 8)
    with pytest.raises(PlanError) as caught:
        plan_host("npu-1", accelerator, {**defaults, **settings, "instances": {"chat": requested}})
    return str(caught.value)


def test_mxfp4_on_ascend_is_refused_with_the_weights_that_would_do():
    assert refusal_on_ascend({"recipe": "openai/gpt-oss-20b", "variant": "default"}) == (
        "vllm_instances.chat.variant: 'default' of recipe openai/gpt-oss-20b is not for ascend_a2: vLLM Ascend has no "
        "MXFP4 kernels for this chip, it serves the weights in bfloat16; the variants that run on it: bf16 (weights "
        "unsloth/gpt-oss-20b-BF16)"
    )


def test_mxfp4_on_ascend_is_refused_by_the_manifest_where_the_recipe_does_not_say_it(tmp_path):
    recipe = tmp_path / "site" / "plain.yml"
    recipe.parent.mkdir()
    recipe.write_text(
        "model: {model_id: openai/gpt-oss-20b}\n"
        "variants: {default: {}, bf16: {model_id: unsloth/gpt-oss-20b-BF16, precision: bf16}}\n"
    )
    assert refusal_on_ascend({"recipe": "site/plain"}, recipe_path=[str(tmp_path)]) == (
        "vllm_instances.chat: the weights of openai/gpt-oss-20b are mxfp4, which ascend_a2 does not support: "
        "vLLM Ascend "
        "has no MXFP4 kernels for this chip, it serves the weights in bfloat16; the variants that run on it: "
        "bf16 (weights "
        "unsloth/gpt-oss-20b-BF16)"
    )
