# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory filled with the wheels of a lock, by a played pip: nothing gets its name that the lock does not know."""

from __future__ import annotations

import hashlib
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels import wheelhouse_host
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import VenvError, parse_lock
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.wheelhouse_host import (
    PipProgress,
    fill_wheelhouse,
    inspect_wheelhouse,
    is_complete,
    read_lock,
)

ONE, TWO = "one-1.0-py3-none-any.whl", "two-2.0-cp311-cp311-manylinux_2_28_x86_64.whl"
CONTENTS = {ONE: b"1", TWO: b"2"}


def lock_text(target="# target: cp311-x86_64\n"):
    pins = [name.split("-")[:2] for name in CONTENTS]
    digests = [hashlib.sha256(data).hexdigest() for data in CONTENTS.values()]
    return target + "".join(f"{n}=={v} --hash=sha256:{d}\n" for (n, v), d in zip(pins, digests))


class Pip:
    """What an index has; ``refusal`` is what pip says where it fails."""

    def __init__(self):
        self.has, self.asked, self.refusal = dict(CONTENTS), [], ""

    def run(self, command, counter):
        destination = command[command.index("--dest") + 1]
        with open(command[command.index("--requirement") + 1], encoding="utf-8") as file:
            wanted = {line.split("==")[0] for line in file if "==" in line}
        self.asked.append((sorted(wanted), list(command)))
        if self.refusal:
            said, self.refusal = self.refusal, ""
            return said, 1
        for name, data in self.has.items():
            if name.split("-", maxsplit=1)[0] in wanted:
                counter.read(f"  Downloading https://index/{name} (1 kB)\n")
                path = os.path.join(destination, name)
                with open(path, "wb") as file:
                    file.write(data)
                os.chmod(path, 0o600)
        return "", 0


@pytest.fixture
def pip(monkeypatch):
    found = Pip()
    monkeypatch.setattr(wheelhouse_host, "_run_pip", found.run)
    monkeypatch.setattr(wheelhouse_host, "pip_command", lambda: ["pip", "download"])
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    return found


@pytest.fixture
def house(tmp_path):
    """Return a function that inspects the directory."""
    lock = tmp_path / "vllm.txt"
    lock.write_text(lock_text())
    return lambda full=False: inspect_wheelhouse(str(lock), str(tmp_path / "wheels"), full)


def missing(found):
    return [pin.name for pin in found.missing]


def test_a_lock_names_the_file_beside_it_that_has_the_rest(tmp_path):
    (tmp_path / "all.txt").write_text(f"one==1 \\\n    --hash=sha256:{'a' * 64}\n")
    lock = tmp_path / "some.txt"
    lock.write_text(f"# target: cp311-x86_64\n# besides: all.txt\ntwo==1 \\\n    --hash=sha256:{'b' * 64}\n")
    assert sorted(parse_lock(read_lock(str(lock))).pins) == ["one", "two"]
    assert missing(inspect_wheelhouse(str(lock), str(tmp_path / "wheels"))) == ["one", "two"]
    lock.write_text("# besides: ../all.txt\n")
    assert read_lock(str(lock)) == lock.read_text(), "no path, a name"


def test_a_lock_is_fetched_once(pip, house, tmp_path):
    assert missing(house()) == ["one", "two"] and not is_complete(house())
    said = []
    found = fill_wheelhouse(house(), said.append)
    assert is_complete(found) and is_complete(house()) and missing(house(full=True)) == []
    assert said == [f"[  1/2] {ONE} 1 kB", f"[  2/2] {TWO} 1 kB"]
    fill_wheelhouse(house(), said.append)
    assert len(pip.asked) == 1
    # A web server reads them.
    assert (tmp_path / "wheels" / ONE).stat().st_mode & 0o777 == 0o644


def test_pip_is_asked_for_the_machine_of_the_lock(pip, house):
    fill_wheelhouse(house(), lambda _text: None)
    words = pip.asked[0][1]
    assert words[words.index("--python-version") + 1] == "3.11"
    assert "manylinux_2_28_x86_64" in words and not any("aarch64" in word for word in words)


def test_what_is_not_in_the_lock_never_gets_its_name(pip, house, tmp_path):
    pip.has[TWO] = b"another build"
    with pytest.raises(VenvError, match="pip fetched files for two that do not match the lock"):
        fill_wheelhouse(house(), lambda _text: None)
    assert not (tmp_path / "wheels" / TWO).exists()
    assert [name for name in os.listdir(tmp_path / "wheels") if name.startswith(".fetch-")] == []


def test_files_of_an_earlier_run_are_kept_and_its_remains_are_not(pip, house, tmp_path):
    wheels = tmp_path / "wheels"
    (wheels / ".fetch-killed").mkdir(parents=True)
    (wheels / ONE).write_bytes(CONTENTS[ONE])
    (wheels / "foreign.whl").write_bytes(b"")
    fill_wheelhouse(house(), lambda _text: None)
    assert pip.asked[0][0] == ["two"] and not (wheels / ".fetch-killed").exists() and (wheels / "foreign.whl").exists()


def test_a_file_that_was_damaged_since_is_fetched_again(pip, house, tmp_path):
    fill_wheelhouse(house(), lambda _text: None)
    (tmp_path / "wheels" / ONE).write_bytes(b"x" * 50)
    assert missing(house()) == ["one"]
    fill_wheelhouse(house(), lambda _text: None)
    assert missing(house(full=True)) == []


def test_a_damage_that_leaves_size_and_time_is_found_in_full(pip, house, tmp_path):
    fill_wheelhouse(house(), lambda _text: None)
    path = tmp_path / "wheels" / ONE
    before = path.stat()
    path.write_bytes(b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert missing(house()) == [] and missing(house(full=True)) == ["one"]


def test_a_lock_that_has_changed_is_not_complete(pip, house, tmp_path):
    fill_wheelhouse(house(), lambda _text: None)
    (tmp_path / "vllm.txt").write_text(lock_text() + "\n")
    assert not is_complete(house()) and missing(house()) == []


def test_a_lock_without_a_target_is_refused_before_anything_is_fetched(house, tmp_path):
    (tmp_path / "vllm.txt").write_text(lock_text(target=""))
    with pytest.raises(VenvError, match="does not name its Python and machine"):
        house()


def test_an_index_without_cpu_builds_of_torch_is_helped_by_pytorchs_own(pip, house):
    pip.refusal = "ERROR: No matching distribution found for torch==2.13.0+cpu\n"
    fill_wheelhouse(house(), lambda _text: None)
    assert [wheelhouse_host.TORCH_INDEX in words for _wanted, words in pip.asked] == [False, True]


def test_a_failure_of_pip_shows_its_errors_and_no_password(pip, house):
    pip.refusal = "Looking in indexes: https://u:secret@index/\nERROR: cannot reach https://u:secret@index/one\n"
    with pytest.raises(VenvError, match=r"run again to continue:\nERROR: cannot reach https://index/one$"):
        fill_wheelhouse(house(), lambda _text: None)


def test_progress_counts_what_pip_begins_with():
    said = []
    progress = PipProgress(said.append, 16, 40)
    for line in ("Collecting one", f"  Using cached {ONE} (1.2 MB)", f"Processing /var/{TWO}", "Saved ./x.whl"):
        progress.read(line)
    assert said == [f"[ 17/40] {ONE} 1.2 MB", f"[ 18/40] {TWO}"]
