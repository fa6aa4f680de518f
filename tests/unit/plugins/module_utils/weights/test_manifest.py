# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import (
    WeightsError,
    check_unique,
    parse_manifest,
)

REVISION = "6cee5e81ee83917806bbde320786a8fb61efebee"
SHA = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
GOOD = {
    "repository": "openai/gpt-oss-20b",
    "revision": REVISION,
    "files": {"config.json": {"size": 2, "sha256": SHA}, "model.safetensors": {"size": 5, "sha256": SHA}},
}


@pytest.mark.parametrize(
    "name", ["a b.json", "model (1).safetensors", "[x]/{y}.json", "größe/模型.safetensors", "a+b,c=d@e!f'g&h.txt", "_x"]
)
def test_names_that_hubs_have_are_names(name):
    (file,) = parse_manifest({**GOOD, "files": {name: {"size": 1, "sha256": SHA}}}).files
    assert file.name == name


def test_manifest_says_where_its_files_lie():
    manifest = parse_manifest(GOOD)
    assert manifest.path == f"openai/gpt-oss-20b/{REVISION}"
    assert [file.name for file in manifest.files] == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repository": "../etc"}, "manifest: repository: found '../etc', expected <organisation>/<name>"),
        ({"repository": "openai/.."}, "manifest: repository: found 'openai/..'"),
        (
            {"revision": "main"},
            r"manifest of openai/gpt-oss-20b: revision: found 'main', expected 40 hexadecimal digits",
        ),
        ({"files": {}}, r"files: found {}, expected a mapping of at least one file"),
        ({"files": {"../passwd": {"size": 1, "sha256": SHA}}}, r"files: found '../passwd', expected a relative path"),
        (
            {"files": {"/etc/passwd": {"size": 1, "sha256": SHA}}},
            r"files: found '/etc/passwd', expected a relative path",
        ),
        ({"files": {"a/../../b": {"size": 1, "sha256": SHA}}}, r"found 'a/../../b', expected a relative path"),
        ({"files": {".verified.json": {"size": 1, "sha256": SHA}}}, "without '..', leading dots"),
        ({"files": {"a": {"size": "1", "sha256": SHA}}}, r"files.a.size: found '1', expected a number of bytes"),
        ({"files": {"a": {"size": True, "sha256": SHA}}}, r"files.a.size: found true, expected a number of bytes"),
        ({"files": {"a": {"size": -1, "sha256": SHA}}}, r"files.a.size: found -1, expected a number of bytes"),
        ({"files": {"a": {"size": 1, "sha256": SHA[1:]}}}, r"files.a.sha256: found '4136.*', expected 64 hexadecimal"),
        ({"files": {"a": {"size": 1}}}, r"files.a: found .*, expected the keys size and sha256"),
        ({"fils": {}}, "manifest of openai/gpt-oss-20b: unknown key 'fils'; nearest: 'files'"),
        ({"schema_version": 2}, "manifest of openai/gpt-oss-20b: schema_version: found 2, expected 1"),
        ({"precision": "MXFP4"}, "manifest of openai/gpt-oss-20b: precision: found 'MXFP4', expected a number format"),
        ({"modelscope": "a/b"}, "modelscope: found 'a/b', expected repository and, if wanted, revision"),
        ({"modelscope": {"repository": "b"}}, "modelscope.repository: found 'b', expected <organisation>/<name>"),
    ],
)
def test_wrong_manifest_names_the_key(change, message):
    with pytest.raises(WeightsError, match=message):
        parse_manifest({**GOOD, **change})


@pytest.mark.parametrize("key", ["repository", "revision", "files"])
def test_missing_key_is_named(key):
    with pytest.raises(WeightsError, match=f"{key!r} is missing"):
        parse_manifest({name: value for name, value in GOOD.items() if name != key})


def test_something_else_is_no_manifest():
    with pytest.raises(WeightsError, match="found a list, expected a mapping"):
        parse_manifest([GOOD])


def test_two_manifests_of_one_revision_must_agree():
    other = parse_manifest({**GOOD, "files": {"config.json": {"size": 3, "sha256": SHA}}})
    check_unique([parse_manifest(GOOD), parse_manifest(GOOD)])
    with pytest.raises(WeightsError, match=f"openai/gpt-oss-20b: two manifests of revision {REVISION} differ"):
        check_unique([parse_manifest(GOOD), other])


def test_modelscope_has_a_name_of_its_own_for_it():
    assert parse_manifest(GOOD).modelscope_repository == "openai/gpt-oss-20b"
    manifest = parse_manifest({**GOOD, "modelscope": {"repository": "openai-mirror/gpt-oss-20b"}})
    assert (manifest.modelscope_repository, manifest.modelscope_revision) == ("openai-mirror/gpt-oss-20b", "master")
