# SPDX-License-Identifier: GPL-3.0-or-later
"""The unit of a listening socket: real control groups, real processes, the real kernel."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import socket_unit_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.sock_diag_host import sockets
from ansible_collections.baremetal.inference.plugins.module_utils.instance.socket_unit_host import (
    BeyondError,
    own_group,
    paths_of,
    stranger_at,
)

# In a namespace with the control groups at a place of its own: a listener of the user nobody, or root, in each group.
SCRIPT = """
import json, os, shutil, socket, subprocess, sys
from ansible_collections.baremetal.inference.plugins.module_utils.instance import listener_host, socket_unit_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Processes
root, groups, listener, socket_unit_host.RUN_DIR, uid = sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:]
top = f"{root}/vllm-test-{os.getpid()}.slice"
socket_unit_host.ROOTS = (root,)
found = {}
for group in groups:
    os.makedirs(f"{top}/{group}")
    words = [sys.executable, "-I", "-c", listener, f"{top}/{group}", uid]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port = int(child.stdout.readline())
    try:
        with socket.create_connection(("127.0.0.1", port)) as opened:
            listener_host.check_peer(opened, Processes((65534,), "chat"))
        found[group] = ""
    except listener_host.StrangerError as exc:
        found[group] = str(exc).replace(str(port), "PORT").replace(top[len(root):], "/TOP")
    child.kill()
    child.wait()
for path, _directories, _files in os.walk(top, topdown=False):
    os.rmdir(path)
print(json.dumps(found))
"""
LISTENER = """
import os, socket, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
os.setgroups([])
os.setresgid(*[int(sys.argv[2])] * 3)
os.setresuid(*[int(sys.argv[2])] * 3)
opened = socket.socket()
opened.bind(("127.0.0.1", 0))
opened.listen()
print(opened.getsockname()[1], flush=True)
sys.stdin.read()
"""
CONTAINER, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts control groups, and becomes another user")
@pytest.mark.parametrize("uid", [65534, 0])
def test_a_process_of_the_same_user_in_another_unit_is_a_stranger(tmp_path, uid):
    groups = [
        "system-vllm.slice/vllm@chat.service",
        "system-vllm.slice/vllm@chat.service/libpod-payload-1",
        f"docker-{CONTAINER}.scope",
        # With docker's driver cgroupfs.
        f"docker/{CONTAINER}",
        f"machine.slice/libpod-{CONTAINER}.scope/container",
        "system-vllm.slice/vllm@other.service",
        "cron.service",
        # The container of another instance, or of somebody else.
        f"docker-{OTHER}.scope",
        f"docker/{OTHER}",
        f"docker/{OTHER}/{CONTAINER}",
        f"docker-{OTHER}.scope/docker-{CONTAINER}.scope",
        f"vllm@third.service/libpod-{CONTAINER}.scope",
        "user-1000.slice/session-1.scope",
    ]
    place = str(tmp_path / "groups")
    os.mkdir(place)
    (tmp_path / "run/chat").mkdir(parents=True)
    # As docker writes it.
    (tmp_path / "run/chat/container").write_text(CONTAINER)
    command = 'mount -t cgroup2 none "$1" && shift && exec "$@"'
    script = [sys.executable, "-c", SCRIPT, place, json.dumps(groups), LISTENER, str(tmp_path / "run"), str(uid)]
    words = ["unshare", "--mount", "sh", "-c", command, "sh", place, *script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Programs of root in no container can be what they want; an image that serves as root can not.
    trusted = [] if uid else ["cron.service", "user-1000.slice/session-1.scope"]
    assert [group for group in groups if not found[group]] == [*groups[:5], *trusted]
    other = f"docker-{OTHER}.scope"
    assert found[other] == (
        f"127.0.0.1 port PORT: a process of '/TOP/{other}' listens there, expected the instance chat; nothing is "
        "sent to it: find it with ss -ltnpe 'sport = :PORT', end it, and start the instance again"
    )


def test_the_kernel_tells_the_group_of_each_listener_at_the_port_alone():
    with socket.socket() as one, socket.socket() as other:
        for opened in (one, other):
            opened.bind(("127.0.0.1", 0))
            opened.listen()
        (found,) = sockets(one.getsockname()[1], 1)
        assert found.inode == os.fstat(one.fileno()).st_ino
        # This process itself is no stranger.
        assert found.group and stranger_at({found.group}, "chat") == ""


def test_without_control_groups_nobody_is_a_stranger(monkeypatch, tmp_path):
    monkeypatch.setattr(socket_unit_host, "ROOTS", (str(tmp_path),))
    assert list(paths_of({1, 2})) == [] and stranger_at({1}, "chat") == ""


@pytest.fixture
def groups(monkeypatch, tmp_path):
    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(socket_unit_host, "ROOTS", (str(tmp_path),))

    def made(path):
        (tmp_path / path).mkdir(parents=True)
        return os.stat(tmp_path / path).st_ino

    return made


def test_a_user_who_makes_many_groups_hides_none_and_stops_no_instance(groups, monkeypatch):
    monkeypatch.setattr(socket_unit_host, "_MOST", 12)
    for number in range(12):
        last = groups(f"user.slice/user-1000.slice/user@1000.service/group-{number:02}")
    unit = groups("system.slice/system-vllm.slice/vllm@chat.service")
    assert stranger_at({unit}, "chat") == ""
    with pytest.raises(BeyondError):
        list(paths_of({last + 10_000_000}))
    assert stranger_at({last + 10_000_000}, "chat") == "(a control group behind the first 12 of this host)"


def test_a_group_inside_another_unit_that_is_called_like_the_instance_s_is_a_stranger(groups):
    # A container that may write its groups calls them as it likes.
    inner = groups("system.slice/system-vllm.slice/vllm@other.service/vllm@chat.service")
    assert stranger_at({inner}, "chat").endswith("/vllm@other.service/vllm@chat.service")


# What release 0.9.0 wrote, what later ones write, and the command of an instance in an environment.
OF_0_9_0 = "exec /usr/bin/docker run --rm --name vllm-chat --log-driver none --pull never image"
OF_DOCKER = "exec /usr/bin/docker run --rm --name vllm-chat --log-driver none --cidfile /run/vllm/chat/container image"
OF_VENV = "exec /opt/vllm/a/bin/vllm serve"
OF_PODMAN = "exec /usr/bin/podman run --rm --name vllm-chat --replace --cgroups split docker.io/vllm/vllm-openai"


@pytest.fixture
def serves(monkeypatch, tmp_path):
    monkeypatch.setattr(socket_unit_host, "RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(socket_unit_host, "STATE_DIR", str(tmp_path / "state"))

    def write(text):
        (tmp_path / "state/chat").mkdir(parents=True, exist_ok=True)
        (tmp_path / "state/chat/serve").write_text(text)

    return write


@pytest.mark.parametrize("command", [OF_DOCKER, OF_VENV, OF_PODMAN, ""])
def test_a_container_beside_an_instance_that_is_down_is_a_stranger(groups, serves, monkeypatch, command):
    # systemd removes the id at a stop: the engine of another instance, taken over, had the port and the key.
    scope = groups(f"system.slice/docker-{OTHER}.scope")
    serves(command)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert stranger_at({scope}, "chat") == f"/system.slice/docker-{OTHER}.scope"


def test_a_container_whose_id_nobody_has_written_counts_as_the_instance_s(groups, serves, monkeypatch, tmp_path):
    # Of an instance that release 0.9.0 has started, and for a program that may not read the id.
    scope = groups(f"system.slice/docker-{OTHER}.scope")
    for user, command in ((0, OF_0_9_0), (1000, OF_DOCKER)):
        serves(command)
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert stranger_at({scope}, "chat") == ""
    (tmp_path / "run/chat").mkdir(parents=True)
    (tmp_path / "run/chat/container").write_text(CONTAINER)
    assert stranger_at({scope}, "chat") == f"/system.slice/docker-{OTHER}.scope"


def test_a_container_of_root_whose_id_nobody_has_written_is_no_instance_s(groups, monkeypatch, tmp_path):
    # While an instance is down, the root of another one's container had its port, and got its key.
    monkeypatch.setattr(socket_unit_host, "RUN_DIR", str(tmp_path / "run"))
    scope = f"system.slice/docker-{OTHER}.scope"
    made = groups(scope), groups(f"system.slice/a.service/libpod-payload-{OTHER}"), groups("system.slice/b.service")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert [bool(stranger_at({group}, "chat", of_root=True)) for group in made] == [True, True, False]
    # Others cannot read it.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert stranger_at({made[0]}, "chat", of_root=True) == ""


def test_a_deep_tree_is_searched_to_a_bounded_depth(monkeypatch, tmp_path):
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "/".join("abcdefghij")).mkdir(parents=True)
    deep, near = (os.stat(tmp_path / path).st_ino for path in ("a/b/c/d/e/f/g/h", "a/b"))
    monkeypatch.setattr(socket_unit_host, "ROOTS", (str(tmp_path),))
    began = time.monotonic()
    assert list(paths_of({deep, near})) == ["/a/b"]
    assert time.monotonic() - began < 60


def test_the_own_group(monkeypatch, tmp_path):
    (tmp_path / "self").write_text("1:name=systemd:/x\n0::/system.slice/a.service\n")
    monkeypatch.setattr(socket_unit_host, "SELF", str(tmp_path / "self"))
    assert own_group() == "/system.slice/a.service"
