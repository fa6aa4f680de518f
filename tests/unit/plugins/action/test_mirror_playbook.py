# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/mirror.yml as a whole, over a directory of weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.hub_server import Model, hubs_running
from tests.fakes.signer import signer

TOP = Path(__file__).resolve().parents[4]
REVISION = "1" * 40
DATA = b"weights" * 1000


@pytest.fixture
def site(tmp_path):
    """A publisher of one model, the manifest of it, and a disk that is not there yet."""
    origin = tmp_path / "origin/acme/tiny" / REVISION
    origin.mkdir(parents=True)
    (origin / "model.safetensors").write_bytes(DATA)
    manifest = tmp_path / "manifests/acme/tiny.yml"
    manifest.parent.mkdir(parents=True)
    file = {"size": len(DATA), "sha256": hashlib.sha256(DATA).hexdigest()}
    manifest.write_text(
        json.dumps({"repository": "acme/tiny", "revision": REVISION, "files": {"model.safetensors": file}})
    )
    return tmp_path


def run(site, *arguments, **variables):
    """Run the playbook and return its exit status, what it says, and how many tasks changed something."""
    variables = {"bundle_dir": str(site / "disk"), **variables}
    if not variables.get("bundle_verify"):
        variables = {
            "bundle_models": "acme/tiny",
            "bundle_weights_manifest_path": [str(site / "manifests")],
            "bundle_weights_sources": [str(site / "origin")],
            **variables,
        }
    words = [sys.executable, "-m", "ansible", "playbook", "playbooks/mirror.yml", "-i", "localhost,"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(site / "tmp")}
    done = subprocess.run(
        [*words, "-e", json.dumps(variables), *arguments],
        cwd=TOP,
        env={**environment, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
        check=False,
        capture_output=True,
        text=True,
    )
    said = re.sub(r"\s+", " ", done.stdout + done.stderr)
    found = re.search(r"changed=(\d+)", said)
    return done.returncode, said, int(found[1]) if found else None


def weights_of(site):
    return site / "disk/weights/acme/tiny" / REVISION / "model.safetensors"


def damage(weights):
    """Change a byte and nothing that a look at the directory shows."""
    status = weights.stat()
    weights.write_bytes(b"W" + DATA[1:])
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_disk_is_filled_and_verified(site):
    weights = weights_of(site)
    rc, said, _changed = run(site, "--check")
    assert rc == 0 and "to fetch: 1 files of weights and encodings" in said, said
    assert not (site / "disk").exists()
    rc, said, _changed = run(site)
    assert rc == 0, said
    assert weights.read_bytes() == DATA
    assert json.loads((site / "disk/bundle.json").read_text())["bytes"] == len(DATA)
    damage(weights)
    rc, said, _changed = run(site, bundle_verify=True)
    assert rc != 0 and f"weights/acme/tiny/{REVISION}/model.safetensors" in said and "bundle_check=full" in said, said


@pytest.mark.long
def test_with_a_keyring_only_a_signed_disk_is_accepted(site):
    disk, keyring = site / "disk", site / "site.gpg"
    (disk / "controller").mkdir(parents=True)
    (disk / "controller/collection.bundle").write_text("code")
    assert run(site)[0] == 0
    with signer() as keys:
        keyring.write_bytes(keys.public())
        rc, said, _changed = run(site, bundle_verify=True, bundle_keyring=str(keyring))
        assert rc != 0 and "SHA256SUMS.asc: not found, and a keyring was given" in said, said
        keys.sign(disk / "SHA256SUMS")
    rc, said, changed = run(site, bundle_verify=True, bundle_keyring=str(keyring))
    assert (rc, changed) == (0, 0) and "controller: collection.bundle" in said, said
    (disk / "controller/collection.bundle").write_text("evil")
    rc, said, _changed = run(site, bundle_verify=True, bundle_keyring=str(keyring))
    assert rc != 0 and "controller/collection.bundle (controller collection.bundle): has sha256" in said, said


@pytest.mark.long
def test_a_second_run_changes_nothing_and_a_full_check_repairs(site):
    weights = weights_of(site)
    assert run(site)[0] == 0
    rc, said, changed = run(site)
    assert (rc, changed) == (0, 0), said
    assert run(site, bundle_verify=True)[0] == 0
    damage(weights)
    assert run(site, bundle_verify=True)[0] != 0
    assert run(site, bundle_check="full")[0] == 0
    assert weights.read_bytes() == DATA
    assert run(site, bundle_verify=True)[0] == 0


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"bundle_dir": "disk"}, "expected the absolute path of the directory"),
        ({"bundle_models": []}, "nothing to fetch: no host of target_hosts has vllm_instances"),
        ({"bundle_models": "acme/tinny"}, "no manifest of weights 'acme/tinny'"),
        ({"bundle_releases": "0.99"}, "no release '0.99'"),
        ({"bundle_verify": True}, "check that the disk is mounted"),
        ({"bundle_keyring": "/keys.gpg"}, "expected -e bundle_verify=true beside it"),
        ({"bundle_verify": True, "bundle_keyring": "/no/keys.gpg"}, "/no/keys.gpg"),
    ],
)
def test_one_clear_error(site, variables, words):
    rc, said, _changed = run(site, **variables)
    assert rc != 0 and words in said, said
    assert not (site / "disk/bundle.json").exists()


@pytest.fixture
def pinning(site, monkeypatch):
    """The variables that pin a model of a hub on the way, and the model."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with hubs_running() as hubs:
        model = Model({REVISION: {"model.safetensors": DATA, "config.json": b"{}"}}, {"main": REVISION})
        hubs.hub["acme/new"] = model
        hub = f"hub:{hubs.url}"
        wanted = {"bundle_models": "acme/new", "bundle_weights_sources": [hub], "bundle_pin_source": hub}
        yield {**wanted, "bundle_pin_dest": str(site / "new")}, model


def test_a_model_without_a_manifest_is_pinned_on_the_way(site, pinning):
    rc, said, _changed = run(site, **pinning[0])
    assert rc == 0, said
    assert (site / "disk/weights/acme/new" / REVISION / "model.safetensors").read_bytes() == DATA
    assert (site / "new/acme/new.yml").is_file()


@pytest.mark.long
def test_a_manifest_that_is_there_keeps_its_revision(site, pinning):
    wanted, model = pinning
    rc, said, _changed = run(site, "--check", **wanted)
    assert rc == 0 and "to pin first: acme/new" in said, said
    assert not (site / "new").exists() and not (site / "disk").exists()
    assert run(site, **wanted)[0] == 0
    model.branches["main"] = "2" * 40
    rc, said, changed = run(site, **wanted)
    assert (rc, changed) == (0, 0), said
