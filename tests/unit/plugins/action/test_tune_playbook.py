# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/tune.yml as a whole, over a host whose benchmark answers with made figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.files import load_evidence

from tests.fakes.tuned_site import GOOD, TunedSite

RESTORED = f'restore {{"chat": "{GOOD}"}}'
# 32 is half as fast, and the stand-in does not start with 13.
MATRIX = {"args": {"max-num-seqs": [64, 32, 13]}}


@pytest.fixture
def site(tmp_path):
    site = TunedSite(tmp_path)
    site.settings["speeds"] = {"64": 150.0, "32": 50.0}
    return site


def events(site):
    """Return what happened on the host, warm-ups and seeds left out."""
    return [" ".join(line.split()[:2]) for line in site.log if not line.startswith("info") and " 2 " not in line]


@pytest.mark.long
def test_a_whole_tune(site):
    done = site.tune(tune_matrix=MATRIX)
    assert done.returncode == 0, done.stdout[-3000:]
    assert [line for line in events(site) if line.startswith(("start", "bench"))] == [
        "start none", "bench None", "start 64", "bench 64", "start 32", "bench 32", "start 13",
        "start none", "bench None", "start 64", "bench 64",
    ]  # fmt: skip
    assert site.log[-1] == RESTORED and not (site.host / "tune.json").exists()
    results = site.top / "results/here/chat"
    result = json.loads((results / "result.json").read_text())
    assert (result["winner"], result["proposed"]) == ("max-num-seqs-64", True)
    outcomes = {row["variant"]: row["outcome"] for row in result["variants"]}
    assert outcomes["max-num-seqs-13"] == "does not start: no room for 13"
    assert outcomes["max-num-seqs-32"].startswith("dropped after round 1: ")
    # Each seed is new: with one seed twice the prefix cache would answer.
    seeds = [line.split()[3] for line in site.log if line.startswith("bench")]
    assert len(set(seeds)) == len(seeds) == 10
    # Only what went through all rounds is evidence.
    bundled = {entry.name for entry in load_evidence([])}
    found = [entry for entry in load_evidence([str(results / "evidence")]) if entry.name not in bundled]
    assert {entry.name.rpartition("/")[2][18:] for entry in found} == {"", "max-num-seqs-64"}
    assert {entry.document["start_seconds"] for entry in found} == {40.0}
    proposal = (results / "proposal.diff").read_text()
    assert "+    args:\n+      max-num-seqs: 64\n" in proposal
    assert '+      - when: {accelerator: h200, vllm: ">=0.33.0"}\n' in proposal
    assert "Result: max-num-seqs-64: 15" in done.stdout

    # The same again measures nothing, restarts nothing, and says the same.
    before = len(site.log)
    again = site.tune(tune_matrix=MATRIX)
    assert again.returncode == 0 and site.log[before:] == [RESTORED]
    assert json.loads((results / "result.json").read_text()) == result

    site.settings["digest"] = "another"
    (site.host / "tune.json").write_text(json.dumps({"id": "deploy-2:/x", "since": "2026", "states": {}}))
    refused = site.tune(tune_matrix=MATRIX)
    assert refused.returncode == 2 and "the tune deploy-2:/x has been working here since 2026" in refused.stdout
    assert site.log[before + 1 :] == []


@pytest.mark.long
def test_a_measurement_that_fails_ends_the_tune_and_the_next_run_goes_on(site):
    site.settings["breaks_at"] = 5
    done = site.tune(tune_variants={"more": {"args": {"max-num-seqs": 64}}})
    assert done.returncode == 2 and "answered 5 requests of others" in done.stdout
    assert site.log[-1] == RESTORED and not (site.host / "tune.json").exists()
    first = len(site.log)
    # As if the controller had been killed: the host serves a variant, and the lock is there.
    site.settings.update(breaks_at=None, digest="of the variant")
    settings = json.loads((site.top / "results/here/chat/tune.json").read_text())
    node = settings["process"]["controller"]
    lock = {"id": f"{node}:{site.top}/results/here/chat", "since": "2026", "states": {"chat": GOOD}}
    (site.host / "tune.json").write_text(json.dumps(lock))
    stopped = site.tune(tune_variants={"more": {"args": {"max-num-seqs": 64}}}, tune_stop="true")
    assert stopped.returncode == 0, stopped.stdout[-3000:]
    assert site.log[first:] == [RESTORED] and not (site.host / "tune.json").exists()
    again = site.tune(tune_variants={"more": {"args": {"max-num-seqs": 64}}}, tune_stop="true")
    assert again.returncode == 2 and "tune_stop: found no interrupted tune" in again.stdout
    (site.host / "tune.json").write_text(json.dumps(lock))
    done = site.tune(tune_variants={"more": {"args": {"max-num-seqs": 64}}})
    assert done.returncode == 0, done.stdout[-3000:]
    starts = [line for line in site.log[first:] if line.startswith("start")]
    assert starts == ["start none", "start 64"]
    assert site.log[-1] == RESTORED


def test_what_is_refused_before_anything_changes(site):
    site.settings.update(server="ready", gateway=True)
    sending = site.tune(tune_variants={"more": {"args": {"max-num-seqs": 64}}})
    assert "the gateway gw sends requests to here--chat; drain the host first" in sending.stdout
    wrong = site.tune(tune_variants={"more": {"args": {"max-num-seq": 64}}})
    assert "The variant more cannot be planned: " in wrong.stdout and "nearest: 'max-num-seqs'" in wrong.stdout
    site.settings.update(server="drain")
    same = site.tune(tune_variants={"same": {"preset": "balanced"}})
    assert "same makes the same plan as current" in same.stdout
    assert {sending.returncode, wrong.returncode, same.returncode} == {2}
    assert site.log == []


def test_check_mode_plans_and_takes_nothing(site):
    site.settings["digest"] = "another"
    done = site.tune("--check", tune_variants={"more": {"args": {"max-num-seqs": 64}}})
    assert "instance chat is installed with files that were never verified; run playbooks/site.yml first" in done.stdout
    assert site.log == [] and not (site.top / "results").exists()
    assert done.returncode == 2


def text_of(done):
    """Return the output of a playbook in one line, without the breaks of its messages."""
    return " ".join((done.stdout + done.stderr).split())


MORE = {"more": {"args": {"max-num-seqs": 64}}}


@pytest.mark.long
def test_an_instance_that_dies_drops_its_variant_and_is_restored(site):
    site.settings["dies"] = 64
    done = site.tune(tune_variants=MORE)
    assert done.returncode == 0, done.stdout[-3000:]
    died = "round 1: instance chat did not survive the measurement: no memory"
    result = json.loads((site.top / "results/here/chat/result.json").read_text())
    assert {row["variant"]: row["outcome"] for row in result["variants"]}["more"] == died
    assert (result["winner"], result["proposed"]) == ("current", False)
    assert events(site).count("start 64") == 1
    assert site.log[-1] == RESTORED and not (site.host / "tune.json").exists()

    site.settings["dies"] = "current"
    done = site.tune(tune_variants=MORE, tune_fresh="true")
    assert done.returncode == 2 and "here: instance chat did not survive the measurement: no memory" in text_of(done)
    assert site.log[-1] == RESTORED and not (site.host / "tune.json").exists()


@pytest.mark.long
def test_a_chip_that_is_slowed_down_is_a_warning_and_a_note_of_the_evidence(site):
    site.settings["slowed"] = 64
    done = site.tune(tune_variants=MORE)
    assert done.returncode == 0, done.stdout[-3000:]
    slowed = "more: chat, 2 at a time, run 1: slowed down: 0000:1b:00.0 (hw_therm_slowdown); the figures are too low"
    assert f"[WARNING]: here chat: {slowed}" in text_of(done)
    notes = {path.stem: path.read_text() for path in (site.top / "results").rglob("evidence/**/*.yml")}
    assert {name.endswith("-more") for name, text in notes.items() if "slowed down" in text} == {True}
    assert site.log[-1] == RESTORED


@pytest.fixture
def small_disk(site):
    """A file system of 128 KiB at the directory of results."""
    (site.top / "results").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(site.top / "results")]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs root and the right to mount")
    yield site.top / "results"
    subprocess.run(["umount", "--lazy", str(site.top / "results")], check=True)


@pytest.mark.long
def test_a_full_disk_ends_the_tune_with_one_message_and_the_next_run_goes_on(site, small_disk):
    # The second measurement of four is taken, and cannot be kept.
    site.settings["fills_at"] = 4
    done = site.tune(tune_variants=MORE)
    said = text_of(done)
    assert done.returncode == 2 and said.count("FAILED!") == 1 and "cannot be written: No space left on device" in said
    assert "What was measured before is kept; make room and run the playbook again" in said
    assert site.log[-1] == RESTORED and not (site.host / "tune.json").exists()
    (small_disk / "ballast").unlink()
    site.settings["fills_at"] = None
    before = len(site.log)
    done = site.tune(tune_variants=MORE)
    assert done.returncode == 0, done.stdout[-3000:]
    assert [line for line in site.log[before:] if line.startswith("start")] == ["start 64", "start none", "start 64"]
    assert site.log[-1] == RESTORED


def descendants(pid):
    """Return the processes that a process has started, directly or not."""
    children = [
        int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]
    return [each for child in children for each in (*descendants(child), child)]


@pytest.mark.long
def test_two_tunes_at_once_and_one_that_is_killed(site):
    site.settings["waits_at"] = 3
    first = site.begin(tune_variants=MORE)
    try:
        deadline = time.monotonic() + 120
        while not (site.host / "waiting").exists():
            assert time.monotonic() < deadline and first.poll() is None
            time.sleep(0.1)
        before = list(site.log)
        same = site.tune(tune_variants=MORE)
        assert f"process {first.pid} tunes this instance; wait until it has ended" in text_of(same)
        other = site.tune(tune_variants=MORE, tune_dir=str(site.top / "elsewhere"))
        assert "results/here/chat has been working here since" in text_of(other)
        assert {same.returncode, other.returncode} == {2} and site.log == before
    finally:
        # Ansible's workers and modules are in separate sessions.
        for pid in [*descendants(first.pid), first.pid]:
            os.kill(pid, signal.SIGKILL)
        first.communicate()
    assert (site.host / "tune.json").exists()
    # The host serves the variant now, and the lock names the state to restore.
    site.settings.update(waits_at=None, digest="of the variant")
    done = site.tune(tune_variants=MORE)
    assert done.returncode == 0, done.stdout[-3000:]
    starts = [line for line in site.log[len(before) :] if line.startswith("start")]
    assert starts == ["start 64", "start none", "start 64"]
    assert site.log[-1] == RESTORED and not (site.host / "tune.json").exists()
