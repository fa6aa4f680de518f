# SPDX-License-Identifier: GPL-3.0-or-later
"""The action as a task of a play, from a journal on the disk to its two files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.actions import ACTIONS
from tests.fakes.rollouts import SLOW, Journal, good, interrupted, stopped

TOP = Path(__file__).resolve().parents[4]


@pytest.fixture
def run(tmp_path):
    """Run a task for each set of options in one play; return the results."""

    def call(*cases, flags=()):
        play, results = tmp_path / "play.json", tmp_path / "results.json"
        tasks = [
            {"baremetal.inference.rollout_report": options, "register": f"found_{number}", "ignore_errors": True}
            for number, options in enumerate(cases)
        ]
        found = "{{ [" + ", ".join(f"found_{number}" for number in range(len(cases))) + "] }}"
        tasks.append({"keep_result": {"value": found, "dest": str(results)}})
        play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
        own = {"ANSIBLE_COLLECTIONS_PATH": str(TOP / ".collections"), "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"),
               "ANSIBLE_ACTION_PLUGINS": str(ACTIONS)}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local", str(play), *flags,
             "-e", f"ansible_python_interpreter={sys.executable}"],
            env={**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "1", **own},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(results.read_text())

    return call


def test_a_journal_becomes_a_document_and_a_page(run, tmp_path):
    journal = stopped().write(tmp_path / "journal.jsonl")
    options = {
        "journal": str(journal), "dest_json": str(tmp_path / "report.json"), "dest_html": str(tmp_path / "report.html"),
    }  # fmt: skip
    (told,) = run(options, flags=["--check"])
    assert told["changed"] and not (tmp_path / "report.json").exists() and not (tmp_path / "report.html").exists()
    first, again = run(options, {**options, "journal": str(tmp_path)})
    assert (first["changed"], again["changed"]) == (True, False)
    assert first["summary"]["failed"] == {"a1": SLOW} and first["summary"]["result"] == "stopped"
    assert first["summary"] == again["summary"]
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["schema"] == 1 and document["totals"] == first["summary"]["totals"]
    assert "a1 is a canary and failed" in (tmp_path / "report.html").read_text()
    assert {(tmp_path / f"report.{kind}").stat().st_mode & 0o777 for kind in ("json", "html")} == {0o600}
    # Who may read it was changed by somebody, and stays.
    (tmp_path / "report.html").chmod(0o644)
    good().write(journal)
    (changed,) = run(options)
    assert changed["changed"] and (tmp_path / "report.html").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.glob("*report*")) == ["report.html", "report.json"]


def test_interrupted_or_still_running(run, tmp_path):
    Journal().write(tmp_path / "cut.jsonl", interrupted())
    # The journal of a run that lives: this process wrote it.
    stat = Path("/proc/self/stat").read_text()
    alive = {
        "pid": os.getpid(), "pid_started": int(stat.rpartition(")")[2].split()[19]),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    }  # fmt: skip
    journal = Journal()
    journal.begin({"a": [["a1"]]}, **alive)
    journal.step("a1", "drain", 3)
    journal.write(tmp_path / "running.jsonl")
    cut, running = run(
        {"journal": str(tmp_path / "cut.jsonl")}, {"journal": str(tmp_path / "running.jsonl")}
    )  # fmt: skip
    assert (cut["summary"]["result"], cut["summary"]["unfinished"], cut["changed"]) == ("interrupted", ["a2"], False)
    assert (running["summary"]["result"], running["summary"]["unfinished"]) == ("running", ["a1"])


def test_files_that_cannot_be(run, tmp_path):
    journal = str(good().write(tmp_path / "journal.jsonl"))
    (tmp_path / "empty").write_text("")
    (tmp_path / "no").mkdir()
    cases = [
        ({"journal": f"{tmp_path}/other.jsonl"}, f"journal: {tmp_path}/other.jsonl is not there; expected the journal"),
        ({"journal": f"{tmp_path}/no"}, f"journal: {tmp_path}/no/journal.jsonl is not there"),
        ({"journal": f"{tmp_path}/empty"}, "cannot be reported on: no event marks the begin of a rollout"),
        ({"journal": journal, "dest_html": f"{tmp_path}/no"}, f"dest_html: {tmp_path}/no is in the way"),
        ({"journal": journal, "dest_json": f"{tmp_path}/x/r.json"}, f"dest_json: {tmp_path}/x is not a directory"),
        ({"journal": journal, "page": "x"}, "page"),
    ]
    for (options, said), result in zip(cases, run(*[options for options, _said in cases]), strict=True):
        assert result["failed"] and said in result["msg"], (options, result["msg"])
