# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.contents import render_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import inspect_weights
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.sources import (
    Access,
    file_address,
    parse_sources,
)

from tests.fakes.fuzz import assert_enough, assert_presentable, cases, mutated, told_apart, within

SHA = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
MANIFEST = {
    "schema_version": 1,
    "repository": "example/tiny",
    "revision": "6cee5e81ee83917806bbde320786a8fb61efebee",
    "precision": "mxfp4",
    "modelscope": {"repository": "example-mirror/tiny", "revision": "v1"},
    "files": {
        "config.json": {"size": 2, "sha256": SHA},
        "sub/model (1).safetensors": {"size": 10**10, "sha256": SHA},
        "größe.json": {"size": 0, "sha256": SHA},
    },
}
SOURCES = [
    "hub",
    "/media/disk",
    "controller:/srv/weights",
    {"source": "https://mirror.example.com/weights", "token_file": "/etc/token"},
    {"source": "s3://models/weights", "endpoint": "https://s3.example.com", "region": "eu", "profile": "x"},
    "modelscope:https://hub.example.com",
]


def test_whatever_a_manifest_holds_it_is_read_or_refused_in_one_sentence(tmp_path):
    accepted = 0
    for label, choose in cases("manifest", 1500):
        with told_apart(label):
            data = mutated(choose, MANIFEST)
            try:
                manifest = within(60, lambda data=data: parse_manifest(data))
            except WeightsError as exc:
                # It may quote a value of the user's own file.
                assert_presentable(str(exc), 200_000)
                continue
            accepted += 1
            for file in manifest.files:
                assert os.path.normpath(file.name) == file.name and not file.name.startswith((".", "/"))
                assert not any(part.startswith(".") for part in file.name.split("/"))
            assert parse_manifest(yaml.safe_load(render_manifest(manifest))) == manifest
            assert len(inspect_weights(str(tmp_path), manifest).missing) == len(manifest.files)
    assert_enough(accepted, 50, "accepted")


def test_whatever_stands_in_weights_sources_is_read_or_refused_in_one_sentence():
    manifest, accepted = parse_manifest(MANIFEST), 0
    for label, choose in cases("sources", 1500):
        with told_apart(label):
            try:
                entries = mutated(choose, SOURCES)
                sources = parse_sources(entries if isinstance(entries, list) else [entries])
            except WeightsError as exc:
                assert_presentable(str(exc), 200_000)
                continue
            accepted += 1
            for source in sources:
                paths = {f"{manifest.path}/{file.name}": "https://signed" for file in manifest.files}
                for file in manifest.files:
                    assert file_address(source, manifest, file, Access(addresses=paths))
    assert_enough(accepted, 50, "accepted")
