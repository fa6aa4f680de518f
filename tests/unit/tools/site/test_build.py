# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of the documentation site: which pages it has, where their links lead, and the sidebar."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.site import build

REPOSITORY = "https://github.com/baremetal-inference/baremetal.inference"
TOP = Path(__file__).resolve().parents[4]


@pytest.fixture
def checkout(tmp_path):
    """A checkout with an index, two pages of it, a role and a file that is not a page."""
    top = tmp_path / "top"
    for folder in ("docs/start", "docs/images", "roles/vllm/defaults", "catalog"):
        (top / folder).mkdir(parents=True)
    (top / "docs/images/way.svg").write_text("<svg/>")
    (top / "README.md").write_text("# Name\n\n![way](docs/images/way.svg) [index](docs/README.md)\n")
    (top / "docs/README.md").write_text(
        "# Docs\n\n## Start: first\n\n[b](start/b.md) [a](start/a.md)\n\n"
        "## The roles\n\n[vllm](../roles/vllm/README.md)\n"
    )
    (top / "docs/start/a.md").write_text(
        "# A\n\n[start](../../README.md#name) [c](../../catalog/c.yml) [cs](../../catalog) [b](b.md#b)\n"
        f"[own]({REPOSITORY}/blob/main/docs/start/b.md#b) ![way]({REPOSITORY}/raw/main/docs/images/way.svg)\n"
        "[out](https://example.com/x.md)\n\n```md\n[fenced](../../catalog/c.yml)\n```\n"
    )
    (top / "docs/start/b.md").write_text("# B\n")
    (top / "catalog/c.yml").touch()
    (top / "roles/vllm/README.md").write_text("# vllm\n\n[defaults](defaults/main.yml)\n")
    (top / "roles/vllm/defaults/main.yml").touch()
    (top / "roles/other.md").write_text("nobody links here\n")
    return top


def test_pages_are_what_the_readme_and_the_index_lead_to(checkout):
    assert build.pages_of(checkout, ["README.md", "SECURITY.md"]) == {
        "README.md", "docs/README.md", "docs/start/a.md", "docs/start/b.md", "roles/vllm/README.md",
    }  # fmt: skip


def test_links_lead_to_pages_or_to_the_repository(checkout, tmp_path):
    build.stage(checkout, tmp_path / "source", [])
    text = (tmp_path / "source/docs/start/a.md").read_text()
    assert "[start](../../index.md#name)" in text
    assert f"[c]({REPOSITORY}/blob/main/catalog/c.yml) [cs]({REPOSITORY}/tree/main/catalog) [b](b.md#b)" in text
    assert "[own](b.md#b) ![way](../images/way.svg)" in text
    assert "[out](https://example.com/x.md)" in text
    assert "[fenced](../../catalog/c.yml)" in text
    assert "![way](docs/images/way.svg)" in (tmp_path / "source/index.md").read_text()
    assert (tmp_path / "source/docs/images/way.svg").exists()


def test_the_sidebar_has_the_sections_of_the_index_in_their_order(checkout):
    text = build.sidebar(checkout, build.pages_of(checkout, ["README.md"]), ["collection/index"])
    parts = [build.toctree(*part).strip() for part in (
        ("Index", ["docs/README.md", "versions.md"]),
        ("Start", ["docs/start/b.md", "docs/start/a.md"]),
        ("The roles", ["roles/vllm/README.md"]),
        ("Modules, plugins, project", ["collection/index"]),
    )]  # fmt: skip
    assert [part.strip() for part in text.split("```{")[1:]] == [part.removeprefix("```{") for part in parts]
    assert parts[1] == "```{toctree}\n:hidden:\n:caption: Start\n\ndocs/start/b.md\ndocs/start/a.md\n```"


def test_the_versions_are_those_of_the_changelog_the_newest_first():
    found = build.releases(TOP)
    assert list(found)[-1] == "0.7.0" and found["0.7.0"] == "2026-11-27"


def test_the_page_of_versions_says_which_one_the_site_documents(monkeypatch):
    monkeypatch.setattr(build, "collection_settings", lambda: {"version": "0.2.0"})
    page = build.versions_page({"0.10.0": "2027-01-02", "0.2.0": "2026-11-21"}, "1a2b3c4 of 2026-11-25")
    assert "documents version **0.2.0**, commit 1a2b3c4 of 2026-11-25." in page
    rows = [line for line in page.splitlines() if line.startswith("| 0.")]
    assert rows == [
        "| 0.10.0 | 2027-01-02 | [changes](CHANGELOG.md#v0100) |",
        "| 0.2.0 | 2026-11-21 | [changes](CHANGELOG.md#v020), this site |",
    ]
    assert "**0.2.0**.\n`ansible" in build.versions_page({}, "")


def test_outside_of_git_there_is_no_commit(tmp_path):
    assert build.commit_of(tmp_path) == ""


def test_references_of_generated_pages_to_ansible_are_links():
    text = (
        "documented :ref:`here <common_return_values>`, :ref:`callback_plugins`, :ref:`other <label>`, "
        ":ref:`ansible.builtin.copy <ansible_collections.ansible.builtin.copy_module>`"
    )
    labels = build.ANSIBLE_LABELS
    assert build.with_ansible_links(text) == (
        f"documented `here <{labels['common_return_values']}>`__, "
        f"`callback_plugins <{labels['callback_plugins']}>`__, :ref:`other <label>`, "
        f"`ansible.builtin.copy <{build.ANSIBLE}/collections/ansible/builtin/copy_module.html>`__"
    )


def test_internal_pages_go_into_a_folder_with_an_index_of_its_own(tmp_path):
    for name in ("weights", "serve_plan"):
        (tmp_path / f"{name}_module.rst").touch()
    lines = {
        "weights": "* :ansplugin:`weights module <baremetal.inference.weights#module>` -- Download weights\n",
        "serve_plan": "* :ansplugin:`serve_plan module <baremetal.inference.serve_plan#module>` -- (internal) Decide\n",
    }
    index = build.move_internal(tmp_path, f"Title\n\nThese are the plugins:\n\n{''.join(lines.values())}")
    assert lines["weights"] in index and "serve_plan" not in index and "<internal/index>" in index
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.rst")} == {
        "weights_module.rst", "internal/serve_plan_module.rst", "internal/index.rst",
    }  # fmt: skip
    assert lines["serve_plan"].replace("(internal) ", "") in (tmp_path / "internal/index.rst").read_text()


def test_every_page_of_docs_and_every_readme_of_a_role_is_on_the_site():
    pages = build.pages_of(TOP, ["README.md", build.INDEX, *build.PROJECT])
    wanted = {
        str(page.relative_to(TOP)) for pattern in ("docs/**/*.md", "roles/*/README.md") for page in TOP.glob(pattern)
    }
    # vendor_stack has tasks that the roles of the vendors share; it is not used by itself.
    assert wanted - pages <= {"roles/vendor_stack/README.md"}
