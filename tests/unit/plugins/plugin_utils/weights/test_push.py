# SPDX-License-Identifier: GPL-3.0-or-later
"""Pushing weights with the real rsync, to this host in the place of another one."""

from __future__ import annotations

import re
import subprocess
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import (
    Manifest,
    ManifestFile,
    WeightsError,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.weights.push import (
    Lacking,
    check_files,
    connection_words,
    lacking_of,
    push_models,
    rsync_command,
    run_rsync,
    ssh_command,
)

OPTIONS = {
    "ssh_args": "-C -o ControlPersist=60s", "ssh_common_args": "-o 'ProxyJump=a b'", "ssh_extra_args": None,
    "port": 2222,
    "private_key_file": "/root/key", "host_key_checking": False, "remote_user": "admin", "host": "gpu-1",
}  # fmt: skip

from tests.fakes.default_acl import modes_below, set_default_acl


def action(transport="ssh", become=None, check_mode=False, made=0, **options):
    known = {**OPTIONS, **options}
    connection = SimpleNamespace(transport=transport, get_option=known.get, become=become)
    execute = SimpleNamespace(commands=[])

    def run(command):
        execute.commands.append(command)
        if made == 0:
            subprocess.run(["sh", "-c", command], check=True)
        return {"rc": made, "stderr": "Permission denied\n"}

    return SimpleNamespace(
        _connection=connection,
        _low_level_execute_command=run,
        _task=SimpleNamespace(check_mode=check_mode),
        ran=execute,
    )


def become(name="sudo", user=None):
    return SimpleNamespace(name=name, get_option={"become_user": user}.get)


def test_ssh_has_the_options_of_the_connection_but_no_compression():
    assert ssh_command(OPTIONS.get) == [
        "ssh", "-o", "ControlPersist=60s", "-o", "ProxyJump=a b", "-p", "2222", "-i", "/root/key",
        "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes",
    ]  # fmt: skip
    assert ssh_command({"host_key_checking": True}.get) == ["ssh", "-o", "BatchMode=yes"]


@pytest.mark.parametrize(
    ("given", "login", "sudo"),
    [
        ({}, "admin@gpu-1:", False), ({"become": become()}, "admin@gpu-1:", True),
        ({"become": become(user="admin"), "remote_user": "admin"}, "admin@gpu-1:", False),
        ({"become": become(), "remote_user": "root"}, "root@gpu-1:", False), ({"remote_user": None}, "gpu-1:", False),
        ({"transport": "local", "become": become()}, "", False),
        ({"host": "2001:db8::1"}, "admin@[2001:db8::1]:", False),
        ({"host": "fe80::1%eth0"}, "admin@[fe80::1%eth0]:", False),
    ],
)  # fmt: skip
def test_a_path_on_the_host_begins_with_its_login(given, login, sudo):
    assert connection_words(action(**given))[1:] == (login, sudo)


def test_rsync_takes_each_login_for_that_host(tmp_path):
    """With a program in the place of ssh, which gets the host from rsync."""
    shell = tmp_path / "ssh"
    shell.write_text('#!/bin/sh\necho "$3" >&2; exit 1\n')
    shell.chmod(0o755)
    for host in ("gpu-1", "192.0.2.1", "2001:db8::1", "fe80::1%eth0"):
        _ssh, login, _sudo = connection_words(action(host=host))
        words = rsync_command(str(tmp_path), f"{login}/srv/x", [str(shell)], False, 0)
        done = subprocess.run(words, input="ssh\n", capture_output=True, text=True, check=False)
        assert done.stderr.splitlines()[0] == host


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"transport": "winrm"}, "needs a connection over ssh, found winrm"),
        ({"become": become("su")}, "needs sudo where it needs another user, found su"),
    ],
)
def test_another_connection_or_way_to_root_is_refused(given, reason):
    with pytest.raises(WeightsError, match=reason):
        connection_words(action(**given))


def test_the_bandwidth_is_given_in_kibibytes_and_never_zero():
    def limit(megabits):
        return [word for word in rsync_command("/a", "b", ["ssh"], False, megabits) if word.startswith("--bwlimit")]

    assert limit(0) == [] and limit(1000) == ["--bwlimit=122070"] and limit(1) == ["--bwlimit=122"]
    words = rsync_command("/a/", "h:/b", ["ssh", "-o", "x y"], True, 0)
    assert words[-2:] == ["/a/", "h:/b/"] and "--rsh=ssh -o 'x y'" in words and "--rsync-path=sudo -n rsync" in words


@pytest.fixture
def weights(tmp_path):
    (tmp_path / "from/org/m/sub").mkdir(parents=True)
    for name in ("a", "sub/b", "other"):
        (tmp_path / "from/org/m" / name).write_text(name)
    return tmp_path


def model(weights, path="org/m", **files):
    return Lacking(path, str(weights / "to" / f".{path.replace('/', '-')}.partial"), files)


def push(weights, models, **given):
    source = SimpleNamespace(base=str(weights / "from"), text="controller:x")
    return push_models(action(transport="local", **given), source, models, 0)


def test_the_named_files_alone_are_pushed_for_everybody_to_read(weights):
    one, two = model(weights, a=1, **{"sub/b": 5}), model(weights, "org/gone", c=1)
    here, (reason,) = push(weights, [one, two])
    assert here == ["org/m"] and reason == f"controller:{weights}/from/org/gone/c: No such file or directory"
    place = weights / "to/.org-m.partial"
    assert {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()} == {"a", "sub/b"}
    assert (place / "sub/b").stat().st_mode & 0o777 == 0o644 and place.stat().st_mode & 0o777 == 0o755


def test_a_default_acl_gives_its_user_no_directory_of_a_push(weights):
    (weights / "to").mkdir()
    set_default_acl(weights / "to")
    push(weights, [Lacking("org/m", str(weights / "to/org/m/.x.partial"), {"a": 1, "sub/b": 5})])
    places = ("org", "org/m", "org/m/.x.partial", "org/m/.x.partial/sub")
    assert modes_below(weights / "to") == dict.fromkeys(places, 493)


def test_check_mode_only_looks(weights):
    assert push(weights, [model(weights, a=1)], check_mode=True) == (["org/m"], [])
    assert not (weights / "to").exists()


def test_a_file_of_another_size_is_not_pushed(weights):
    with pytest.raises(WeightsError, match=r"/a: found 1 bytes, expected 2\Z"):
        check_files(str(weights / "from/org/m"), {"a": 2})


def test_what_fails_is_named_with_its_reason(weights, monkeypatch):
    with pytest.raises(WeightsError, match=r"controller:x: .*partial cannot be created: Permission denied"):
        push(weights, [model(weights, a=1)], made=1)
    with pytest.raises(WeightsError, match=r"where: rsync ended with 23: .*gone"):
        run_rsync(["rsync", "--files-from=-", f"{weights}/from/", f"{weights}/x/"], ["gone"], "where")
    with pytest.raises(WeightsError, match="rsync is not installed on the host"):
        run_rsync(["sh", "-c", "echo 'bash: rsync: command not found' >&2; exit 12"], [], "where")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(WeightsError, match="rsync is not installed on the controller"):
        run_rsync(["rsync"], [], "where")


MANIFESTS = [Manifest("org/m", "1" * 40, (ManifestFile("a", 1, ""), ManifestFile("sub/b", 5, "")))]
PATH = MANIFESTS[0].path


def test_a_host_chooses_only_among_the_names_of_the_manifest():
    """Sizes and the directory are the controller's, whatever else the answer says."""
    answer = [{"path": PATH, "partial": "/root/.ssh", "files": {"sub/b": 44}}]
    assert lacking_of(answer, MANIFESTS, "/srv/models") == [
        Lacking(PATH, f"/srv/models/org/m/.{'1' * 40}.partial", {"sub/b": 5})
    ]
    assert lacking_of([], MANIFESTS, "/srv/models") == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([{"path": "/home/op/.ssh", "files": {"id_ed25519": 44}}], "names '/home/op/.ssh', which is no model"),
        ([{"path": f"{PATH}/../../../..", "files": {"a": 1}}], "no model of this task"),
        ([{"path": PATH, "files": {"../../../secret": 1}}], "names '../../../secret', which is no file of org/m/1"),
        ([{"path": PATH, "files": {"./": 4096}}], "names './', which is no file"),
        ([{"path": PATH, "files": {"/etc/shadow": 1, "a": 1}}], "names '/etc/shadow'"),
        ([{"path": PATH, "files": {}}, {"path": PATH, "files": {}}], "no model of this task"),
        ([{"path": PATH, "files": ["a"]}], "no file of"), ([{"path": PATH}], "names nothing, which is no file of"),
        ([{"path": [PATH], "files": {}}], "no model"), (["x"], "names nothing, which is no model"),
        ({"path": PATH, "files": {"b": 1}}, "no file of"), (7, "no model"), (None, "no model"),
    ],
)  # fmt: skip
def test_any_other_answer_of_a_host_is_an_error(answer, reason):
    with pytest.raises(WeightsError, match=f"the host's answer .*{re.escape(reason)}"):
        lacking_of(answer, MANIFESTS, "/srv/models")


@pytest.mark.parametrize("root", ["models", "$HOME/models", "", None])
def test_a_push_needs_an_absolute_root(root):
    with pytest.raises(WeightsError, match=r"weights_root: found .*, expected an absolute path for a push"):
        lacking_of([], MANIFESTS, root)
