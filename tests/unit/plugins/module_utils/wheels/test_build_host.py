# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.build_host import link_for_linker

from tests.fakes.wheelhouse import make_wheel, run_module, served

UV_TAG = f"py3-none-manylinux_2_17_{platform.machine()}"
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
TARGET = f"# target: cp{HERE.replace('.', '')}-{platform.machine()}\n"
REAL_UV = shutil.which("uv", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin") or shutil.which("uv")

# Does what uv does as far as this module can see: makes the directory, then puts what was asked for into it.
STAND_IN = b"""#!/bin/sh
for last; do :; done
case "$1" in
  venv) mkdir -p "$last/bin"; env > "$last/environment"; ln -s "$4" "$last/bin/python" ;;
  pip) mkdir -p "$UV_CACHE_DIR"; echo "$@" > "${last%/*}/command" ;;
esac
"""
HASH_MISMATCH = b"""#!/bin/sh
for last; do :; done
[ "$1" = venv ] && exec mkdir -p "$last/bin"
mkdir -p "$UV_CACHE_DIR"
echo 'Hash mismatch for `tiny==1.0`' >&2
exit 1
"""


@pytest.fixture
def mirror(tmp_path):
    """A served index with tiny 1.0 and a stand-in for uv; ``.lock`` pins both."""

    class Mirror:
        root = tmp_path / "mirror"
        opt = tmp_path / "opt"

        def add_uv(self, version, program):
            digest = make_wheel(self.root / "wheels", "uv", version, tag=UV_TAG, scripts={"uv": program})
            assert run_module("wheel_index", root=str(self.root))["rc"] == 0
            return f"uv=={version} --hash=sha256:{digest}\n"

        def ensure(self, requirements, **arguments):
            return run_module(
                "uv_venv",
                **{
                    "root": str(self.opt),
                    "name": "1.0-cpu",
                    "requirements": requirements,
                    "index_url": f"{self.url}/simple/",
                    "python": sys.executable,
                    **arguments,
                },
            )

    made = Mirror()
    made.tiny = f"tiny==1.0 --hash=sha256:{make_wheel(made.root / 'wheels', 'tiny', '1.0')}\n"
    made.lock = TARGET + made.tiny + made.add_uv("9.1", STAND_IN)
    with served(made.root) as (made.url, made.asked):
        yield made


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != ".lock") if directory.exists() else []


def test_makes_the_environment_once(mirror):
    first = mirror.ensure(mirror.lock)
    assert first["changed"], first
    assert first["packages"] == 1
    path = Path(first["path"])
    assert names(mirror.opt) == [path.name, "uv-9.1"]
    assert (path / "requirements.txt").read_text().startswith("tiny==1.0 \\\n")
    assert "uv==" not in (path / "requirements.txt").read_text()
    mirror.asked.clear()
    second = mirror.ensure(mirror.lock)
    assert not second["changed"]
    assert second["path"] == first["path"]
    assert mirror.asked == []


def test_only_the_index_decides_what_is_installed(mirror, monkeypatch):
    monkeypatch.setenv("UV_INDEX", "http://elsewhere/")
    monkeypatch.setenv("PIP_INDEX_URL", "http://elsewhere/")
    path = Path(mirror.ensure(mirror.lock, ca_file="")["path"])
    assert "elsewhere" not in (path / "environment").read_text()
    assert "UV_NO_CONFIG=1" in (path / "environment").read_text().splitlines()
    assert "--require-hashes --only-binary :all:" in (path / "command").read_text()


def test_another_lock_gets_another_directory(mirror):
    first = mirror.ensure(mirror.lock)["path"]
    second = mirror.ensure(mirror.lock + "# changed\n")["path"]
    assert first != second
    assert names(mirror.opt) == sorted([Path(first).name, Path(second).name, "uv-9.1"])


def test_check_mode_predicts_and_writes_nothing(mirror):
    result = mirror.ensure(mirror.lock, _ansible_check_mode=True, _ansible_diff=True)
    assert result["changed"]
    assert result["diff"]["after"] == "tiny==1.0\n"
    assert names(mirror.opt) == []
    assert mirror.ensure(mirror.lock)["path"] == result["path"]
    assert not mirror.ensure(mirror.lock, _ansible_check_mode=True)["changed"]


def test_two_runs_at_a_time_build_their_environments_one_after_the_other(mirror):
    slow = STAND_IN.replace(b"pip) ", b'pip) sleep 1; [ -x "${last%/*}/bin/python" ] || exit 1; ')
    lock = TARGET + mirror.tiny + mirror.add_uv("9.3", slow)
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(mirror.ensure, lock, name=name) for name in ("1.0-cpu", "2.0-cpu", "2.0-cpu")]
    results = [run.result() for run in runs]
    assert [result["rc"] for result in results] == [0, 0, 0], results
    assert [each for each in names(mirror.opt) if each.startswith(".")] == []
    assert len([each for each in names(mirror.opt) if each.endswith(tuple("0123456789abcdef")) and "cpu" in each]) == 2


@pytest.mark.skipif(REAL_UV is None or os.geteuid() != 0, reason="needs uv on PATH, and to become another user")
def test_no_other_user_can_hold_a_lock_that_uv_waits_for(mirror):
    """uv gives its locks the mode 0666, whatever the umask."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        opt, seen = f"{place}/opt", mirror.root / "seen"
        # The real one, and after each of its commands what there is to lock, and what of it another user can open.
        seek = f"""#!/bin/sh
{REAL_UV} "$@" || exit
find {opt} -name '*.lock' >> {seen}
setpriv --reuid 65534 --regid 65534 --clear-groups find {opt} -name '*.lock' -readable 2>&1 | sed s/^/other:/ >> {seen}
"""
        lock = TARGET + mirror.tiny + mirror.add_uv("9.4", seek.encode())
        path = Path(mirror.ensure(lock, root=opt)["path"])
        lines = {*seen.read_text().split("\n")[:-1]}
        inside = {line[len(opt) :] for line in lines if line.startswith(f"{opt}/.{path.name}.partial/")}
        assert len(inside) >= 2, lines
        (other,) = (line for line in lines if line.startswith("other:"))
        assert f"{opt}/.{path.name}.partial" in other and other.endswith("Permission denied")
        assert path.stat().st_mode & 0o777 == 0o755 and not (path / ".lock").exists()


def test_leftovers_of_a_killed_run_are_not_used(mirror):
    path = Path(mirror.ensure(mirror.lock, _ansible_check_mode=True)["path"])
    partial = mirror.opt / f".{path.name}.partial"
    partial.mkdir(parents=True)
    (partial / "half").touch()
    (mirror.opt / ".older-lock.partial").mkdir()
    assert mirror.ensure(mirror.lock)["changed"]
    assert not (path / "half").exists()
    assert names(mirror.opt) == [path.name, "uv-9.1"]


def test_a_failed_build_leaves_only_uv_behind(mirror):
    lock = TARGET + mirror.tiny + mirror.add_uv("9.2", HASH_MISMATCH)
    result = mirror.ensure(lock)
    assert result["msg"].startswith(
        f"{mirror.url}/simple/ serves a file for tiny==1.0 whose sha256 is not that of the lock"
    )
    assert names(mirror.opt) == ["uv-9.2"]


def test_a_uv_that_is_not_the_pinned_one_is_refused(mirror):
    page = mirror.root / "simple/uv/index.html"
    (wheel,) = (mirror.root / "wheels").glob("uv-*.whl")
    page.write_text(f'<a href="../../wheels/{wheel.name}">uv</a>')  # an index without digests
    wheel.write_bytes(wheel.read_bytes() + b" ")
    result = mirror.ensure(mirror.lock)
    assert "the lock has" in result["msg"]
    assert names(mirror.opt) == []


def test_a_uv_with_an_endless_name_is_refused_in_a_message_that_can_be_read(mirror):
    (wheel,) = (mirror.root / "wheels").glob("uv-*.whl")
    name = wheel.name.replace("manylinux", f"manylinux{'x' * 100}", 1)
    page = mirror.root / "simple/uv/index.html"
    page.write_text(f'<a href="../../wheels/{name}">uv</a>')
    wheel.rename(wheel.with_name(name)).write_bytes(b"x")
    message = mirror.ensure(mirror.lock)["msg"]
    assert "the lock has" in message and len(message) < 600


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"index_url": "http://127.0.0.1:1/simple/"},
            "the mirror is running and vllm_wheel_index is right",
        ),
        ({"index_url": "mirror"}, "vllm_wheel_index 'mirror' is not an address; expected one like http://"),
        (
            {"index_url": ""},
            "vllm_wheel_index: found nothing, expected the address of an index with the wheels of the lock",
        ),
        ({"index_url": "http://me:secret@mirror/simple/"}, "vllm_wheel_index holds a login"),
        (
            {"python": "/usr/bin/python9"},
            "/usr/bin/python9 is not a program on this host; set the option python (vllm_python)",
        ),
        ({"size_bytes": 10**18}, "GB free, the environment needs 1000000000.0 GB"),
        ({"ca_file": "/no/ca.pem"}, "vllm_wheel_ca_file /no/ca.pem cannot be read on this host"),
        ({"requirements": "tiny==1.0\n"}, "expected NAME==VERSION with --hash=sha256"),
        (
            {"requirements": f"# target: cp37-x86_64\ntiny==1.0 --hash=sha256:{'0' * 64}"},
            f"is Python {HERE}, but the lock's",
        ),
        (
            {"requirements": f"uv==1 --hash=sha256:{'0' * 64}\nabsent==1 --hash=sha256:{'0' * 64}"},
            "has no absent; carry",
        ),
    ],
)
def test_bad_input_is_an_error_before_anything_changes(mirror, arguments, message, check):
    result = mirror.ensure(**{"requirements": mirror.lock, **arguments, "_ansible_check_mode": check})
    assert result["failed"]
    assert message in result["msg"]
    assert names(mirror.opt) == []


def test_an_address_that_is_no_index(mirror):
    result = mirror.ensure(mirror.lock, index_url=f"{mirror.url}/elsewhere/")
    assert "/elsewhere/: HTTP status 404" in result["msg"]


@pytest.mark.skipif(REAL_UV is None, reason="needs uv on PATH")
def test_with_the_real_uv(mirror):
    lock = TARGET + mirror.tiny + mirror.add_uv("9.3", Path(REAL_UV).read_bytes())
    result = mirror.ensure(lock)
    assert result["changed"], result
    python = Path(result["path"], "bin/python")
    shown = [python, "-v", "-c", "import tiny; print(tiny.version)"]
    said = subprocess.run(shown, check=True, capture_output=True, text=True)
    assert said.stdout == "1.0\n"
    # Nobody who runs it may write there, so what Python compiles has to be there, and to fit after the rename.
    assert re.search(r"/tiny.*\.pyc matches ", said.stderr), said.stderr
    assert names(mirror.opt) == [Path(result["path"]).name, "uv-9.3"]
    assert not mirror.ensure(lock)["changed"]
    # A package that somebody has removed.
    next(Path(result["path"]).glob("lib/python3*/site-packages/tiny.py")).unlink()
    checked = mirror.ensure(lock, _ansible_check_mode=True, _ansible_diff=True)
    assert checked["changed"] and checked["damage"][0].endswith("site-packages/tiny.py is missing")
    assert checked["diff"]["before"].startswith("damaged: ") and "is damaged: lib/" in str(checked["warnings"])
    assert subprocess.run(shown, check=False).returncode
    assert mirror.ensure(lock)["damage"] == checked["damage"]
    assert subprocess.run(shown, check=True, capture_output=True, text=True).stdout == "1.0\n"
    assert names(mirror.opt) == [Path(result["path"]).name, "uv-9.3"] and not mirror.ensure(lock)["changed"]
    make_wheel(mirror.root / "wheels", "tiny", "1.0", requires_python=">=3.1")  # other bytes under the same name
    run_module("wheel_index", root=str(mirror.root))
    assert "whose sha256 is not that of the lock" in mirror.ensure(lock + "# again\n")["msg"]
    assert "has no wheel of tiny==1.1" in mirror.ensure(lock.replace("tiny==1.0", "tiny==1.1"))["msg"]


class Host:
    """As much of a module as the links need: a dynamic linker's cache."""

    def __init__(self, cache, check_mode=False):
        self.cache = cache
        self.check_mode = check_mode

    def get_bin_path(self, name, opt_dirs=None):
        return f"/sbin/{name}"

    def run_command(self, _command):
        return 0, self.cache, ""


def test_the_linker_finds_cuda_under_the_names_that_it_looks_for(tmp_path):
    libraries = tmp_path / "lib/python3.12/site-packages/nvidia/cu13/lib"
    libraries.mkdir(parents=True)
    (libraries / "libcudart.so.13").write_text("")
    cache = "1 libs found\n\tlibcuda.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1\n"
    assert link_for_linker(Host(cache, check_mode=True), str(tmp_path))
    assert names(libraries) == ["libcudart.so.13"]
    assert link_for_linker(Host(cache), str(tmp_path))
    assert os.readlink(libraries / "libcudart.so") == "libcudart.so.13"
    assert os.readlink(libraries / "libcuda.so") == "/usr/local/nvidia/lib64/libcuda.so.1"
    assert not link_for_linker(Host(cache), str(tmp_path))
    # Another driver may lie elsewhere.
    assert link_for_linker(Host(cache.replace("/usr/local/nvidia/lib64", "/usr/lib")), str(tmp_path))
    assert os.readlink(libraries / "libcuda.so") == "/usr/lib/libcuda.so.1"


def test_an_environment_without_cuda_gets_no_links(tmp_path):
    (tmp_path / "lib/python3.12/site-packages").mkdir(parents=True)
    assert not link_for_linker(Host("\tlibcuda.so.1 (libc6) => /x/libcuda.so.1\n"), str(tmp_path))
