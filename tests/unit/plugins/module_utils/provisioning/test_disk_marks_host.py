# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning import disk_marks_host
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning.disk_marks_host import (
    contents,
    marker_in,
    markers_below,
    refusal,
)


def test_a_marker_is_read_without_following_links_or_waiting(tmp_path):
    assert marker_in(str(tmp_path)) == ""
    place = tmp_path / "etc/baremetal-inference"
    place.mkdir(parents=True)
    os.mkfifo(place / "host")
    assert marker_in(str(tmp_path)) == "unreadable"
    (place / "host").unlink()
    (place / "host").write_text("gpu-01\n" + "x" * 1000)
    assert marker_in(str(tmp_path)).startswith("gpu-01")
    assert len(marker_in(str(tmp_path))) <= 200
    (place / "host").write_text("")
    assert marker_in(str(tmp_path)) == "unreadable"
    (place / "host").unlink()
    (place / "host").symlink_to("/etc/hostname")
    assert marker_in(str(tmp_path)) == "unreadable"


def test_a_mark_that_cannot_be_read_needs_a_release(monkeypatch):
    monkeypatch.setattr(disk_marks_host, "contents", lambda _device: [("/dev/sda2", "ext4")])
    monkeypatch.setattr(disk_marks_host, "markers_on", lambda *_names: [disk_marks_host.UNREADABLE])
    assert "this guard cannot see what it holds; release the host" in refusal("/dev/sda", "")
    assert refusal("/dev/sda", "gpu-01") == ""


@pytest.mark.parametrize(("kind", "make"), [("ext4", "mkfs.ext4"), ("xfs", "mkfs.xfs")])
def test_the_disk_that_lsblk_shows_is_judged_by_what_the_kernel_mounts(tmp_path, monkeypatch, kind, make):
    """lsblk, blkid and mount are stand-ins with the output of util-linux; the marks are files."""
    (tmp_path / "lsblk").write_text("#!/bin/sh\nprintf '/dev/sda\\n/dev/sda1\\n/dev/sda2\\n'\n")
    (tmp_path / "blkid").write_text(
        f"#!/bin/sh\nfor name; do :; done\ncase $name in *1) echo vfat ;; *2) echo {kind} ;; *) exit 2 ;; esac\n"
    )
    (tmp_path / "mount").write_text(
        '#!/bin/sh\necho "$@" >>"$0.log"\nfor place; do :; done\n'
        'mkdir -p "$place/etc/baremetal-inference"; echo gpu-01 >"$place/etc/baremetal-inference/host"\n'
    )
    (tmp_path / "umount").write_text('#!/bin/sh\nrm -r "$1/etc"\n')
    for name in ("lsblk", "blkid", "mount", "umount"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert contents("/dev/sda") == [("/dev/sda1", "vfat"), ("/dev/sda2", kind)]
    assert "/dev/sda2 holds the host 'gpu-01'" in refusal("/dev/sda", "")
    assert "/dev/sda2 holds the host 'gpu-01'" in refusal("/dev/sda", "gpu-02")
    assert refusal("/dev/sda", "gpu-01") == ""
    assert all("-o ro," in line for line in (tmp_path / "mount.log").read_text().splitlines())


def util_linux(directory, monkeypatch, kind):
    """Put stand-ins on PATH: a disk that is one block device of a kind, which cannot be mounted."""
    for name, text in {"lsblk": "echo /dev/sda", "blkid": f"echo {kind}", "mount": "exit 32"}.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def kinds_of_blkid():
    """Return all kinds that the blkid of this machine knows."""
    return subprocess.run(["blkid", "-k"], capture_output=True, text=True, check=True).stdout.split()


def test_every_kind_that_the_guard_cannot_see_into_needs_a_release(tmp_path, monkeypatch):
    kinds = {*kinds_of_blkid(), "isw_raid_member", "zfs_member", "a_kind_of_next_year"}
    written = set()
    for kind in kinds:
        with monkeypatch.context() as context:
            util_linux(tmp_path, context, kind)
            said = refusal("/dev/sda", "")
            assert refusal("/dev/sda", "gpu-01") == ""
        assert said == "" or f"/dev/sda is {kind}, and this guard cannot see" in said
        written |= set() if said else {kind}
    assert written == {"swap", "vfat", "iso9660"}


@pytest.mark.parametrize("mount", ["exit 32", 'for place; do :; done; ln -s etc "$place/etc"'])
@pytest.mark.parametrize("field", ["", "mtime", "mnt_count"])
def test_an_ext4_that_cannot_be_read_is_written_only_if_it_was_never_in_use(tmp_path, monkeypatch, mount, field):
    """A write of the image that was cut off leaves one that was never mounted; mkfs.ext4 and debugfs are real.

    The stand-in of mount refuses it, or shows a directory that cannot be read, as the kernel does with both.
    """
    disk = tmp_path / "disk"
    disk.touch()
    os.truncate(disk, 4 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(disk)], check=True)
    if field:
        subprocess.run(["debugfs", "-w", "-R", f"set_super_value {field} 1", str(disk)], check=True)
    util_linux(tmp_path, monkeypatch, "ext4")
    for name, text in {"lsblk": f"echo {disk}", "mount": mount, "umount": 'rm "$1/etc"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    assert refusal(str(disk), "gpu-01") == ""
    refused = refusal(str(disk), "")
    assert ("cannot see what it holds; release the host" in refused) if field else refused == ""


def test_a_root_in_a_subvolume_of_btrfs_has_a_mark_too(tmp_path):
    place = tmp_path / "@rootfs/etc/baremetal-inference"
    place.mkdir(parents=True)
    (place / "host").write_text("gpu-01\n")
    (tmp_path / "@home").mkdir()
    assert markers_below(str(tmp_path), "btrfs") == ["gpu-01"] and markers_below(str(tmp_path), "ext4") == []


def test_no_crowd_of_other_names_hides_a_host_in_a_subvolume_of_btrfs(tmp_path, monkeypatch):
    for number in range(disk_marks_host.MOST_SUBVOLUMES):
        (tmp_path / f"a{number}").mkdir()
    monkeypatch.setattr(disk_marks_host, "contents", lambda _device: [("/dev/sda2", "btrfs")])
    monkeypatch.setattr(disk_marks_host, "markers_on", lambda *_names: markers_below(str(tmp_path), "btrfs"))
    assert refusal("/dev/sda", "") == ""
    place = tmp_path / "zz/etc/baremetal-inference"
    place.mkdir(parents=True)
    (place / "host").write_text("gpu-01\n")
    assert refusal("/dev/sda", "")
    for number in range(300):
        (tmp_path / f"b{number}").mkdir()
    assert refusal("/dev/sda", "")


def test_the_top_of_a_btrfs_is_searched_also_where_another_subvolume_is_the_default_one(tmp_path, monkeypatch):
    """mount is a stand-in that shows the host only where the top is asked for, as the kernel does."""
    util_linux(tmp_path, monkeypatch, "btrfs")
    (tmp_path / "mount").write_text(
        "#!/bin/sh\nfor place; do :; done\ncase $4 in *,subvolid=5,*) ;; *) exit 0 ;; esac\n"
        'mkdir -p "$place/@/etc/baremetal-inference"; echo gpu-01 >"$place/@/etc/baremetal-inference/host"\n'
    )
    (tmp_path / "umount").write_text('#!/bin/sh\nrm -rf "$1/@"\n')
    (tmp_path / "umount").chmod(0o755)
    assert "/dev/sda holds the host 'gpu-01'" in refusal("/dev/sda", "")
    assert refusal("/dev/sda", "gpu-01") == ""


def test_no_other_mark_on_a_file_system_hides_that_of_a_host(tmp_path, monkeypatch):
    for name, text in {"@a": "", "@b": "gpu-01", "@c": "gpu-02"}.items():
        place = tmp_path / name / "etc/baremetal-inference"
        place.mkdir(parents=True)
        (place / "host").write_text(text)
    assert markers_below(str(tmp_path), "btrfs") == ["unreadable", "gpu-01", "gpu-02"]
    monkeypatch.setattr(disk_marks_host, "contents", lambda _device: [("/dev/sda2", "btrfs")])
    monkeypatch.setattr(disk_marks_host, "markers_on", lambda *_names: markers_below(str(tmp_path), "btrfs"))
    assert "holds the host 'gpu-02', which nobody has released" in refusal("/dev/sda", "gpu-01")


@pytest.mark.parametrize(("status", "said"), [(8, "/dev/sda is of several kinds at once"), (4, "cannot be read")])
def test_a_disk_that_cannot_be_told_is_not_written(tmp_path, monkeypatch, status, said):
    (tmp_path / "lsblk").write_text("#!/bin/sh\necho /dev/sda\n")
    (tmp_path / "blkid").write_text(f"#!/bin/sh\nexit {status}\n")
    for name in ("lsblk", "blkid"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    try:
        found = refusal("/dev/sda", "")
    except RuntimeError as exc:
        found = str(exc)
    assert said in found


def test_a_disk_that_cannot_be_listed_is_an_error_and_no_permission(tmp_path, monkeypatch):
    (tmp_path / "lsblk").write_text("#!/bin/sh\nexit 32\n")
    (tmp_path / "lsblk").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(subprocess.CalledProcessError):
        refusal("/dev/sda", "")
