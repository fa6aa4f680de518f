# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.manifests import requested_models, resolve
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

SITE = "repository: openai/gpt-oss-20b\nrevision: '%s'\nfiles: {a: {size: 1, sha256: '%s'}}\n"


def test_name_leads_to_the_bundled_manifest():
    (manifest,) = resolve(["openai/gpt-oss-20b"], [])
    assert manifest["revision"] == "6cee5e81ee83917806bbde320786a8fb61efebee"


def test_manifest_of_the_site_comes_first(tmp_path):
    (tmp_path / "openai").mkdir()
    (tmp_path / "openai" / "gpt-oss-20b.yml").write_text(SITE % ("0" * 40, "0" * 64))
    (manifest,) = resolve(["openai/gpt-oss-20b"], [str(tmp_path)])
    assert manifest["revision"] == "0" * 40


def test_whole_manifest_is_handed_on():
    inline = {"repository": "a/b", "revision": "0" * 40, "files": {}}
    assert resolve([inline], []) == [inline]


def test_unknown_name_is_told_the_nearest():
    with pytest.raises(PlanError, match=r"'openai/gpt-oss-21b'.*nearest.*openai/gpt-oss-20b"):
        resolve(["openai/gpt-oss-21b"], [])


def test_wrong_manifest_names_its_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.yml").write_text(SITE % ("main", "0" * 64))
    with pytest.raises(
        WeightsError, match=f"{tmp_path}/a/b.yml: manifest of openai/gpt-oss-20b: revision: found 'main'"
    ):
        resolve(["a/b"], [str(tmp_path)])


def test_an_error_names_the_roles_variable():
    with pytest.raises(WeightsError, match=r"^weights_models: .*openai/gpt-oss-21b"):
        requested_models("openai/gpt-oss-21b", None)
