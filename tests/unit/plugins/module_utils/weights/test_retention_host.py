# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import processes_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_trees_host import walk_tree
from ansible_collections.baremetal.inference.plugins.module_utils.common.mounts_host import MountedError
from ansible_collections.baremetal.inference.plugins.module_utils.weights import retention_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.lock_host import lock_model_directory
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import Manifest, ManifestFile
from ansible_collections.baremetal.inference.plugins.module_utils.weights.owners_host import Owners
from ansible_collections.baremetal.inference.plugins.module_utils.weights.retention_host import (
    ROOTS_ALONE,
    Found,
    OldDirectory,
    UnknownUseError,
    find_prunable,
    find_superfluous,
    is_shared,
    linked_revisions,
    mark_served,
    remove_old,
)

from tests.fakes.mounts import bound
from tests.fakes.nested import make_nested
from tests.fakes.weights_store import open_to_others

A, B, C, D = (digit * 40 for digit in "abcd")
OLD = [Found(A, 1), Found(B, 2), Found(C, 3)]
WANTED = Manifest("example/tiny", D, (ManifestFile("config.json", 2, "0" * 64),))


@pytest.mark.parametrize(
    ("found", "used", "keep", "gone"),
    [
        (OLD, set(), 0, {A, B, C}),
        (OLD, set(), 1, {A, B}),
        (OLD, set(), 9, set()),
        # What an instance uses is counted before what is only newer, and stays whatever the number is.
        (OLD, {A}, 1, {B, C}),
        (OLD, {A, B}, 1, {C}),
        (OLD, {A, B, C}, 0, set()),
        ([Found(D, 1)], set(), 0, set()),
        ([Found(A)], set(), 0, set()),
        (
            [Found("main"), Found("lost+found", 5), Found(A[:39], 5), Found(A.upper(), 5), Found(A + "a", 5)],
            set(),
            0,
            set(),
        ),
        ([Found(f".{A}.partial"), Found(f".{B}.old")], set(), 9, {f".{A}.partial", f".{B}.old"}),
        ([Found(f".{A}.partial"), Found(f".{A}.old")], {A}, 0, set()),
        ([Found(f".{D}.partial"), Found(f".{D}.old")], set(), 0, set()),
        ([Found(f".{D}.old"), Found(D, 1)], set(), 0, {f".{D}.old"}),
        ([Found(f".{A}.removed"), Found(f".{D}.removed")], {A}, 9, {f".{A}.removed", f".{D}.removed"}),
        ([Found(f".{A}.other"), Found(f"{A}.partial"), Found(f".{A}.partial\n")], set(), 0, set()),
    ],
)
def test_what_nobody_may_use_goes(found, used, keep, gone):
    assert set(find_superfluous(found, {D}, used, keep)) == gone


@pytest.fixture
def store(tmp_path):
    """A repository with a wanted revision and three old ones, the newest last; nothing runs on this host."""
    for age, revision in enumerate((A, B, C, D)):
        directory = tmp_path / "models/example/tiny" / revision
        directory.mkdir(parents=True)
        (directory / "model.safetensors").write_bytes(b"x" * 5000)
        (directory / ".verified.json").write_text("{}")
        os.utime(directory / ".verified.json", (age, age + 1))
    (tmp_path / "state").mkdir()
    mounts(tmp_path, "1 0 8:1 / / rw - ext4 /dev/sda1 rw")
    return tmp_path


def mounts(store, *lines):
    (store / "proc/self").mkdir(parents=True, exist_ok=True)
    (store / "proc/self/mountinfo").write_text("".join(f"{line}\n" for line in lines))


def instance(store, name, revision):
    (store / "state" / name).mkdir()
    (store / "state" / name / "model").symlink_to(store / "models/example/tiny" / revision)


def process(store, **files):
    directory = store / "proc/42"
    (directory / "fd").mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def owners(store):
    return Owners(str(store / "models"))


def names(directory):
    """What lies in a repository beside the lock, which stays."""
    return sorted(name for name in os.listdir(directory) if name != ".lock")


def look(store, keep=0, **options):
    found = find_prunable(
        str(store / "models"), [WANTED], keep, str(store / "state"), proc=str(store / "proc"), **options
    )
    return [os.path.basename(old.path) for old in found]


def test_newest_stays_and_sizes_are_told(store):
    found = find_prunable(str(store / "models"), [WANTED], 1, str(store / "state"), proc=str(store / "proc"))
    tiny = store / "models/example/tiny"
    assert found[0] == OldDirectory(str(tiny / A), "revision", 12288)
    assert [old.path for old in found] == [str(tiny / A), str(tiny / B)]
    for old in found:
        assert remove_old(old, owners(store))
    assert names(tiny) == [C, D]
    assert look(store, keep=1) == []


def test_a_negative_number_keeps_all(store):
    assert look(store, keep=-1) == []


@pytest.mark.parametrize("where", ["", "/sub"])
def test_revision_of_an_instance_stays_running_or_not(store, where):
    (store / "models/example/tiny" / A / "sub").mkdir()
    instance(store, "chat", f"{A}{where}")
    assert linked_revisions(str(store / "models/example/tiny"), str(store / "state")) == {A}
    assert look(store) == [B, C]


@pytest.mark.parametrize("slot", ["0123456789abcdef", ".0123456789abcdef.partial"])
def test_revision_that_an_instance_can_go_back_to_stays(store, slot):
    instance(store, "chat", C)
    (store / "state/chat/slots" / slot).mkdir(parents=True)
    (store / "state/chat/slots" / slot / "model").symlink_to(store / "models/example/tiny" / A)
    assert linked_revisions(str(store / "models/example/tiny"), str(store / "state")) == {A, C}
    assert look(store) == [B]
    # What is served is what is left last; a state that was kept is not served anew by every run.
    mark_served(str(store / "models"), [WANTED], str(store / "state"))
    ages = {name: (store / "models/example/tiny" / name / ".verified.json").stat().st_mtime for name in (A, C)}
    assert ages[A] == 1 and ages[C] > 100


def test_revision_that_is_reached_through_another_link_stays(store):
    (store / "shelf").symlink_to(store / "models")
    (store / "state/chat").mkdir()
    (store / "state/chat/model").symlink_to(store / "shelf/example/tiny" / A)
    assert look(store) == [B, C]


@pytest.mark.parametrize(
    "files",
    [
        {"cmdline": f"vllm\0serve\0/srv/models/example/tiny/{A}\0"},
        {"maps": f"7f00-7f01 r--s 0 08:01 9 /srv/models/example/tiny/{A}/model.safetensors\n"},
    ],
)
def test_revision_that_a_process_names_stays(store, files):
    process(store, **files)
    assert look(store) == [B, C]


def test_nothing_is_removed_beside_a_process_that_may_use_anything(store, monkeypatch):
    process(store, cmdline="x" * 9)
    assert look(store) == [A, B, C]
    monkeypatch.setattr(processes_host, "MOST_WORDS", 8)
    with pytest.raises(UnknownUseError, match=r"because process [0-9]+ may use any"):
        look(store)


def test_revision_with_an_open_file_stays(store):
    (process(store) / "fd/3").symlink_to(store / "models/example/tiny" / A / "model.safetensors")
    assert look(store) == [B, C]


def test_revision_of_a_real_process_stays(store):
    # Tests that run at the same time name revisions such as A in their processes, so these two are unlike all others.
    served, unused = secrets.token_hex(20), secrets.token_hex(20)
    for old, new in ((A, served), (B, unused)):
        (store / "models/example/tiny" / old).rename(store / "models/example/tiny" / new)
    program = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(store / "models/example/tiny" / served)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        running.stdout.readline()
        found = find_prunable(str(store / "models"), [WANTED], 0, str(store / "state"), shared=False)
        running.communicate()
    names = [os.path.basename(old.path) for old in found]
    assert unused in names
    assert served not in names


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "ceph", "gpfs", "beegfs", "fuse.s3fs", "9p", "unheard_of"])
def test_a_shared_store_keeps_all(store, kind):
    root = "1 0 8:1 / / rw - ext4 /dev/sda1 rw"
    mounts(store, root, f"2 1 0:5 / {store}/models rw shared:1 - {kind} host:/export rw")
    assert look(store) == []
    assert look(store, shared=False) == [A, B, C]


def test_a_local_store_is_shared_when_it_is_said_to_be(store):
    assert look(store, shared=True) == []


def test_the_last_mount_on_the_longest_path_counts(store):
    place = store / "a b/models"
    place.mkdir(parents=True)
    escaped = str(store / "a b").replace(" ", r"\040")
    proc = str(store / "proc")
    mounts(store, f"2 1 0:5 / {escaped} rw - nfs4 h:/ rw", "1 0 8:1 / / rw - ext4 /dev/sda1 rw")
    assert is_shared(str(place), proc)
    assert not is_shared(str(store / "a"), proc)
    # A user may name a mount so. The kernel escapes blanks, tabs, line feeds and backslashes only.
    odd = [f"4 1 0:7 / /home/x\r{sign}y rw - fuse f rw" for sign in "\x0b\x85\u2028"]
    mounts(store, f"2 1 0:5 / {escaped} rw - nfs4 h:/ rw", *odd, "1 0 8:1 / / rw - ext4 /dev/sda1 rw")
    assert is_shared(str(place), proc)
    mounts(store, f"2 1 0:5 / {escaped} rw - nfs4 h:/ rw", f"3 2 0:6 / {escaped} rw - xfs /dev/sdb rw")
    assert not is_shared(str(place), proc)


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0", "\u2028"])
def test_the_name_of_a_user_s_mount_says_nothing_about_others(store, end):
    """A user chooses where his FUSE file system lies; the kernel escapes blanks, tabs and line breaks of it only."""
    forged = end.join(("", "1", "1", "0:1", "/", str(store / "models"), "rw"))
    mounts(store, "1 0 8:1 / / rw - ext4 /dev/sda1 rw", f"2 0 0:9 / /home/eve/{end}a rw - fuse.x x rw")
    assert not is_shared(str(store / "models"), str(store / "proc"))
    mounts(store, "1 0 8:1 / / rw - ext4 /dev/sda1 rw", f"2 0 0:9 / /home/eve/{end}{forged} rw - fuse.x x rw")
    assert not is_shared(str(store / "models"), str(store / "proc"))


def test_a_store_of_which_nothing_is_known_is_shared(tmp_path):
    assert is_shared(str(tmp_path), str(tmp_path / "no-proc"))


def test_symlink_in_the_place_of_a_revision_is_left_alone(store, tmp_path):
    tiny = store / "models/example/tiny"
    shutil.move(tiny / A, tmp_path / "elsewhere")
    (tiny / A).symlink_to(tmp_path / "elsewhere")
    assert look(store) == [B, C]


def test_another_repository_is_left_alone(store):
    shutil.copytree(store / "models/example/tiny", store / "models/example/other")
    assert look(store) == [A, B, C]
    assert sorted(os.listdir(store / "models/example/other")) == [A, B, C, D]


def test_nothing_is_removed_while_another_run_fetches(store):
    tiny = store / "models/example/tiny"
    with lock_model_directory(str(tiny)):
        assert not remove_old(OldDirectory(str(tiny / A), "revision", 0), owners(store))
    assert (tiny / A / ".verified.json").exists()
    assert remove_old(OldDirectory(str(tiny / A), "revision", 0), owners(store))


def test_a_revision_that_its_owner_made_thousands_of_levels_deep_is_measured_and_removed(store):
    tiny = store / "models/example/tiny"
    make_nested(tiny / A / "d")
    found = find_prunable(str(store / "models"), [WANTED], 2, str(store / "state"), False, str(store / "proc"))
    assert [os.path.basename(old.path) for old in found] == [A]
    assert remove_old(found[0], owners(store))
    assert names(tiny) == [B, C, D]
    make_nested(tiny / f".{B}.removed")
    assert remove_old(OldDirectory(str(tiny / B), "revision", 0), owners(store))
    assert names(tiny) == [C, D]


def test_what_another_run_has_taken_away_is_no_error(store):
    assert not remove_old(OldDirectory(str(store / "models/example/tiny" / f".{A}.old"), "abandoned", 0), owners(store))
    assert not remove_old(OldDirectory(str(store / "models/example/none" / A), "revision", 0), owners(store))


def test_a_removal_that_broke_off_is_finished(store, monkeypatch):
    tiny = store / "models/example/tiny"

    def killed(path, **_options):
        if os.path.exists(path):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(retention_host, "remove_tree", killed)
        remove_old(OldDirectory(str(tiny / A), "revision", 0), owners(store))
    assert names(tiny) == [f".{A}.removed", B, C, D]
    assert look(store, keep=9) == [f".{A}.removed"]
    for old in find_prunable(str(store / "models"), [WANTED], 9, str(store / "state"), shared=False):
        remove_old(old, owners(store))
    assert names(tiny) == [B, C, D]


def test_the_revision_that_served_last_is_the_one_to_go_back_to(store):
    """A serves, B and C were never started: when D comes, A is kept, also after the instance has moved."""
    instance(store, "chat", A)
    mark_served(str(store / "models"), [WANTED], str(store / "state"))
    assert look(store, keep=1) == [B, C]
    (store / "state/chat/model").unlink()
    (store / "state/chat/model").symlink_to(store / "models/example/tiny" / D)
    assert look(store, keep=1) == [B, C]


def test_a_revision_in_service_that_is_wanted_is_not_touched(store):
    instance(store, "chat", D)
    before = (store / "models/example/tiny" / D / ".verified.json").stat().st_mtime_ns
    mark_served(str(store / "models"), [WANTED], str(store / "state"))
    assert (store / "models/example/tiny" / D / ".verified.json").stat().st_mtime_ns == before


def test_a_host_without_the_repository_has_nothing_to_remove(tmp_path):
    assert find_prunable(str(tmp_path / "models"), [WANTED], 0, str(tmp_path / "state")) == []


def test_links_that_a_repair_shares_with_the_published_files_give_nothing_back(store):
    tiny = store / "models/example/tiny"
    partial = tiny / f".{A}.partial"
    partial.mkdir()
    os.link(tiny / A / "model.safetensors", partial / "model.safetensors")
    found = find_prunable(str(store / "models"), [WANTED], 9, str(store / "state"), proc=str(store / "proc"))
    assert found == [OldDirectory(str(partial), "abandoned", 0)]


def warned(store, keep=0, **options):
    """What may go, and the warnings."""
    said = []
    return look(store, keep, warn=said.append, **options), said


@pytest.mark.parametrize("place", ["models/example", "models/example/tiny"])
def test_root_works_in_no_directory_that_another_user_can_exchange(store, place):
    """Its owner can rename it at any time and put a link to another model there."""
    instance(store, "chat", A)
    open_to_others(store / place)
    gone, said = warned(store)
    assert gone == []
    assert len(said) == 1
    assert said[0].startswith(f"{store}/models/example/tiny: no old revision is removed, because ")
    assert said[0].endswith(f" {store}/{place}; {ROOTS_ALONE}")
    tiny = store / "models/example/tiny"
    assert not remove_old(OldDirectory(str(tiny / B), "revision", 0), owners(store))
    mark_served(str(store / "models"), [WANTED], str(store / "state"))
    assert sorted(os.listdir(tiny)) == [A, B, C, D], "no lock either"
    assert (tiny / A / ".verified.json").stat().st_mtime == 1
    # Without anything to remove there is nothing to say.
    assert warned(store, keep=9) == ([], [])


@pytest.mark.parametrize("below", [A, f"{A}/sub", f".{A}.removed/sub"])
@pytest.mark.parametrize("kind", ["nfs4", "ext4"])
def test_a_revision_in_which_something_is_mounted_stays(store, below, kind):
    tiny = store / "models/example/tiny"
    (tiny / below).mkdir(parents=True, exist_ok=True)
    place = tiny / below
    mounts(store, "1 0 8:1 / / rw - ext4 /dev/sda1 rw", f"2 1 0:5 / {place} rw - {kind} x rw")
    gone, said = warned(store, shared=False)
    assert gone == [B, C]
    assert f"{tiny}/{A}: not removed, because {place} is mounted there; run umount {place} first" in said


@pytest.mark.parametrize("below", ["", "/sub"])
def test_nothing_of_a_real_mount_in_a_revision_is_removed_or_renamed(store, below):
    place = store / "models/example/tiny" / f"{A}{below}"
    with bound(store / "shared", place):
        with pytest.raises(MountedError, match=f"because {place} is mounted there"):
            remove_old(OldDirectory(str(store / "models/example/tiny" / A), "revision", 0), owners(store))
        assert (place / "file").exists()
    assert names(store / "models/example/tiny") == [A, B, C, D]


def test_what_the_owner_of_a_revision_takes_away_while_it_is_measured_counts_nothing(store, monkeypatch):
    def walked(top):
        for parent, below, names in walk_tree(top):
            yield parent, below, [*names, "gone"]

    monkeypatch.setattr(retention_host, "walk_tree", walked)
    assert look(store) == [A, B, C]
