# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/unit/playbooks/test_selection.py runs every playbook with a tag that it does not have."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common import tags
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import COLLECTION, collection_version

SITE = str(COLLECTION / "playbooks/site.yml")


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    found = {"site": {"vllm_run", "weights_install"}, "gateway": {"gateway_keys"}}
    monkeypatch.setattr(tags, "tags_of", lambda path: found.get(path.stem, set()))
    tags._refuse_unknown.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"args": [SITE], "tags": ["vlm_run"]},
            "--tags vlm_run: no task of site.yml has this tag; nearest: 'vllm_run'",
        ),
        (
            {"args": [SITE], "tags": ["all"], "skip_tags": ["vlm_run"]},
            "--skip-tags vlm_run: no task has this tag; nearest: 'vllm_run'",
        ),
        (
            {"args": ["baremetal.inference.site"], "tags": ["vllm_run", "gateway_keys"]},
            "--tags gateway_keys: no task of",
        ),
        ({"args": ["baremetal.inference.undrain"], "tags": ["vllm_run"]}, "undrain.yml has this tag; known: none"),
    ],
)
def test_an_unknown_tag_is_refused(arguments, told):
    with pytest.raises(tags.TagError) as caught:
        tags.check_tags(arguments)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"args": [SITE], "tags": ["all"], "skip_tags": []},
        {"args": [SITE], "tags": ["never", "tagged", "untagged"]},
        {"args": [SITE, "baremetal.inference.gateway"], "tags": ["gateway_keys"]},
        {"args": [SITE], "tags": ["always", "gateway_keys"]},
        {"args": [SITE], "tags": ["all", "nightly"]},
        {"args": [SITE], "tags": ["tagged", "nightly"]},
        # Of a role that a playbook includes, of a playbook that a verb runs after, of another project's ansible.cfg.
        {"args": ["baremetal.inference.rollout"], "skip_tags": ["cuda_verify"]},
        {"args": ["baremetal.inference.gateway"], "tags": ["always"], "skip_tags": ["weights_scrub"]},
        {"args": ["baremetal.inference.render"], "skip_tags": ["slow"]},
        {"args": ["/srv/mine.yml"], "tags": ["mine"]},
        {"args": ["/srv/mine.yml", SITE], "tags": ["mine"]},
    ],
)
def test_any_other_tag_is_taken(arguments):
    tags.check_tags(arguments)


@pytest.fixture
def checkout(tmp_path):
    """A copy of the collection, whose playbooks run with the plugins of this one."""
    mark = tmp_path / "plugins/plugin_utils/common/places.py"
    mark.parent.mkdir(parents=True)
    mark.touch()
    (tmp_path / "galaxy.yml").write_text(f"version: {collection_version()}\n")
    return tmp_path


def test_the_playbooks_of_another_copy_are_judged_too(checkout):
    for path in (checkout / "site.yml", checkout / "playbooks/site.yml"):
        with pytest.raises(tags.TagError, match="--tags vlm_run: no task of"):
            tags.check_tags({"args": [str(path)], "tags": ["vlm_run"]})
    tags.check_tags({"args": [str(checkout / "inventories/mine/site.yml")], "tags": ["vlm_run"]})


def test_the_playbooks_of_another_version_are_refused(checkout):
    (checkout / "galaxy.yml").write_text("version: 0.1.0\n")
    told = rf"site\.yml is of version 0\.1\.0; roles and plugins are {collection_version()}, of .*: run baremetal\."
    with pytest.raises(tags.TagError, match=told):
        tags.check_tags({"args": [str(checkout / "playbooks/site.yml")]})


def test_a_copy_without_a_version_is_refused(checkout):
    (checkout / "galaxy.yml").unlink()
    with pytest.raises(tags.TagError, match=r"site\.yml is of version unknown; roles and plugins are \d"):
        tags.check_tags({"args": [str(checkout / "playbooks/site.yml")]})


def test_every_tag_of_the_roles_is_known():
    """The page of tags is compared with what Ansible lists."""
    page = (COLLECTION / "docs/reference/tags.md").read_text()
    known = tags.every_tag()
    assert len(known) > 20 and {tag for tag in known if f"`{tag}`" not in page} == set()
