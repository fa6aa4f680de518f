# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin and modules as a user runs them, on this machine with trees and tools of other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.cuda.plan import NOUVEAU, PERSISTENCE

from tests.fakes.actions import play_by_ansible, run_play
from tests.fakes.nvidia import DPKG, KERNEL, VERSION, add_process, add_switches, h200_host, tool, write
from tests.fakes.sysfs import write_procfs

BOOT = "proc/sys/kernel/random/boot_id"
HERE = Path("/proc/sys/kernel/random/boot_id").read_text()
MARK = "var/lib/baremetal-cuda/rebooted"
NOUVEAU_REASON = "nouveau is loaded and holds the chips"
PLAY = """
- hosts: all
  gather_facts: false
  environment:
    PATH: "{{ tree }}/bin:/usr/bin:/bin"
  tasks:
    - block:
        - baremetal.inference.accelerator_info:
            sysfs_root: "{{ tree }}/sys"
            proc_root: "{{ tree }}/proc"
        - baremetal.inference.driver_plan:
            stack: cuda
            detected: "{{ ansible_facts.accelerator_detected }}"
            release: "{{ release | default('0.33.0') }}"
            release_path: ["{{ releases }}"]
            policy: "{{ policy | default('retain') }}"
            version: "{{ version | default('') }}"
            reboot_allowed: "{{ allowed | default(false) }}"
            resolve: "{{ resolve | default(false) }}"
            root: "{{ tree }}"
            sysfs_root: "{{ tree }}/sys"
            proc_root: "{{ tree }}/proc"
          register: planned
"""
MADISON = "".join(
    f" nvidia-dkms-580-open | {version}-0ubuntu1 | x\n" for version in ("580.95.05", "580.178.04", "575.57.08")
)


def fresh(tree):
    """A host before the driver came."""
    for path in ("module/nvidia/version", "module/nvidia/srcversion"):
        (tree / "sys" / path).unlink()
    (tree / "sys/module/nvidia").rmdir()
    (tree / "proc/driver/nvidia/version").unlink()
    kernel_only = "".join(line for line in DPKG.splitlines(True) if "linux-image" in line)
    tool(tree / "bin", "dpkg-query", ("--show*", 0, kernel_only, ""))
    tool(tree / "bin", "apt-mark", ("showhold", 0, "", ""))
    tool(tree / "bin", "apt-cache", ("'madison nvidia-dkms-580-open'", 0, MADISON, ""))


def with_nouveau(tree):
    (tree / "sys/module/nvidia").rename(tree / "sys/module/nouveau")
    (tree / "proc/driver/nvidia/version").unlink()


def configured(tree):
    """Write the files that the role leaves on a host."""
    for file in (NOUVEAU, PERSISTENCE):
        write(tree / file.path.lstrip("/"), file.content)


def rebooted(tree):
    with_nouveau(tree)
    write(tree / MARK, f"the boot before\n{NOUVEAU_REASON}\n")


def rebooted_for_something_else(tree):
    with_nouveau(tree)
    write(tree / MARK, "the boot before\nanother reason\n")


def power_went(tree):
    with_nouveau(tree)
    write(tree / MARK, f"this boot\n{NOUVEAU_REASON}\n")


def on_the_controllers_kernel(tree):
    with_nouveau(tree)
    write(tree / BOOT, HERE)


def loosened(tree):
    configured(tree)
    tool(tree / "bin", "apt-mark", ("showhold", 0, "nvidia-open\n", ""))


def stopped(tree):
    tool(tree / "bin", "systemctl", ("is-active*", 3, "inactive\n", ""))


def upgradable(tree):
    configured(tree)
    madison = " nvidia-dkms-open | 595.45.04-0ubuntu1 | x\n"
    tool(tree / "bin", "apt-cache", ("'madison nvidia-dkms-open'", 0, madison, ""))


def serving(tree):
    upgradable(tree)
    units = [f"{unit} loaded active running x\n" for unit in ("nvidia-persistenced.service", "vllm@chat.service")]
    tool(tree / "bin", "systemctl", ("is-active*", 0, "active\n", ""), ("list-units*", 0, "".join(units), ""))
    add_process(tree, 900, "nvidia-persiste", "nvidia-persistenced.service")
    add_process(tree, 4242, "VLLM::EngineCor", "docker-0a1b2c.scope")


def training(tree):
    serving(tree)
    add_process(tree, 5000, "python3", "user@1000.service")


def container_left_behind(tree):
    upgradable(tree)
    add_process(tree, 4242, "VLLM::EngineCor", "docker-0a1b2c.scope")


def unfinished(tree):
    upgradable(tree)
    tool(tree / "bin", "dpkg-query", ("--show*", 0, DPKG + "iF \tnvidia-utils-580\t580.159.04-0ubuntu1\n", ""))


UPGRADE = {"policy": "install", "version": "595", "resolve": True}
# Of each host: what makes it what it is, and what its inventory says.
HOSTS = {
    "settled": (configured, {}),
    "bare": (lambda tree: None, {}),
    "stopped": (stopped, {}),
    "loosened": (loosened, {}),
    "fresh": (fresh, {"resolve": True}),
    "fresh_unresolved": (fresh, {}),
    "switches": (lambda tree: (configured(tree), add_switches(tree)), {}),
    "too_old": (configured, {"release": "next", "version": ""}),
    "gone": (fresh, {"resolve": True, "version": "580.65.06"}),
    "cpu_release": (configured, {"release": "cpu_only"}),
    "upgrade": (upgradable, UPGRADE),
    "serving": (serving, UPGRADE),
    "training": (training, UPGRADE),
    "left_behind": (container_left_behind, UPGRADE),
    "unfinished": (unfinished, UPGRADE),
    "upgrade_allowed": (upgradable, {**UPGRADE, "allowed": True}),
    "nouveau": (with_nouveau, {}),
    "nouveau_allowed": (with_nouveau, {"allowed": True}),
    "nouveau_again": (rebooted, {"allowed": True}),
    "nouveau_other": (rebooted_for_something_else, {"allowed": True}),
    "nouveau_power": (power_went, {"allowed": True}),
    "nouveau_here": (on_the_controllers_kernel, {"allowed": True}),
}
NEXT_RELEASE = """
vllm: "0.99.0"
stacks: {cuda: {runtime: container, image: "example/vllm:1", entrypoint: image, minimum_driver: "999.1"}}
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Make all hosts; return their variables."""
    root = tmp_path_factory.mktemp("fleet")
    write(root / "releases/next.yml", NEXT_RELEASE)
    write(root / "releases/cpu_only.yml", 'vllm: "0.33.0"\nstacks: {cpu: {runtime: container, image: "a:b"}}\n')
    hosts = {}
    for name, (make, variables) in HOSTS.items():
        tree = root / name
        # The processor's files first, as their writer makes the directory.
        write_procfs(tree / "proc")
        h200_host(tree)
        write(tree / BOOT, "this boot\n")
        make(tree)
        hosts[name] = {**variables, "tree": str(tree), "releases": str(root / "releases")}
    return hosts


@pytest.fixture(scope="module")
def fleet(hosts):
    """Return what each host got."""
    return {name: run_play(PLAY, name, variables) for name, variables in hosts.items()}


def test_ansible_comes_to_the_same(hosts, fleet, tmp_path):
    found = play_by_ansible(tmp_path, PLAY, {name: hosts[name] for name in ("fresh", "too_old")})
    assert found == {name: fleet[name] for name in found}


def planned(fleet, name):
    assert fleet[name]["failure"] is None
    return fleet[name]["planned"]


def test_a_host_on_which_all_is_done_has_nothing_to_do(fleet):
    result = planned(fleet, "settled")
    assert result["changes"] is False
    assert not any(result["plan"].values())
    assert (result["driver"]["version"], result["fabric"], result["manager"]) == (VERSION, "none", "apt")
    assert result["minimum_driver"] == "580.65.06"
    assert result["no_reboot"] is None


def test_only_what_is_missing_is_in_the_plan(fleet):
    assert [file["path"] for file in planned(fleet, "stopped")["plan"]["files"]] == [NOUVEAU.path, PERSISTENCE.path]
    loosened_plan = planned(fleet, "loosened")["plan"]
    assert {key: value for key, value in loosened_plan.items() if value} == {"hold": ["nvidia-dkms-580-open"]}


def test_a_driver_that_works_gets_no_file_and_no_initramfs(fleet):
    result = planned(fleet, "bare")
    assert result["changes"] is False
    assert not any(result["plan"].values())


def test_a_driver_is_taken_out_of_use_before_another_comes(fleet):
    plan = planned(fleet, "upgrade")["plan"]
    assert plan["stop"] == ["nvidia-persistenced.service"]
    assert plan["unload"] == ["nvidia"]
    assert plan["packages"]
    assert "cuda_reboot_allowed is false" in planned(fleet, "upgrade")["no_reboot"]


def test_instances_stop_before_the_daemons_that_they_need(fleet):
    assert planned(fleet, "serving")["plan"]["stop"] == ["vllm@chat.service", "nvidia-persistenced.service"]


def test_an_installation_that_was_cut_off_is_ended_first(fleet):
    assert planned(fleet, "unfinished")["plan"]["recover"] == ["nvidia-utils-580"]


def test_a_fresh_host_gets_exact_versions(fleet):
    plan = planned(fleet, "fresh")["plan"]
    assert plan["packages"] == [
        f"linux-headers-{KERNEL}",
        "dkms",
        "nvidia-driver-pinning-580",
        "nvidia-dkms-580-open=580.178.04-*",
        "nvidia-open=580.178.04-*",
    ]
    assert plan["finish"] == [["update-initramfs", "-u", "-k", "all"], ["modprobe", "nvidia"]]
    (repository,) = plan["repositories"]
    base = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/"
    assert repository == {
        "key": f"{base}3bf863cc.pub",
        "key_path": "/etc/apt/keyrings/cuda-3bf863cc.asc",
        "path": "/etc/apt/sources.list.d/cuda-ubuntu2404.sources",
        "content": f"Types: deb\nURIs: {base}\nSuites: /\nSigned-By: /etc/apt/keyrings/cuda-3bf863cc.asc\n",
    }
    # Nothing of it is installed yet.
    assert plan["hold"] == []
    assert "nvidia-open=580.*" in planned(fleet, "fresh_unresolved")["plan"]["packages"]


def test_switches_bring_the_fabric_manager_of_the_loaded_driver(fleet):
    result = planned(fleet, "switches")
    assert result["fabric"] == "nvswitch"
    assert result["plan"]["packages"] == [f"nvidia-fabricmanager={VERSION}-*", f"libnvidia-nscq={VERSION}-*"]
    assert result["plan"]["services"] == ["nvidia-fabricmanager"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("too_old", f"too_old: driver {VERSION} is on the host, release next needs 999.1 or newer, and cuda_policy is"),
        ("gone", "gone: the repository has no driver 580.65.06; it has 575.57.08, 580.178.04, 580.95.05"),
        (
            "training",
            f"training: driver {VERSION} is to be replaced, and process 5000 (python3 of user@1000.service) has "
            "/dev/nvidia0 open; stop every program that is not a vLLM instance, then run again",
        ),
        (
            "left_behind",
            f"left_behind: driver {VERSION} is to be replaced, and process 4242 (VLLM::EngineCor of docker-",
        ),
        (
            "cpu_release",
            "cpu_release: vLLM release 'cpu_only' does not say which NVIDIA driver it needs; set cuda_version to a "
            'driver branch such as "580", or set vllm_release (cuda_release) to another release',
        ),
    ],
)
def test_what_cannot_be_had_is_an_error_of_the_host(fleet, name, sentence):
    assert fleet[name]["failure"].startswith(sentence)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nouveau", f"a reboot is needed ({NOUVEAU_REASON}), and cuda_reboot_allowed is false"),
        ("nouveau_again", f"the host was already rebooted for this, without success: {NOUVEAU_REASON}"),
        (
            "nouveau_here",
            f"a reboot is needed ({NOUVEAU_REASON}), and this host is the controller or runs on its kernel",
        ),
    ],
)
def test_a_reboot_that_must_not_be_made(fleet, name, why):
    result = planned(fleet, name)
    assert result["plan"]["reboot"] == [NOUVEAU_REASON]
    assert result["no_reboot"].startswith(why)


@pytest.mark.parametrize("name", ["nouveau_allowed", "nouveau_other", "nouveau_power"])
def test_a_reboot_that_may_be_made(fleet, name):
    result = planned(fleet, name)
    assert result["no_reboot"] is None
    assert result["mark"] == {"path": f"/{MARK}", "content": f"this boot\n{NOUVEAU_REASON}\n"}
    # What needs the driver cannot start before.
    assert result["plan"]["services"] == []


def test_a_driver_is_replaced_where_the_reboot_may_follow(fleet):
    result = planned(fleet, "upgrade_allowed")
    assert "nvidia-open=595.45.04-*" in result["plan"]["packages"]
    assert result["plan"]["remove"] == ["nvidia-dkms-580-open"]
    assert (len(result["plan"]["reboot"]), result["no_reboot"]) == (1, None)
