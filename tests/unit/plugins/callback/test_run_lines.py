# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run prints, with Ansible itself: of several playbooks too, each of which Ansible ends with its statistics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]
PLAYBOOK = """\
- hosts: all
  gather_facts: false
  tasks:
    - name: Write a file
      ansible.builtin.copy: {content: x, dest: "{{ playbook_dir }}/{{ inventory_hostname }}-NAME"}
    - name: Write another one
      ansible.builtin.copy: {content: x, dest: "{{ playbook_dir }}/NAME"}
      when: inventory_hostname == "b"
    - name: Look
      ansible.builtin.command: {cmd: "LOOKS"}
      check_mode: false
      changed_when: false
      run_once: true
"""
TABLE = """
What would change:
hosts  changes  tasks
-----  -------  -------------------------------
a      2        Write a file
b      4        Write a file; Write another one
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs two playbooks on two hosts, which are this machine."""

    def run(callback, *words, looks="true"):
        for name in ("first", "second"):
            text = PLAYBOOK.replace("NAME", name).replace("LOOKS", looks if name == "first" else "true")
            (tmp_path / f"{name}.yml").write_text(text)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        own = {"ANSIBLE_STDOUT_CALLBACK": f"baremetal.inference.{callback}", "COLUMNS": "120"}
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [
            program,
            "-i",
            "a,b",
            "-c",
            "local",
            str(tmp_path / "first.yml"),
            str(tmp_path / "second.yml"),
            *words,
        ]
        return subprocess.run(
            command, cwd=TOP, env={**kept, **own}, capture_output=True, text=True, check=False, timeout=300
        )  # fmt: skip

    return run


def test_check_mode_ends_with_a_table_of_what_would_change(run):
    done = run("run_lines", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    lines, table = done.stdout.split("\n\n")
    assert f"\n{table}" == TABLE
    # The counts of each host stand there once, whatever the number of playbooks.
    assert lines.splitlines()[-2:] == ["a: 2 would change", "b: 4 would change"]
    assert sorted(lines.splitlines()[:-2]) == sorted(
        [f"{host}: Write a file: would change" for host in "aabb"] + ["b: Write another one: would change"] * 2
    )


def test_nothing_would_change_is_said(run):
    assert run("run_lines").stdout.splitlines()[-2:] == ["a: 2 changed", "b: 4 changed"]
    done = run("run_lines", "--check")
    assert (done.returncode, done.stdout) == (0, "Nothing would change; hosts checked: 2\n")
    assert run("run_lines").stdout == ""


def test_a_playbook_that_fails_is_the_last_one(run):
    done = run("run_lines", "--check", looks="false")
    assert done.returncode and "second" not in done.stdout
    assert "Look: non-zero return code\n" in done.stdout and "\nWhat would change:\n" in done.stdout
    assert "b: 2 would change" in done.stdout


def test_a_playbook_that_cannot_be_read_hides_nothing_of_the_one_before(run, tmp_path):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("- {hosts: all, nonsense: 1}\n")
    done = run("run_lines", str(wrong), "--check")
    assert done.returncode and "'nonsense' is not a valid attribute" in done.stderr
    assert done.stdout.endswith(f"a: 2 would change\nb: 4 would change\n{TABLE}")
    run("run_lines")
    done = run("run_lines", str(wrong), "--check")
    # Of the hosts of a playbook that did not run, nothing is known.
    assert (done.returncode != 0, done.stdout) == (True, "")


def test_two_playbooks_have_one_document(run):
    done = run("run_json", "--check")
    document = json.loads(done.stdout)
    assert document["ok"] is True and len(document["changes"]) == 6
    assert json.loads(run("run_json", "--check", looks="false").stdout)["ok"] is False
