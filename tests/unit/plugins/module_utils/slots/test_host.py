# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that are killed at every step, full disks and two runs at once."""

from __future__ import annotations

import errno
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots import host as _slots_host
from ansible_collections.baremetal.inference.plugins.module_utils.slots import restore_host as _slots_restore
from ansible_collections.baremetal.inference.plugins.module_utils.slots.host import Slots
from ansible_collections.baremetal.inference.plugins.module_utils.slots.installed_host import Host
from ansible_collections.baremetal.inference.plugins.module_utils.slots.restore_host import Engine, Restore, Service
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import SlotError

from tests.fakes.systemd import FakeInstances, FakeSystemd

UNIT = "vllm@chat.service"
# What changes something on the disk.
STEPS = ("mkdir", "open", "fsync", "chmod", "fchmod", "chown", "symlink", "unlink", "rename", "replace")


@pytest.fixture
def systemd(tmp_path):
    return FakeSystemd(tmp_path / "systemd.json")


@pytest.fixture
def there(tmp_path):
    return FakeInstances(tmp_path / "root")


@pytest.fixture
def slots(there, systemd):
    return Slots(Host(str(there.root), Engine(systemd).image_id), "chat")


def keep(slots, **options):
    with slots.locked():
        slots.keep(slots.host.state("chat"), {}, None, options.get("most", 2))


def restore(slots, systemd):
    work = Restore(slots.host, slots, slots.whole(slots.good), Service("chat", systemd), Engine(systemd))
    if work.changed:
        with slots.locked():
            work.run()
    return work.changed


def killed_at(step, action):
    """Run the action in a process that is killed before its step-th change; return whether it was."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def counted(real):
            def call(*arguments, **options):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return real(*arguments, **options)

            return call

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            action()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 9)
    return status == 9


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_keeps_leaves_whole_slots_alone(there, slots):
    there.template()
    keep(slots)
    old = slots.good
    there.template(flag="2")
    new = slots.host.state("chat").digest
    step = 0
    while killed_at(step, lambda: keep(slots)):
        assert slots.good in (old, new) and slots.good
        assert [(digest, damage) for digest, _slot, damage in slots.all() if damage] == []
        assert set(slots.digests()) <= {old, new}
        step += 1
    assert step > 20
    assert (slots.good, slots.previous, sorted(slots.digests())) == (new, old, sorted([old, new]))
    assert [name for name in os.listdir(slots.directory) if name.startswith(".")] == []


@pytest.mark.slow
def test_a_first_state_that_is_killed_is_no_slot(there, slots):
    there.template()
    step = 0
    while killed_at(step, lambda: keep(slots)):
        assert [damage for _digest, _slot, damage in slots.all() if damage] == []
        assert not slots.good or slots.whole(slots.good)
        step += 1
    assert slots.whole(slots.good) and slots.previous == ""


@pytest.mark.slow
def test_a_way_back_that_is_killed_is_gone_to_its_end_by_the_next_run(there, slots, systemd, tmp_path):
    there.template()
    keep(slots)
    good = there.picture()
    step, stopped = 0, 0
    while True:
        there.template(flag="2", venv="0.33.0-cpu-bb", revision="b" * 40)
        systemd.runs(UNIT)
        if not killed_at(step, lambda: restore(slots, systemd)):
            break
        stopped += systemd.state["units"][UNIT]["ActiveState"] == "inactive"
        assert restore(slots, systemd)
        # A link that was not published yet is removed by a later publication.
        found = {path: entry for path, entry in there.picture().items() if not path.endswith(".partial")}
        assert found == good, step
        assert Service("chat", systemd).is_up
        assert not restore(slots, systemd)
        step += 1
    assert step > 10 and stopped > 5


@pytest.mark.parametrize("when", range(12))
def test_a_full_disk_leaves_the_old_slots(there, slots, monkeypatch, when):
    there.template()
    keep(slots)
    old = slots.good
    there.template(flag="2")
    real, left = _slots_host.create, [when]

    def full(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])
        real(*arguments)

    monkeypatch.setattr(_slots_host, "create", full)
    if when >= 6:
        keep(slots)
        assert slots.previous == old
        return
    with pytest.raises(OSError, match="No space left"):
        keep(slots)
    assert os.listdir(slots.directory) and slots.digests() == [old] == [slots.good]
    assert [name for name in os.listdir(slots.directory) if name.startswith(".")] == []


@pytest.mark.parametrize("when", range(2))
def test_a_full_disk_is_met_before_anything_stops(there, slots, systemd, monkeypatch, when):
    there.template()
    keep(slots)
    there.template(flag="2", venv="0.33.0-cpu-bb")
    systemd.runs(UNIT)
    before, real, left = there.picture(), _slots_host.create, [when]

    def full(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])
        real(*arguments)

    monkeypatch.setattr(_slots_restore, "create", full)
    with pytest.raises(SlotError, match=r"the disk is full; make room there\. Nothing was changed"):
        restore(slots, systemd)
    assert there.picture() == before
    assert systemd.asked() == []


def test_what_runs_with_other_files_is_found_for_the_look(there, systemd, slots):
    for name in ("chat", "other", "third"):
        there.template(name)
    systemd.runs("vllm@other.service")
    systemd.runs(UNIT, since=1.0)
    names = ["chat", "other", "third", "missing"]
    assert _slots_restore.stale_ones(systemd, names, str(there.root)) == ["chat"]


def test_a_host_without_systemd_has_nothing_stale(there):
    there.template()

    def run(_words, **_options):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "systemctl")

    assert _slots_restore.stale_ones(run, ["chat"], str(there.root)) == []


def test_two_runs_do_not_mix(there, slots):
    there.template()
    other = Slots(slots.host, "chat")
    with slots.locked(), pytest.raises(SlotError, match="another run is working"), other.locked():
        pass
    keep(slots)


def test_a_file_that_changes_while_it_is_kept_is_not_kept(there, slots):
    there.template()
    state = slots.host.state("chat")
    there.template(flag="2")
    with slots.locked(), pytest.raises(SlotError, match=r"chat\.yaml was changed during the run"):
        slots.keep(state, {}, None, 2)
    assert slots.digests() == []


def test_links_that_lead_nowhere_are_none(there, slots):
    there.template()
    keep(slots)
    os.symlink("../../../../etc", os.path.join(slots.directory, "previous"))
    assert slots.previous == ""
    os.unlink(os.path.join(slots.directory, "previous"))
    os.symlink("0" * 16, os.path.join(slots.directory, "previous"))
    assert slots.previous == ""
