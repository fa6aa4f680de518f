# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in's kernel: DKMS, modprobe, rmmod and modinfo do what the real ones do, and fail like them."""

from __future__ import annotations

import pytest

from tests.standins import daemons, modules, trees
from tests.standins.packages import dkms_conf
from tests.standins.place import Machine, Place
from tests.standins.tool import answer

KERNEL, OTHER = "6.1.0-40-amd64", "6.1.0-41-amd64"
NEEDS = {"nvidia": "", "nvidia_uvm": "nvidia"}
OLD, NEW = "580.95.05", "580.159.04"


def source(place, version, **more):
    """Put a driver's source where its package has it."""
    file = place.root / f"usr/src/nvidia-{version}/dkms.conf"
    file.parent.mkdir(parents=True)
    file.write_text(dkms_conf("nvidia", version, NEEDS, **{"LICENSE": "Dual MIT/GPL", **more}))


def headers(place, kernel):
    (place.root / "lib/modules" / kernel / "build").mkdir(parents=True)


@pytest.fixture
def place(tmp_path):
    """A host with four L40S, headers of its kernel, and the source of a driver."""
    host = Place(tmp_path)
    trees.write_machine(host, Machine.load("l40s_pcie"))
    headers(host, KERNEL)
    source(host, OLD)
    return host


def status(place):
    return answer("dkms", ["status"], place).out.splitlines()


def loaded(place):
    return sorted(path.name for path in (place.sys / "module").iterdir() if path.name.startswith("nvidia"))


def install(place, version=OLD):
    return answer("dkms", ["standin-install", "nvidia", version], place)


def test_a_package_builds_for_each_kernel_with_headers(place):
    headers(place, OTHER)
    assert install(place).rc == 0
    assert status(place) == [f"nvidia/{OLD}, {kernel}, x86_64: installed" for kernel in (KERNEL, OTHER)]


def test_a_kernel_without_headers_is_skipped_and_named(place):
    (place.root / "lib/modules" / OTHER).mkdir()
    done = install(place)
    assert done.rc == 0
    assert f"Module build for kernel {OTHER} was skipped" in done.out
    assert status(place) == [f"nvidia/{OLD}, {KERNEL}, x86_64: installed"]
    failed = answer("dkms", ["install", f"nvidia/{OLD}", "-k", OTHER], place)
    assert failed.rc == 21
    assert f"linux-headers-{OTHER}" in failed.err


@pytest.mark.parametrize(("only", "failing"), [("", True), (KERNEL, True), (OTHER, False)])
def test_a_build_that_fails_leaves_a_log(place, only, failing):
    (place.state / "build-fails").write_text(only)
    done = install(place)
    log = place.root / f"var/lib/dkms/nvidia/{OLD}/build/make.log"
    assert (done.rc, log.exists()) == ((10, True) if failing else (0, False))
    if failing:
        assert "Bad return status for module build" in done.err
        assert "error: implicit declaration" in log.read_text()
        assert status(place) == [f"nvidia/{OLD}: added"]
        (place.state / "build-fails").unlink()
        assert answer("dkms", ["autoinstall", "-k", KERNEL], place).rc == 0
        assert not log.exists()


def test_modinfo_says_what_is_on_disk_for_a_kernel(place):
    install(place)
    lines = dict(line.split(":", 1) for line in answer("modinfo", ["-k", KERNEL, "nvidia"], place).out.splitlines())
    said = {key: value.strip() for key, value in lines.items()}
    assert said["version"] == OLD
    assert said["vermagic"].split()[0] == KERNEL
    assert said["filename"] == f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
    assert answer("modinfo", ["-F", "version", "nvidia"], place).out == f"{OLD}\n"
    missing = answer("modinfo", ["-k", OTHER, "nvidia"], place)
    assert (missing.rc, missing.err) == (1, "modinfo: ERROR: Module nvidia not found.\n")


def test_modprobe_loads_what_is_needed_too_and_the_tree_shows_it(place):
    assert answer("modprobe", ["nvidia_uvm"], place).rc == 1
    install(place)
    assert answer("modprobe", ["nvidia_uvm"], place).rc == 0
    assert loaded(place) == ["nvidia", "nvidia_uvm"]
    assert place.read("sys/module/nvidia/version") == OLD
    assert (
        place.read("sys/module/nvidia/srcversion") == answer("modinfo", ["-F", "srcversion", "nvidia"], place).out[:-1]
    )
    assert "Open Kernel Module" in place.read("proc/driver/nvidia/version")
    assert len(list((place.proc / "driver/nvidia/gpus").iterdir())) == 4


@pytest.mark.parametrize(
    ("tool", "argv", "words"),
    [
        ("modprobe", ["-r", "nvidia"], "modprobe: FATAL: Module nvidia is in use.\n"),
        ("rmmod", ["nvidia"], "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm\n"),
        ("rmmod", ["nvidia_drm"], "rmmod: ERROR: Module nvidia_drm is not currently loaded\n"),
    ],
)
def test_what_another_module_needs_stays(place, tool, argv, words):
    install(place)
    answer("modprobe", ["nvidia_uvm"], place)
    done = answer(tool, argv, place)
    assert (done.rc, done.err) == (1, words)
    assert loaded(place) == ["nvidia", "nvidia_uvm"]


def test_modprobe_takes_away_what_nothing_needs_any_more_and_rmmod_does_not(place):
    install(place)
    answer("modprobe", ["nvidia_uvm"], place)
    assert answer("rmmod", ["nvidia_uvm"], place).rc == 0
    assert loaded(place) == ["nvidia"]
    answer("modprobe", ["nvidia_uvm"], place)
    assert answer("modprobe", ["-r", "nvidia_uvm"], place).rc == 0
    assert loaded(place) == []
    assert not (place.proc / "driver").exists()


def test_what_a_program_has_open_stays(place):
    install(place)
    answer("modprobe", ["nvidia"], place)
    daemons.enter(place, 4711, "trainer", ["/dev/nvidia0"], cgroup="0::/user.slice")
    done = answer("rmmod", ["nvidia"], place)
    assert (done.rc, done.err) == (1, "rmmod: ERROR: Module nvidia is in use\n")
    daemons.leave(place, 4711, "trainer")
    assert answer("rmmod", ["nvidia"], place).rc == 0
    (place.state / "users").write_text("1")
    answer("modprobe", ["nvidia"], place)
    assert answer("rmmod", ["nvidia"], place).rc == 1


def test_an_upgrade_shows_on_disk_and_in_the_kernel_only_after_a_reload_or_a_boot(place):
    install(place)
    answer("modprobe", ["nvidia"], place)
    answer("dkms", ["remove", f"nvidia/{OLD}", "--all"], place)
    source(place, NEW)
    install(place, NEW)
    assert answer("modinfo", ["-F", "version", "nvidia"], place).out == f"{NEW}\n"
    assert place.read("sys/module/nvidia/version") == OLD
    trees.boot(place, KERNEL)
    assert place.read("sys/module/nvidia/version") == NEW


def test_a_kernel_that_has_no_module_boots_without_it(place):
    install(place)
    trees.boot(place, OTHER)
    assert loaded(place) == []
    assert answer("modprobe", ["nvidia"], place).err.startswith("modprobe: FATAL: Module nvidia not found in directory")


def test_a_module_may_have_another_version_than_its_package(place):
    source(place, "6.16.6-1", MODULE_VERSION="6.16.6")
    install(place, "6.16.6-1")
    assert answer("modinfo", ["-F", "version", "nvidia"], place).out == "6.16.6\n"


def test_calls_are_written_down_in_order_and_questions_are_not(place):
    install(place)
    answer("modinfo", ["nvidia"], place)
    status(place)
    answer("modprobe", ["nvidia"], place)
    assert (place.state / "log").read_text().splitlines() == [f"dkms standin-install nvidia {OLD}", "modprobe nvidia"]


def test_any_tool_fails_where_it_is_told_to(place):
    (place.state / "modprobe-fails").write_text(
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    )
    assert answer("modprobe", ["nvidia"], place).rc == 1
    assert modules.loaded(place, "nvidia") is False
