# SPDX-License-Identifier: GPL-3.0-or-later
"""What ansible-builder reads of the collection: files that the built collection has, and what the controller needs."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[3]


def lines(path):
    return [line.split(" #")[0].strip() for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_an_image_gets_what_the_controller_needs():
    described = yaml.safe_load((TOP / "meta/execution-environment.yml").read_text())
    assert described["version"] == 1
    python, system = (described["dependencies"][kind] for kind in ("python", "system"))
    ignored = yaml.safe_load((TOP / "galaxy.yml").read_text())["build_ignore"]
    assert not [name for name in (python, system) if any(fnmatch.fnmatch(name, pattern) for pattern in ignored)]
    # requirements.txt names the same, as an option.
    assert [line for line in lines(TOP / python) if f"# {line}" not in (TOP / "requirements.txt").read_text()] == []
    packages = {line.split()[0] for line in lines(TOP / system)}
    assert packages == {"openssh-client", "openssh-clients", "openssl", "rsync", "skopeo"}


def test_the_definition_takes_the_collection_that_the_page_builds():
    definition = yaml.safe_load((TOP / "execution-environment.yml").read_text())
    page = (TOP / "docs/operate/execution-environment.md").read_text()
    (copied,) = definition["additional_build_files"]
    settings = yaml.safe_load((TOP / "galaxy.yml").read_text())
    archive = "{namespace}-{name}-{version}.tar.gz".format(**settings)
    folder, _slash, pattern = copied["src"].rpartition("/")
    assert fnmatch.fnmatch(archive, pattern) and f"--output-path {folder}\n" in page
    (collection,) = definition["dependencies"]["galaxy"]["collections"]
    assert (
        f"COPY _build/{copied['dest']}/*.tar.gz {collection['name']}"
        in definition["additional_build_steps"]["prepend_galaxy"]
    )
    assert f"localhost/{definition['options']['tags'][0]}:latest" in page
