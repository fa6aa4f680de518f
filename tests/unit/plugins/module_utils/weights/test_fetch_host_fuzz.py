# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources that answer whatever they like: an error or the right files, in time, and never anything else."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import connections as _connections
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import watch as _watch
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import Settings
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import (
    ProgressTracker,
    WeightsStore,
    choose_source,
    fetch_weights,
    inspect_weights,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.plan import STAMP_NAME
from ansible_collections.baremetal.inference.plugins.module_utils.weights.sources import Access, parse_sources

from tests.fakes.file_server import FileServer, serving
from tests.fakes.fuzz import HostileServer, assert_enough, assert_presentable, cases, told_apart, within
from tests.fakes.hostile_weights import answer

CANARY = "canary-token-5e1f"
# Of one case: many times what its timeouts allow together.
DEADLINE = 120
CONTENTS = {name: random.Random(name).randbytes(size) for name, size in (("a", 0), ("b", 700), ("c/d e", 3500))}
MANIFEST = parse_manifest(
    {
        "repository": "example/tiny",
        "revision": "0d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de",
        "files": {
            name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in CONTENTS.items()
        },
    }
)
PATHS = {f"/{MANIFEST.path}/{name}": content for name, content in CONTENTS.items()}


@pytest.fixture
def good(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(_watch, "WINDOW_SECONDS", 0.5)
    monkeypatch.setattr(_connections, "MAX_RETRY_AFTER_SECONDS", 0.2)
    with serving(FileServer()) as running:
        running.files = {path.replace(" ", "%20"): content for path, content in PATHS.items()}
        yield running


def test_whatever_a_server_answers_the_files_are_right_or_there_is_an_error(good, tmp_path):
    published = 0
    # Most of its time are timeouts.
    for label, choose in cases("server", 80):
        home, random_of_server = tmp_path / "models", random.Random(choose.random())

        def script(head, choose=random_of_server):
            return answer(choose, head, PATHS, good.url)

        with told_apart(label), HostileServer(script) as hostile:
            alone = choose.random() < 0.3
            site = site_of(str(home), [hostile.url] if alone else [hostile.url, good.url])
            try:
                result = within(DEADLINE, lambda site=site: fetch(site))
            except WeightsError as exc:
                assert_presentable(str(exc))
                assert CANARY not in str(exc)
                assert not os.path.lexists(home / MANIFEST.path), "it has published what it reports as an error"
            else:
                for reason in result.skipped:
                    assert_presentable(reason)
                assert contents(home / MANIFEST.path) == CONTENTS
                assert not inspect_weights(site.root, MANIFEST, full=True).changed
                published += 1
            shutil.rmtree(home, ignore_errors=True)
    assert_enough(published, 20, "published")


def site_of(root, sources):
    settings = Settings(stall_timeout=0.4, attempts=2, backoff=0.01, connections=2, part=1000, lowest_rate=2000)
    return WeightsStore(
        root, parse_sources(sources), (Access(CANARY),) * len(sources), root, lambda _unit: False, settings
    )


def fetch(site):
    chosen = choose_source(inspect_weights(site.root, MANIFEST), site)
    return fetch_weights(chosen, site, lambda _line: None, ProgressTracker())


def contents(directory):
    found = (path for path in Path(directory).rglob("*") if path.is_file() and path.name != STAMP_NAME)
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}
