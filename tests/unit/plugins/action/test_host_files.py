# SPDX-License-Identifier: GPL-3.0-or-later
"""The action host_files in a real play on this machine, beside Ansible's own template and copy."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.actions import ACTIONS

TOP = Path(__file__).resolve().parents[4]
TEMPLATE = """{{ ansible_managed | comment }}
{% for word in item.words %}
{{ word }}
{% endfor %}
{"looks": "like JSON", "path": "{{ item.path }}"}

"""
JSON_TEMPLATE = '{"a": [1, 2], "name": "{{ item.key }}"}\n'


@pytest.fixture
def role(tmp_path: Path) -> Path:
    """Return the directory of a play with its templates and files."""
    for name in ("templates", "files", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "templates/unit.j2").write_text(TEMPLATE)
    (tmp_path / "templates/data.json.j2").write_text(JSON_TEMPLATE)
    (tmp_path / "files/program.py").write_text("print('{{ not a template }}')\n")
    return tmp_path


def play(
    role: Path, entries: list[dict[str, Any]], *options: str, before: tuple[dict[str, Any], ...] = ()
) -> list[Any]:
    """Put entries in place twice on this machine, after other tasks; return the results of the two."""
    run_play(role, entries, *options, before=before)
    found: list[Any] = json.loads((role / "results.json").read_text())
    return found


def run_play(
    role: Path, entries: list[dict[str, Any]], *options: str, before: tuple[dict[str, Any], ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Put entries in place twice on this machine, after other tasks, and keep the results of the two."""
    task = {"baremetal.inference.host_files": {"files": entries}, "ignore_errors": True}
    tasks = [*before, {**task, "register": "first"}, {**task, "register": "second"}]
    tasks.append({"keep_result": {"dest": f"{role}/results.json", "value": "{{ [first, second] }}"}})
    book = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    (role / "play.yml").write_text(json.dumps(book))
    return subprocess.run(
        [TOP / ".venv/bin/ansible-playbook", "-i", "localhost,", role / "play.yml", *options],
        capture_output=True,
        check=True,
        cwd=TOP,
        text=True,
        env={**os.environ, "ANSIBLE_ACTION_PLUGINS": str(ACTIONS)},
    )


def entry(role: Path, name: str, **options: Any) -> dict[str, Any]:
    return {"path": str(role / "there" / name), "mode": "0640", **options}


def test_files_are_the_same_bytes_as_those_of_template_and_copy(role):
    entries = [
        entry(role, "unit", template="unit.j2", words=["one", "two"]),
        entry(role, "data.json", template="data.json.j2", key="chat"),
        entry(role, "program.py", src="program.py"),
        entry(role, "deep/down", state="directory", mode="0750"),
        {"path": str(role / "there/link"), "state": "link", "target": "/nowhere"},
    ]
    template = "ansible.builtin.template"
    theirs = (
        {template: {"src": "unit.j2", "dest": f"{role}/files/unit"}, "vars": {"item": entries[0]}},
        {template: {"src": "data.json.j2", "dest": f"{role}/files/data.json"}, "vars": {"item": entries[1]}},
    )
    first, second = play(role, entries, before=theirs)
    for name in ("unit", "data.json", "program.py"):
        assert (role / "there" / name).read_bytes() == (role / "files" / name).read_bytes()
    assert stat.S_IMODE((role / "there/deep/down").stat().st_mode) == 0o750
    assert os.readlink(role / "there/link") == "/nowhere"
    assert first["changed"] and [each["changed"] for each in first["results"]] == [True] * 5
    assert first["results"][1]["item"]["key"] == "chat"
    assert not second["changed"]


def test_check_mode_shows_the_difference_and_writes_nothing(role):
    (role / "there/data.json").write_text("old\n")
    entries = [entry(role, "data.json", template="data.json.j2", key="chat"), entry(role, "new", content="new\n")]
    result, again = play(role, entries, "-CD")
    assert result["changed"] and again["changed"]
    old, new = result["diff"]
    assert (old["before"], old["after"]) == ("old\n", '{"a": [1, 2], "name": "chat"}\n')
    assert (new["before"], new["after"]) == ("", "new\n")
    assert (role / "there/data.json").read_text() == "old\n"
    assert not (role / "there/new").exists()


def test_a_change_that_a_running_program_takes_over_is_told_apart(role):
    text = "a: 1\nlora-modules:\n- {}\nport: 1\n"
    for name in ("live", "both", "same", "unlisted", "link"):
        (role / "there" / name).write_text(text.format("sql=/a"))
        (role / "there" / name).chmod(0o640)
    (role / "there/link").unlink()
    (role / "there/link").symlink_to(role / "there/same")
    keys, other = {"live_keys": ["lora-modules"]}, text.format("sql=/b")
    entries = [
        entry(role, "live", content=other, **keys),
        entry(role, "both", content=other.replace("port: 1", "port: 2"), **keys),
        entry(role, "same", content=text.format("sql=/a"), **keys),
        entry(role, "new", content=other, **keys),
        entry(role, "unlisted", content=other),
        entry(role, "link", content=other, **keys),
    ]
    told, _again = play(role, entries, "-C")
    first, second = play(role, entries)
    for result in (told, first):
        assert [each["changed"] for each in result["results"]] == [True, True, False, True, True, True]
        assert [each["live"] for each in result["results"]] == [True, False, False, False, False, False]
    assert not any(each["live"] or each["changed"] for each in second["results"])


def test_content_that_its_command_refuses_leaves_every_file_as_it_was(role):
    entries = [
        entry(role, "first", content="fine\n"),
        entry(role, "second", content="bad\n", validate="grep -q good %s"),
    ]
    result, _again = play(role, entries)
    assert result["failed"] and not result["changed"]
    assert f"{role}/there/second: the new content was refused, and nothing was changed" in result["msg"]
    assert list((role / "there").iterdir()) == []


def test_an_entry_without_one_source_is_refused(role):
    entries = [entry(role, "first", content="fine\n", src="program.py")]
    result, _again = play(role, entries)
    assert "found src, content; expected exactly one of template, src, content" in result["msg"]


def test_a_secret_is_written_and_shown_nowhere(role):
    (role / "templates/key.j2").write_text("KEY=s3cret-{{ item.key }}\n")
    (role / "there/old").write_text("KEY=s3cret-old\n")
    entries = [
        entry(role, "new", template="key.j2", key="one", secret=True, mode="0600"),
        entry(role, "old", template="key.j2", key="two", secret=True, mode="0600"),
        entry(role, "plain", content="not a secret\n"),
    ]
    output = run_play(role, entries, "-vvv", "--diff").stdout
    first, second = json.loads((role / "results.json").read_text())
    assert first["changed"] and not second["changed"]
    assert (role / "there/new").read_text() == "KEY=s3cret-one\n"
    assert (role / "there/old").read_text() == "KEY=s3cret-two\n"
    shown = output + json.dumps([first, second])
    assert "s3cret" not in shown and "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER" in shown
    assert [(each["before"], each["after"]) for each in first["diff"]] == [
        ("", "(other content, hidden)\n"),
        ("(content hidden)\n", "(other content, hidden)\n"),
        ("", "not a secret\n"),
    ]
