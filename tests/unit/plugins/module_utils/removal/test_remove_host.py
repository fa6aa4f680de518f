# SPDX-License-Identifier: GPL-3.0-or-later
"""Removals on a tree of files, also when they are killed in the middle."""

from __future__ import annotations

import contextlib
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.removal import remove_host
from ansible_collections.baremetal.inference.plugins.module_utils.removal.model import USER, Item, RemovalError
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import SlotError

from tests.fakes.mounts import bound
from tests.fakes.weights_store import open_to_others

A = "a" * 40
VENV = "0.32.0-cpu-0123456789ab"
MODEL = f"/srv/models/example/tiny/{A}"
SCRUB = ("/etc/systemd/system/weights-scrub.service", "/etc/systemd/system/weights-scrub.timer",
         "/usr/local/lib/weights-scrub.py", "/var/lib/baremetal-inference/weights-scrub.json")  # fmt: skip


def mounted(there, path):
    """Put something at a path into the kernel's list, as a plan reads it."""
    with (there.proc / "self/mountinfo").open("a") as file:
        file.write(f"2 1 0:1 /x {there.at(path)} rw - ext4 disk rw\n")


class Killed(BaseException):
    """Stands for SIGKILL."""


def full(there):
    """Put everything of a serving host below its root, and a file of somebody else."""
    there.template("chat", venv=VENV)
    there.unit("docker", "mirror:5000/lab/vllm:1", "code")
    for path in (*SCRUB, "/usr/local/lib/vllm-wait-ready.py", "/srv/encodings/o200k_base.tiktoken",
                 "/opt/vllm/uv-0.9.0/uv",
                 "/var/cache/vllm/chat/kernel", "/etc/systemd/system/vllm@chat.service.d/mine.conf", "/etc/hosts",
                 "/srv/models/example/tiny/.lock"):  # fmt: skip
        there.write(path, "x")


def test_an_instance_goes_and_its_neighbour_and_what_both_need_stays(there):
    full(there)
    there.systemd.runs("vllm@chat.service")
    before = there.files()
    assert [item.name for item in there.remove("instance", "chat").removed] == ["chat"]
    gone = sorted(set(before) - set(there.files()))
    assert gone == ["/etc/systemd/system/vllm@chat.service.d/mine.conf", "/etc/vllm/chat.env", "/etc/vllm/chat.secrets",
                    "/etc/vllm/chat.yaml", "/var/cache/vllm/chat/kernel", "/var/lib/vllm/chat/model",
                    "/var/lib/vllm/chat/serve"]  # fmt: skip
    assert there.systemd.asked() == [
        "stop vllm@chat.service", "disable vllm@chat.service", "daemon-reload", "reset-failed vllm@chat.service"
    ]  # fmt: skip
    again = there.plan("instance", "chat")
    assert again.items == ()
    assert there.remove("instance", "chat").removed == []


def test_an_instance_that_does_not_stop_keeps_its_files(there):
    full(there)
    there.systemd.runs("vllm@chat.service")
    there.systemd.change(broken=["stop"])
    before = there.files()
    with pytest.raises((RemovalError, SlotError)):
        there.remove("instance", "chat")
    assert there.files() == before


def test_an_instance_that_runs_though_systemd_says_it_stopped_keeps_its_files(there, monkeypatch):
    """Another unit, or a person, may have started it again at once."""
    full(there)
    there.systemd.runs("vllm@chat.service")
    played = there.systemd
    monkeypatch.setattr(there, "systemd", lambda words: (0, "", "") if words[1] == "stop" else played(words))
    before = there.files()
    with pytest.raises(RemovalError, match=r"vllm@chat.service runs though it was stopped; stop it by hand"):
        there.remove("instance", "chat")
    assert there.files() == before


@pytest.mark.parametrize(
    ("rc", "gone", "kept"),
    [(0, ["vllm"], []), (6, [], []), (12, ["vllm"], []), (8, [], ["the user vllm stays: processes of it still run"])],
)
def test_a_user_whose_processes_run_stays_and_the_rest_goes_on(there, rc, gone, kept):
    there.commands = {"userdel": (rc, "", "vllm is used by process 7"), "groupdel": (0, "", "")}
    removal = there.removal()
    removal.remove([Item(USER, "vllm", "vllm")])
    assert ([item.name for item in removal.removed], removal.kept) == (gone, kept)
    assert ("groupdel vllm" in there.asked) is (rc != 8)


def test_a_user_that_cannot_be_removed_says_why(there):
    there.commands = {"userdel": (1, "", "cannot lock /etc/passwd\n")}
    with pytest.raises(RemovalError, match=r"^userdel vllm: cannot lock /etc/passwd$"):
        there.removal().remove([Item(USER, "vllm", "vllm")])


def test_everything_leaves_nothing_but_what_is_not_its_own(there):
    full(there)
    removal = there.remove("everything")
    assert there.files() == ["/etc/hosts"]
    assert removal.kept == []
    for path in ("/etc/vllm", "/var/lib/vllm", "/var/cache/vllm", "/opt/vllm", "/srv/models", "/srv/encodings"):
        assert not there.at(path).exists(), path
    assert "disable weights-scrub.timer" in there.systemd.asked()
    assert there.plan("everything").items == ()


def test_a_model_goes_with_its_lock_and_its_empty_directories(there):
    there.weights(A)
    there.write("/srv/models/example/tiny/.lock", "")
    there.write("/srv/models/other/kept.txt", "x")
    assert [item.target for item in there.remove("model", "example/tiny").removed] == [MODEL]
    assert there.files() == ["/srv/models/other/kept.txt"]
    assert not there.at("/srv/models/example").exists()
    assert there.remove("model", "example/tiny").removed == []


def test_a_process_that_came_after_the_plan_keeps_the_weights(there):
    there.weights(A)
    plan = there.plan("model", "example/tiny")
    (there.proc / "71").mkdir()
    (there.proc / "71/cmdline").write_text(f"cp\0{A}\0")
    removal = there.removal()
    removal.remove(plan.items)
    assert removal.removed == []
    assert removal.kept == [f"{MODEL} stays: process 71 () uses it"]
    assert there.at(MODEL).is_dir()


def test_an_environment_loses_its_name_before_its_files(there, monkeypatch):
    there.venv(VENV)
    seen = []
    monkeypatch.setattr(
        remove_host, "remove_tree", lambda path, **_: seen.append((path, there.at(f"/opt/vllm/{VENV}").exists()))
    )
    there.remove("environment", "0.32.0")
    assert seen[-1] == (str(there.at(f"/opt/vllm/.{VENV}.removed")), False)
    monkeypatch.undo()
    # Killed here: the next run finishes.
    assert [item.target for item in there.remove("environment", "0.32.0").removed] == [f"/opt/vllm/.{VENV}.removed"]
    assert os.listdir(there.at("/opt/vllm")) == []


@pytest.mark.parametrize("nth", range(1, 60))
def test_a_removal_that_is_killed_is_finished_by_the_next_run(there, monkeypatch, nth):
    full(there)
    left = [nth]

    def killed(real):
        def call(*args, **options):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return real(*args, **options)

        return call

    for name in ("unlink", "rename", "rmdir"):
        monkeypatch.setattr(os, name, killed(getattr(os, name)))
    with contextlib.suppress(Killed):
        there.remove("everything")
    monkeypatch.undo()
    there.remove("everything")
    assert there.files() == ["/etc/hosts"]


def test_directories_that_no_model_has_made_stay(there):
    """Such as lost+found, and the place of a mount that is not there now."""
    full(there)
    for name in ("lost+found", "backup", "scratch/alice"):
        there.at(f"/srv/models/{name}").mkdir(parents=True)
    there.remove("everything")
    assert sorted(os.listdir(there.at("/srv/models"))) == ["backup", "lost+found", "scratch"]
    assert there.at("/srv/models/scratch/alice").exists()


def test_what_killed_writers_left_beside_the_files_of_an_instance_goes_with_it(there):
    full(there)
    before = there.files()
    for path in ("/etc/vllm/.chat.secrets.0123456789ab.partial", "/etc/vllm/.chat.secrets.restored",
                 "/etc/systemd/system/.vllm@chat.service.0123456789ab.partial"):  # fmt: skip
        there.write(path, "VLLM_API_KEY=secret")
    there.write("/etc/vllm/.chat-b.secrets.restored", "of another instance")
    there.at("/etc/vllm/.chat.env.d.partial").mkdir()
    there.remove("instance", "chat")
    assert sorted(set(there.files()) - set(before)) == ["/etc/vllm/.chat-b.secrets.restored"]
    assert not [path for path in there.files() if "/.chat." in path or "/.vllm@chat" in path]


def gateway(there, mark):
    for path in ("/etc/haproxy/haproxy.cfg", "/etc/haproxy/gateway-agent.json", "/etc/haproxy/maps/keys.map",
                 "/etc/haproxy/certs/gateway.pem", "/etc/haproxy/certs/gateway.pem.key", "/etc/haproxy/errors/400.http",
                 "/etc/systemd/system/gateway-agent.service", "/usr/local/lib/gateway-tool.py",
                 "/etc/systemd/system/haproxy.service.d/50-gateway.conf", "/var/lib/haproxy/drained.json"):  # fmt: skip
        there.write(path, "x")
    there.write("/etc/keepalived/keepalived.conf", mark)


def test_a_gateway_stops_and_leaves_what_its_package_brought(there):
    gateway(there, "# role baremetal.inference.gateway\n")
    there.remove("everything")
    assert there.files() == ["/etc/haproxy/errors/400.http"]
    assert not there.at("/etc/haproxy/certs").exists()
    asked = there.systemd.asked()
    assert {"disable keepalived.service", "disable haproxy.service", "disable gateway-agent.service"} <= set(asked)


def test_data_that_systemd_keeps_in_its_private_directory_go_with_its_link(there):
    """As DynamicUser= and StateDirectory= leave it."""
    gateway(there, "# role baremetal.inference.gateway\n")
    before = there.plan("everything").items[0].size
    for name, file in (("gateway-usage", "usage.sqlite"), ("gateway-agent", "stops.json"), ("other", "x")):
        there.write(f"/var/lib/private/{name}/{file}", "x" * 100_000)
        there.at(f"/var/lib/{name}").symlink_to(f"private/{name}")
    assert there.plan("everything").items[0].size >= before + 200_000
    there.remove("everything")
    assert there.files() == ["/etc/haproxy/errors/400.http", "/var/lib/private/other/x"]
    assert (os.listdir(there.at("/var/lib/private")), there.at("/var/lib/other").exists()) == (["other"], True)


def test_a_keepalived_of_the_site_stays(there):
    gateway(there, "# mine\n")
    there.remove("everything")
    assert "/etc/keepalived/keepalived.conf" in there.files()
    assert "disable keepalived.service" not in there.systemd.asked()


INSTALLED = "installed nvidia-kernel-dkms\ninstalled bash\nconfig-files nvidia-smi\ninstalled docker.io\n"
DRIVER = ("/etc/modprobe.d/baremetal-nouveau.conf", "/var/lib/baremetal-cuda/rebooted")


def test_a_driver_goes_with_its_settings_when_it_is_asked_for(there):
    for path in (*DRIVER, "/etc/cdi/nvidia.yaml"):
        there.write(path, "x")
    there.commands = {"dpkg-query": (0, INSTALLED, ""), "dpkg": (0, "", ""), "update-initramfs": (0, "", "")}
    there.remove("everything")
    assert len(there.files()) == 3
    there.asked.clear()
    there.remove("everything", also=("driver",))
    assert there.files() == ["/etc/cdi/nvidia.yaml"]
    assert [each for each in there.asked if "dpkg-query" not in each and "--no-act" not in each] == [
        "dpkg --force-hold --purge nvidia-kernel-dkms",
        "update-initramfs -u -k all",
    ]


def test_a_driver_that_another_package_needs_stays(there):
    there.write(DRIVER[0], "x")
    there.commands = {"dpkg-query": (0, INSTALLED, ""), "dpkg": (1, "", "cuda-toolkit depends on nvidia-kernel-dkms")}
    removal = there.remove("everything", also=("driver",))
    assert removal.removed == []
    assert "cuda-toolkit depends" in there.plan("everything", also=("driver",)).kept[0]
    assert there.files() == [DRIVER[0]]


@pytest.mark.parametrize("owned", ["/srv/models/example", "/srv/models/example/tiny"])
def test_a_model_whose_directory_another_user_can_exchange_stays(there, owned):
    there.weights(A)
    before = there.plan("model", "example/tiny").items
    open_to_others(there.at(owned))
    plan = there.plan("model", "example/tiny")
    removal = there.removal()
    removal.remove(before)
    assert (plan.items, removal.removed, len(plan.kept)) == ((), [], 1)
    assert list(plan.kept) == removal.kept
    assert plan.kept[0].startswith(f"{MODEL} stays: another user can change it (")
    assert f" {there.at(owned)}); give that directory alone, not its files, to root" in plan.kept[0]
    assert not there.at("/srv/models/example/tiny/.lock").exists()
    # What only has a lock left too.
    there.write("/srv/models/other/tiny/.lock", "")
    open_to_others(there.at("/srv/models/other"))
    removal = there.removal()
    removal.remove([Item("model", "other/tiny", "/srv/models/other/tiny")])
    assert removal.removed == []
    assert there.at("/srv/models/other/tiny/.lock").exists()


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [("model", "example/tiny", MODEL), ("environment", "0.32.0", f"/opt/vllm/{VENV}")],
)
@pytest.mark.parametrize("below", ["", "/sub/shared"])
def test_nothing_is_removed_from_a_directory_in_which_something_is_mounted(there, tmp_path, kind, name, path, below):
    there.weights(A)
    there.venv(VENV)
    before, items = there.files(), there.plan(kind, name).items
    mounted(there, f"{path}{below}")
    assert there.plan(kind, name).items == ()
    assert there.plan(kind, name).kept == there.plan("everything").kept
    assert there.plan(kind, name).kept == (f"{path} stays: {path}{below} is mounted there",)
    # It was mounted after the plan.
    with bound(tmp_path / "shared", there.at(f"{path}{below}")):
        removal = there.removal()
        removal.remove(items)
        assert removal.removed == []
        assert removal.kept == [f"{path} stays: {there.at(path)}{below} is mounted there"]
        assert there.at(f"{path}{below}/file").exists()
    assert set(before) <= set(there.files())


def test_a_cache_in_which_something_is_mounted_stays_whole(there, tmp_path):
    full(there)
    with bound(tmp_path / "shared", there.at("/var/cache/vllm/chat/z/shared")):
        removal = there.remove("instance", "chat")
        assert removal.kept == [
            f"/var/cache/vllm/chat stays: {there.at('/var/cache/vllm/chat/z/shared')} is mounted there"
        ]
    assert there.at("/var/cache/vllm/chat/kernel").exists()
    assert not there.at("/etc/vllm/chat.env").exists()
