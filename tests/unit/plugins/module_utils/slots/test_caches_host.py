# SPDX-License-Identifier: GPL-3.0-or-later
"""What one host has compiled reaches an equal one whole, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pwd
import signal
import tarfile
import tracemalloc
import zlib
from hashlib import sha256
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots import caches_host
from ansible_collections.baremetal.inference.plugins.module_utils.slots.caches import CacheError
from ansible_collections.baremetal.inference.plugins.module_utils.slots.caches_host import Cache, as_user, read_host
from ansible_collections.baremetal.inference.plugins.module_utils.slots.restore_host import Service
from ansible_collections.baremetal.inference.plugins.plugin_utils.mirror.caches import keep_archive

ME = pwd.getpwuid(os.geteuid()).pw_name
PLAN = {
    "instance": "chat", "vllm_version": "0.33.0", "model": "m", "revision": "r", "args": {}, "env": {}, "chips": [0],
    "accelerator": "h200", "venv": {"path": "/opt/vllm/0.33.0-cuda-abc"}, "image": None,
    "container": None,
}  # fmt: skip
GOOD = {"digest": "a" * 16}
PROVEN = {"up": True, "stale": False, "digest": "a" * 16, "good": GOOD}


class Module:
    """The module of a task, with the directories of one host."""

    check_mode = False

    def __init__(self, top, **params):
        self.params = {
            "owner": ME, "engine": "", "ca_file": "", "source": "", "manifests": [], "cache_dir": str(top / "cache"),
            "work_dir": str(top / "work"), "reader": os.geteuid(), **params,
        }  # fmt: skip

    def run_command(self, _words, **_more):
        return 1, "", "no engine"


@pytest.fixture(autouse=True)
def host(monkeypatch):
    monkeypatch.setattr(caches_host, "read_host", lambda: {"driver": "nvidia 580"})
    monkeypatch.setattr(caches_host, "status_of", lambda *_args: PROVEN)
    monkeypatch.setattr(caches_host, "Service", lambda *_args: SimpleNamespace(is_at_rest=True))


@pytest.fixture
def first(tmp_path):
    """A host that has compiled: files, a program, a link, a lock, and the records of tokens, which stay."""
    cache = tmp_path / "first/cache/chat"
    for name in ("vllm/torch_compile_cache/a/graph.py", ".cache/flashinfer/0.7/90a/cached_ops/x.so", "usage/2026.json"):
        (cache / name).parent.mkdir(parents=True)
        (cache / name).write_text(name)
    (cache / ".cache/flashinfer/0.7/90a/cached_ops/x.so").chmod(0o755)
    os.utime(cache / "vllm/torch_compile_cache/a/graph.py", (1000, 1000))
    (cache / "vllm/link").symlink_to("/etc/passwd")
    (cache / "vllm/a.lock").touch()
    return tmp_path / "first"


def packed(top):
    """Pack the cache of a host, and keep it on a controller; return where it is, and the text of its manifest."""
    made, kept = Cache(Module(top), PLAN).pack(), top / "kept"
    kept.mkdir()
    name, _warning = keep_archive(str(kept), "gpu-1", PLAN, made, str(top / "work/chat.tar.gz"))
    return str(kept / name), (kept / name.replace(".tar.gz", ".json")).read_text()


def seed(top, archive, *manifests, **params):
    module = Module(top, source=os.path.dirname(archive), manifests=list(manifests), **params)
    return Cache(module, params.pop("plan", PLAN)).seed()


def files_in(top):
    return {str(path.relative_to(top)): path for path in sorted(top.rglob("*")) if not path.is_dir()}


def test_an_equal_host_gets_what_the_first_has_compiled(first, tmp_path):
    archive, manifest = packed(first)
    assert json.loads(manifest)["made_from"]["host"] == {"driver": "nvidia 580"}
    assert seed(tmp_path / "second", archive, manifest)["seeded"]
    found = files_in(tmp_path / "second/cache/chat")
    assert sorted(found) == [
        ".cache/flashinfer/0.7/90a/cached_ops/x.so", "vllm/torch_compile_cache/a/graph.py",
    ]  # fmt: skip
    graph, program = found["vllm/torch_compile_cache/a/graph.py"], found[".cache/flashinfer/0.7/90a/cached_ops/x.so"]
    assert graph.read_text() == "vllm/torch_compile_cache/a/graph.py" and graph.stat().st_mtime == 1000
    assert (graph.stat().st_mode & 0o777, program.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list((tmp_path / "second/work").iterdir()) == []
    # The second time it has them.
    assert not seed(tmp_path / "second", archive, manifest)["seeded"]


def test_a_foreign_host_gets_nothing_and_hears_what_differs(first, tmp_path, monkeypatch):
    archive, manifest = packed(first)
    monkeypatch.setattr(caches_host, "read_host", lambda: {"driver": "nvidia 581"})
    differs = r"the nearest one differs in host\.driver \(here 'nvidia 581', there 'nvidia 580'\)$"
    with pytest.raises(CacheError, match=f"^no archive fits; {differs}"):
        seed(tmp_path / "second", archive, manifest)
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("made_from", [None, [], {"instance": ["chat"], "host": 7}, {"instance": "chat-2", "args": {}}])
def test_an_archive_of_another_instance_is_no_reason_for_a_warning(first, tmp_path, monkeypatch, made_from):
    archive, manifest = packed(first)
    monkeypatch.setattr(caches_host, "read_host", lambda: {"driver": "nvidia 581"})
    other = json.dumps({**json.loads(manifest), "made_from": made_from})
    assert seed(tmp_path / "second", archive, other)["why"] == "no equal host has made an archive"


def test_nobody_packs_or_seeds_the_cache_of_an_engine_of_root(first, tmp_path):
    # With a link in the place of a directory, the engine had root read /etc/vllm, and write to /etc/cron.d.
    archive, manifest = packed(first)
    plan = {**PLAN, "container": {"user": "root"}}
    made, given = Cache(Module(first), plan).pack(), seed(tmp_path / "second", archive, manifest, plan=plan)
    assert not made["made"] and not made["changed"] and "as root" in made["why"]
    assert not given["seeded"] and given["why"] == made["why"]
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("state", ["active", "activating", "deactivating"])
def test_an_instance_whose_unit_is_not_stopped_gets_nothing(first, tmp_path, monkeypatch, state):
    archive, manifest = packed(first)
    monkeypatch.setattr(caches_host, "Service", Service)
    monkeypatch.setattr(Module, "run_command", lambda *_args, **_more: (0, f"ActiveState={state}\nSubState=x\n", ""))
    given = seed(tmp_path / "second", archive, manifest)
    assert not given["seeded"] and given["why"] == f"its unit is {state} (x), expected one that is stopped"
    assert not (tmp_path / "second").exists()


def test_what_an_instance_has_compiled_itself_stays(first, tmp_path):
    archive, manifest = packed(first)
    own = tmp_path / "second/cache/chat/triton"
    own.mkdir(parents=True)
    assert seed(tmp_path / "second", archive, manifest)["why"] == "it has compiled something itself"
    assert files_in(tmp_path / "second/cache/chat") == {}


def rewritten(archive, manifest, data):
    """Put other bytes into the archive; return a manifest for them."""
    with open(archive, "wb") as file:
        file.write(data)
    return json.dumps({**json.loads(manifest), "size": len(data), "sha256": sha256(data).hexdigest()})


def bytes_of(archive):
    with open(archive, "rb") as file:
        return file.read()


def test_a_damaged_archive_is_refused_and_leaves_nothing(first, tmp_path):
    archive, manifest = packed(first)
    data = bytearray(bytes_of(archive))
    data[len(data) // 2] ^= 1
    rewritten(archive, manifest, bytes(data))
    with pytest.raises(CacheError, match="sha256"):
        seed(tmp_path / "second", archive, manifest)
    assert files_in(tmp_path / "second") == {}


@pytest.mark.parametrize("part", [0.5, 0.0])
def test_a_cut_archive_is_refused_even_if_its_manifest_names_it(first, tmp_path, part):
    archive, manifest = packed(first)
    whole = bytes_of(archive)
    with pytest.raises(CacheError):
        seed(tmp_path / "second", archive, rewritten(archive, manifest, whole[: int(len(whole) * part)] or b"x"))
    assert files_in(tmp_path / "second") == {}


def test_an_archive_with_a_block_that_deflate_does_not_know_is_refused(tmp_path):
    # More than is read ahead: the headers are whole, the content is not.
    content = header(tarfile.REGTYPE, 1 << 20) + os.urandom(1 << 19)
    packer = zlib.compressobj(wbits=31)
    begun = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
    with pytest.raises(CacheError, match="the archive cannot be unpacked"):
        caches_host.unpack(io.BytesIO(begun + b"\xff" * 99), str(tmp_path), LARGE * 2)


def test_an_archive_that_is_not_there_is_refused(first, tmp_path):
    archive, manifest = packed(first)
    os.unlink(archive)
    with pytest.raises(CacheError, match="No such file"):
        seed(tmp_path / "second", archive, manifest)


def archive_of(*members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, content in members:
            found = tarfile.TarInfo(name)
            found.type, found.size, found.linkname = kind, len(content), "/etc/passwd"
            archive.addfile(found, io.BytesIO(content))
    return gzip.compress(buffer.getvalue())


@pytest.mark.parametrize(("members", "why"), [
    ([("vllm/a", tarfile.REGTYPE, b"x"), ("../../evil", tarfile.REGTYPE, b"x")], "expected only files"),
    ([("vllm/a", tarfile.SYMTYPE, b""), ("vllm/a/b", tarfile.REGTYPE, b"x")], "expected only files"),
    ([("usage/a", tarfile.REGTYPE, b"x")], "expected only files"),
    ([("vllm/a", tarfile.REGTYPE, b"x"), ("vllm/a", tarfile.REGTYPE, b"y")], "File exists"),
    ([("vllm/a", tarfile.REGTYPE, bytes(1000))], "more than the"),
])  # fmt: skip
def test_an_archive_with_anything_else_is_refused(first, tmp_path, members, why):
    archive, manifest = packed(first)
    with pytest.raises(CacheError, match=why):
        seed(tmp_path / "second", archive, rewritten(archive, manifest, archive_of(*members)))
    assert files_in(tmp_path / "second") == {}


def header(kind, size, name="vllm/a"):
    found = tarfile.TarInfo(name)
    found.type, found.size = kind, size
    return found.tobuf(tarfile.GNU_FORMAT)


def records(text):
    """Return the headers of an extended header, with what comes before a file."""
    return header(tarfile.XHDTYPE, len(text)) + text.ljust(-(-len(text) // 512) * 512, b"\0")


LARGE = 8 << 20
SPARSE = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
# Each zero is the offset and the length of a part; that it has millions of them is what the map begins with.
SPARSE_MAP = b"9999999\n" + b"0\n" * (LARGE // 2 - 4)


@pytest.mark.parametrize("place", [".unpacked", ".nv"])
def test_nothing_is_unpacked_through_a_link_that_an_engine_has_left(tmp_path, place):
    for name in ("cache", "neighbour"):
        (tmp_path / name).mkdir()
    (tmp_path / "cache" / place).symlink_to(tmp_path / "neighbour")
    packed = io.BytesIO(archive_of((".nv/ComputeCache/a", tarfile.REGTYPE, b"x")))
    refused = pytest.raises(CacheError, match="is a link that the engine has made; remove it")
    with refused if place == ".nv" else contextlib.nullcontext():
        caches_host.unpack(packed, str(tmp_path / "cache"), 9)
    assert list((tmp_path / "neighbour").iterdir()) == []


@pytest.mark.parametrize("headers", [
    header(tarfile.GNUTYPE_LONGNAME, LARGE) + bytes(LARGE),
    header(tarfile.GNUTYPE_LONGLINK, LARGE) + bytes(LARGE),
    header(tarfile.XHDTYPE, LARGE) + bytes(LARGE),
    header(tarfile.XGLTYPE, LARGE) + bytes(LARGE),
    records(b"12 comment=\n") * 2000,
    records(SPARSE) + header(tarfile.REGTYPE, LARGE) + SPARSE_MAP,
], ids=["name", "link", "header", "all", "many", "sparse"])  # fmt: skip
def test_headers_without_end_are_not_read(tmp_path, headers):
    packed = io.BytesIO(gzip.compress(headers + header(tarfile.REGTYPE, 0) + bytes(1024), 1))
    tracemalloc.start()
    try:
        with pytest.raises(CacheError, match="more than 64 KiB of headers"):
            caches_host.unpack(packed, str(tmp_path), LARGE * 2)
        assert tracemalloc.get_traced_memory()[1] < LARGE // 4
    finally:
        tracemalloc.stop()
    assert files_in(tmp_path) == {}


def test_headers_of_all_files_are_refused(tmp_path):
    headers = header(tarfile.XGLTYPE, 12) + b"12 comment=\n".ljust(512, b"\0")
    with pytest.raises(CacheError, match="headers for all its files"):
        caches_host.unpack(io.BytesIO(gzip.compress(headers + header(tarfile.REGTYPE, 0))), str(tmp_path), 9)


def test_headers_of_many_files_are_forgotten(tmp_path):
    text = b"40008 comment=" + b"x" * 39993 + b"\n"
    members = b"".join(records(text) + header(tarfile.REGTYPE, 0, f"vllm/{number}") for number in range(200))
    packed = io.BytesIO(gzip.compress(members + bytes(1024), 1))
    tracemalloc.start()
    try:
        caches_host.unpack(packed, str(tmp_path), 9)
        assert tracemalloc.get_traced_memory()[1] < LARGE // 4
    finally:
        tracemalloc.stop()
    assert len(files_in(tmp_path)) == 200


@pytest.mark.parametrize("changes", [{"up": False}, {"stale": True}, {"good": None}, {"good": {"digest": "b" * 16}}])
def test_only_a_proven_instance_is_packed(first, monkeypatch, changes):
    monkeypatch.setattr(caches_host, "status_of", lambda *_args: {**PROVEN, **changes})
    with pytest.raises(CacheError, match="not proven"):
        packed(first)
    assert not (first / "work").exists()


def test_an_instance_that_has_compiled_nothing_has_no_archive(tmp_path):
    with pytest.raises(CacheError, match="start the instance first"):
        packed(tmp_path)
    assert list((tmp_path / "work").iterdir()) == []


def test_check_mode_changes_nothing(first, tmp_path, monkeypatch):
    archive, manifest = packed(first)
    monkeypatch.setattr(Module, "check_mode", True)
    assert seed(tmp_path / "second", archive, manifest)["changed"]
    assert not (tmp_path / "second").exists()


def test_an_image_without_an_id_fits_no_archive(tmp_path):
    plan = {**PLAN, "venv": None, "image": "vllm/vllm-openai:v0.33.0"}
    assert Cache(Module(tmp_path), plan).key != Cache(Module(tmp_path), plan).key


def test_the_error_of_another_process_arrives():
    def fail():
        raise OSError(28, "No space left on device")

    with pytest.raises(CacheError, match="No space left"):
        as_user(ME, fail)
    assert as_user(ME, lambda: "7") == "7"


@pytest.mark.parametrize("stopped", ["before its answer", "after its answer"])
def test_a_process_that_an_engine_of_the_same_user_stops_holds_nobody_up(monkeypatch, stopped):
    monkeypatch.setattr(caches_host, "_PATIENCE", 0.2)
    stop, write = signal.SIGSTOP, os.write
    if stopped == "before its answer":
        with pytest.raises(CacheError, match=rf"^the process of {ME} has not ended within 0\.2 s$"):
            as_user(ME, lambda: str(os.kill(os.getpid(), stop)))
    else:
        monkeypatch.setattr(os, "write", lambda *given: (write(*given), os.kill(os.getpid(), stop)))
        assert as_user(ME, lambda: "7") == "7"


def test_a_process_that_is_killed_has_no_answer():
    with pytest.raises(CacheError, match=f"^the process of {ME} was killed$"):
        as_user(ME, lambda: str(os.kill(os.getpid(), signal.SIGKILL)))


def test_a_host_is_described_by_driver_processor_and_system(tmp_path):
    for name, text in {
        "sys/module/nvidia/version": "580.159.04\n",
        "proc/cpuinfo": "model name\t: X\nflags\t: avx2 amx\ncpu MHz\t: 1\n\nmodel name\t: X\n",
        "etc/os-release": 'ID=debian\nVERSION_ID="13"\nNAME=x\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    found = read_host(f"{tmp_path}/")
    assert (found["driver"], found["system"]) == ("nvidia 580.159.04", 'ID=debian VERSION_ID="13"')
    (tmp_path / "proc/cpuinfo").write_text("model name\t: X\nflags\t: avx2\n")
    assert read_host(f"{tmp_path}/")["processor"] != found["processor"]


@pytest.fixture
def neighbour(tmp_path):
    """What the user of all engines can read, and an engine in its sandbox cannot."""
    for name in ("ComputeCache/token", "flashinfer/token", "token"):
        (tmp_path / "neighbour" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "neighbour" / name).write_text("token of a neighbour")
    return tmp_path / "neighbour"


def names_in(archive):
    with tarfile.open(archive) as opened:
        return sorted(member.name for member in opened)


@pytest.mark.parametrize("place", ["triton", "torchinductor", ".nv", ".nv/ComputeCache", ".cache", ".cache/flashinfer"])
@pytest.mark.parametrize("way", ["absolute", "relative"])
def test_a_link_that_an_engine_puts_in_the_place_of_a_part_leads_nowhere(tmp_path, neighbour, place, way):
    cache = tmp_path / "cache/chat"
    (cache / "vllm").mkdir(parents=True)
    (cache / "vllm/graph.py").write_text("compiled")
    (cache / place).parent.mkdir(exist_ok=True)
    target = str(neighbour) if way == "absolute" else os.path.relpath(neighbour, (cache / place).parent)
    (cache / place).symlink_to(target)
    Cache(Module(tmp_path), PLAN).pack()
    assert names_in(tmp_path / "work/chat.tar.gz") == ["vllm/graph.py"]


def test_a_directory_that_becomes_a_link_while_the_archive_is_written_leads_nowhere(tmp_path, neighbour, monkeypatch):
    for name in ("vllm/a", "vllm/below/token", "vllm/z"):
        (tmp_path / "chat" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "chat" / name).write_text("compiled")
    add = tarfile.TarFile.addfile

    def exchange(archive, member, content):
        add(archive, member, content)
        if member.name == "vllm/a":
            (tmp_path / "chat/vllm/below").rename(tmp_path / "chat/vllm/other")
            (tmp_path / "chat/vllm/below").symlink_to(neighbour)

    monkeypatch.setattr(tarfile.TarFile, "addfile", exchange)
    file = io.BytesIO()
    assert caches_host.write_archive(str(tmp_path / "chat"), file) == 16
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        assert archive.getnames() == ["vllm/a", "vllm/z"]


def test_the_directory_of_a_cache_may_lie_behind_a_link_of_root(first):
    (first / "cache").rename(first / "disk")
    (first / "cache").symlink_to("disk")
    Cache(Module(first), PLAN).pack()
    assert len(names_in(first / "work/chat.tar.gz")) == 2


def test_only_the_user_who_fetches_it_can_read_an_archive(first, monkeypatch):
    given, modes, write = [], [], caches_host.write_archive

    def look(top, file):
        modes.append(os.fstat(file.fileno()).st_mode & 0o777)
        return write(top, file)

    monkeypatch.setattr(caches_host, "as_user", lambda _user, work: work())
    monkeypatch.setattr(caches_host, "write_archive", look)
    monkeypatch.setattr(os, "fchown", lambda _file, uid, gid: given.append((uid, gid)))
    Cache(Module(first, reader=1234), PLAN).pack()
    assert (given, modes) == ([(1234, -1)], [0o600])
    assert (first / "work/chat.tar.gz").stat().st_mode & 0o777 == 0o600
    assert (first / "work").stat().st_mode & 0o777 == 0o711


def test_the_error_of_a_name_that_is_no_text_arrives():
    def fail():
        raise CacheError("\udcff is odd")

    with pytest.raises(CacheError, match=r"^\? is odd$"):
        as_user(ME, fail)


def test_a_fifo_that_takes_the_place_of_a_file_holds_nobody_up_and_two_names_of_a_file_are_two(tmp_path, monkeypatch):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/a").write_text("code")
    os.link(tmp_path / "vllm/a", tmp_path / "vllm/b")
    os.mkfifo(tmp_path / "vllm/c")
    monkeypatch.setattr(caches_host, "_files", lambda _top: ["vllm/a", "vllm/b", "vllm/c"])
    file = io.BytesIO()
    assert caches_host.write_archive(str(tmp_path), file) == 8
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        assert [(member.name, member.isreg(), member.size) for member in archive] == [
            ("vllm/a", True, 4),
            ("vllm/b", True, 4),
        ]
