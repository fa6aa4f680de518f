# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker's file as the module changes it: a password in it is in no result, and everything else stays."""

from __future__ import annotations

import json

import pytest

from tests.fakes.wheelhouse import run_module

SECRET = "hunter2"
BEFORE = {
    "proxies": {"http-proxy": f"http://reader:{SECRET}@proxy.example:3128"},
    "log-opts": {"splunk-token": SECRET},
    "registry-mirrors": [f"https://reader:{SECRET}@old:5000"],
    "features": {"buildkit": True},
}
SETTINGS = {"registry-mirrors": ["http://mirror:5000"], "features": {"cdi": True}}
AFTER = {**BEFORE, "registry-mirrors": ["http://mirror:5000"], "features": {"buildkit": True, "cdi": True}}


@pytest.fixture
def file(tmp_path):
    """Docker's file with credentials, which only root may read."""
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps(BEFORE))
    path.chmod(0o600)
    return path


def merge(path, settings=None, **more):
    """Run the module as Ansible does with --diff; the password is nowhere in what it returns."""
    result = run_module(
        "container_runtime_daemon", path=str(path), settings=settings or SETTINGS, _ansible_diff=True, **more
    )
    assert SECRET not in json.dumps(result)
    return result


def program(tmp_path, body):
    """Return the command of a program that is like dockerd."""
    path = tmp_path / "dockerd"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"{path} --validate --config-file=%s"


def test_settings_are_merged_and_a_second_run_changes_nothing(file):
    result = merge(file)
    assert result["changed"], result
    assert json.loads(file.read_text()) == AFTER
    assert file.stat().st_mode & 0o777 == 0o600
    written = file.read_bytes()
    again = merge(file)
    assert (again["changed"], "diff" in again) == (False, False)
    assert file.read_bytes() == written


def test_the_difference_shows_what_the_role_sets(file):
    diff = merge(file)["diff"]
    assert diff["before_header"] == diff["after_header"] == str(file)
    assert json.loads(diff["before"]) == {
        "registry-mirrors": ["https://********@old:5000"],
        "features": {"buildkit": True},
    }
    assert json.loads(diff["after"]) == {
        "registry-mirrors": ["http://mirror:5000"],
        "features": {"buildkit": True, "cdi": True},
    }


def test_check_mode_tells_the_change_and_makes_none(file, tmp_path):
    before = file.read_bytes()
    result = merge(file, _ansible_check_mode=True)
    assert result["changed"]
    assert "http://mirror:5000" in result["diff"]["after"]
    assert file.read_bytes() == before
    # The directory may be missing then.
    assert merge(tmp_path / "docker/daemon.json", _ansible_check_mode=True)["changed"]
    merge(file)
    assert not merge(file, _ansible_check_mode=True)["changed"]


def test_a_new_file_has_the_settings_only(tmp_path):
    path = tmp_path / "daemon.json"
    result = merge(path)
    assert (result["changed"], result["diff"]["before"]) == (True, "")
    assert json.loads(path.read_text()) == SETTINGS
    assert path.stat().st_mode & 0o777 == 0o644


def test_docker_reads_the_whole_file_before_it_is_in_place(file, tmp_path):
    command = program(tmp_path, f'cp "${{2#*=}}" {tmp_path}/seen; cp {file} {tmp_path}/old')
    assert merge(file, validate=command)["changed"]
    assert json.loads((tmp_path / "seen").read_text()) == AFTER
    assert json.loads((tmp_path / "old").read_text()) == BEFORE


@pytest.mark.parametrize("check", [False, True])
def test_a_file_that_docker_refuses_stays(file, tmp_path, check):
    command = program(tmp_path, 'echo "cannot use $2: $(cat "${2#*=}")" >&2; exit 1')
    before = file.read_bytes()
    result = merge(file, validate=command, _ansible_check_mode=check)
    assert result["failed"], result
    assert result["msg"].startswith(
        f"{file}: the new content was refused, and nothing was changed: cannot use --config-file={file}: "
    )
    assert "http://mirror:5000" in result["msg"]
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{{"proxies": "{SECRET}" tru}}', "is not valid JSON: "),
        (json.dumps([SECRET]), "found a list, expected a mapping of settings"),
        (json.dumps({"registry-mirrors": f"https://u:{SECRET}@m"}), "registry-mirrors: found a text, expected a list"),
        (json.dumps({"features": [SECRET]}), "features: found a list, expected a mapping"),
    ],
)
def test_a_file_that_cannot_be_merged_stays(file, text, message):
    file.write_text(text)
    result = merge(file)
    assert result["failed"], result
    assert result["msg"].startswith(str(file))
    assert message in result["msg"]
    assert file.read_text() == text


def test_a_directory_that_is_missing_is_named(tmp_path):
    path = tmp_path / "docker/daemon.json"
    assert merge(path)["msg"] == f"{path}: No such file or directory"
