# SPDX-License-Identifier: GPL-3.0-or-later
"""Make an archive of what an instance of this host has compiled, and give it to an instance that has compiled nothing.

The cache belongs to the user that vLLM runs as. Only a process of that user reads or writes there. Where that is root
(Ascend's images), nobody does: the engine could lead root to other files of the host with links that it makes.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import platform
import pwd
import select
import shutil
import signal
import stat
import tarfile
import zlib
from typing import IO, Any, Callable, Iterator

from ..common.files_host import make_directories, make_directory, open_now, text_of
from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_trees_host import remove_tree, walk_tree
from ..common.module import Module
from ..common.processes_host import become
from ..transfer.connections import FetchError
from ..transfer.fetch import Settings, check_base, fetch_file, join_location
from ..vllm.plan_document import PlanDocument
from .caches import (
    MAX_BYTES,
    MAX_FILES,
    PARTS,
    Archive,
    CacheError,
    check_member,
    find_archive,
    identity_of,
    key_of,
    software_of,
)  # fmt: skip
from .host import Slots
from .installed_host import Host
from .restore_host import Engine, Service
from .status_host import status_of

_DRIVERS = ("nvidia", "amdgpu", "drv_davinci_intf_host")
_UNPACKED = ".unpacked"
_CHUNK = 1 << 20
# Seconds for a cache of MAX_BYTES on a slow disk.
_PATIENCE = 3600.0
_DONE = "+"
# A name that Linux accepts has at most 4 KiB.
_MOST_HEADERS = 64 << 10
_AS_ROOT = "its image serves as root, and root neither packs nor seeds a cache that an engine can change meanwhile"


def read_host(root: str = "/") -> dict[str, str]:
    """Return what compiled code depends on besides the instance's software: driver, processor, system libraries."""
    drivers = [
        f"{name} {version}" for name in _DRIVERS if (version := text_of(f"{root}sys/module/{name}/version").strip())
    ]
    lines = text_of(f"{root}proc/cpuinfo").split("\n\n")[0].splitlines()
    names = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    processor = "\n".join(line for line in lines if line.split(":")[0].strip() in names)
    system = [line for line in text_of(f"{root}etc/os-release").splitlines() if line.startswith(("ID=", "VERSION_ID="))]
    return {
        "driver": ", ".join(drivers),
        "machine": platform.machine(),
        "processor": hashlib.sha256(processor.encode()).hexdigest(),
        "system": " ".join(sorted(system)),
    }


class Cache:
    """The cache of one instance, and the key of the archive that fits it."""

    def __init__(self, module: Module, plan: PlanDocument) -> None:
        params = module.params
        self.module, self.plan, self.owner = module, plan, params["owner"]
        self.path = os.path.join(params["cache_dir"], plan["instance"])
        self.engine = Engine(module.run_command)
        self.identity = identity_of(plan, self._software(params["engine"]), read_host())
        self.key = key_of(self.identity)

    def _software(self, engine: str) -> str:
        if self.plan["venv"]:
            return software_of(self.plan, "")
        # Without an id, an image of another content could have the same name.
        return self.engine.image_id(engine, str(self.plan["image"])) or f"unknown {os.urandom(8).hex()}"

    @property
    def _is_roots(self) -> bool:
        return (self.plan["container"] or {}).get("user") == "root"

    @property
    def is_empty(self) -> bool:
        """Return whether the instance has compiled nothing yet."""
        return not any(os.path.lexists(os.path.join(self.path, part)) for part in PARTS)

    def pack(self) -> dict[str, Any]:
        """Make the archive NAME.tar.gz in ``work_dir``; return what its key is made of, or why there is none.

        Raises CacheError.
        """
        if self._is_roots:
            return {"changed": False, "made": False, "why": _AS_ROOT}
        self._refuse_unproven()
        unpacked, path = 0, os.path.join(self.module.params["work_dir"], f"{self.plan['instance']}.tar.gz")
        if not self.module.check_mode:
            make_directories(os.path.dirname(path), 0o711)
            unpacked = self._write(path)
        parts = {name: self.identity[name] for name in ("software", "host")}
        return {"changed": True, "made": True, "why": "", "unpacked": unpacked, **parts}

    def _refuse_unproven(self) -> None:
        name, run = self.plan["instance"], self.module.run_command
        host = Host("/", self.engine.image_id)
        found = status_of(host, name, Slots(host, name), Service(name, run), self.engine, None, 2)
        good = (found["good"] or {}).get("digest")
        if not found["up"] or found["stale"] or not good or good != found["digest"]:
            raise CacheError(
                f"{name}: found an instance that is not proven, expected one that runs in its last good state; run "
                "site.yml first"
            )

    def _write(self, path: str) -> int:
        """Write the archive for the user who fetches it; return the bytes of its files."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        try:
            with open(path, "xb", opener=open_now) as file:
                unpacked = as_user(self.owner, lambda: str(write_archive(self.path, file)))
                os.fchown(file.fileno(), self.module.params["reader"], -1)
        except CacheError:
            os.unlink(path)
            raise
        return int(unpacked)

    def seed(self) -> dict[str, Any]:
        """Give the instance what an equal host has compiled; return ``seeded`` and why not. Raises CacheError."""
        archive, why = None, self._unwanted()
        if not why:
            archive = find_archive(self.module.params["manifests"], self.key, self.identity)
            why = "" if archive else "no equal host has made an archive"
        if archive is None:
            return {"changed": False, "key": self.key, "seeded": False, "why": why}
        if not self.module.check_mode:
            self._fetch(archive)
        return {"changed": True, "key": self.key, "seeded": True, "why": ""}

    def _unwanted(self) -> str:
        """Return why the instance gets no archive, empty where it may."""
        if self._is_roots:
            return _AS_ROOT
        if not self.is_empty:
            return "it has compiled something itself"
        service = Service(self.plan["instance"], self.module.run_command)
        return "" if service.is_at_rest else f"its unit is {service.description}, expected one that is stopped"

    def _fetch(self, archive: Archive) -> None:
        params = self.module.params
        make_directories(params["work_dir"], 0o711)
        path = os.path.join(params["work_dir"], archive.name)
        try:
            check_base(params["source"])
            settings = Settings(ca_file=params["ca_file"] or None)
            fetch_file(join_location(params["source"], archive.name), path, archive.size, archive.sha256, settings)
            account = pwd.getpwnam(self.owner)
            make_directories(os.path.dirname(self.path))
            with contextlib.suppress(FileExistsError):
                make_directory(self.path, 0o750)
                os.chown(self.path, account.pw_uid, account.pw_gid)
            with open(path, "rb") as file:
                as_user(self.owner, lambda: unpack(file, self.path, archive.unpacked))
        except (FetchError, OSError, KeyError) as exc:
            raise CacheError(f"{archive.name}: {exc}") from exc
        finally:
            for leftover in (path, f"{path}.partial"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(leftover)


def write_archive(top: str, file: IO[bytes]) -> int:
    """Write the files of the parts of a cache, as their owner; return their bytes. Raises CacheError."""
    total, count, real = 0, 0, os.path.realpath(top)
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
        for path in sorted(_files(top)):
            with contextlib.ExitStack() as opened:
                *directories, name = path.split("/")
                try:
                    content = opened.enter_context(ForeignDirectory(real, *directories).opened(name))
                except OSError:
                    # A link or a FIFO; or since the names were read, the engine has put one there, or nothing.
                    continue
                found, member = os.fstat(content.fileno()), tarfile.TarInfo(path)
                member.size, member.mode, member.mtime = found.st_size, stat.S_IMODE(found.st_mode), found.st_mtime
                total, count = total + member.size, count + 1
                if total > MAX_BYTES or count > MAX_FILES:
                    raise CacheError(
                        f"{top}: found more than {MAX_FILES} files or {MAX_BYTES >> 30} GiB, expected a cache"
                    )
                archive.addfile(member, content)
    if not count:
        raise CacheError(f"{top}: found nothing that was compiled in {', '.join(PARTS)}; start the instance first")
    file.flush()
    return total


def _files(top: str) -> Iterator[str]:
    """Yield what the parts hold besides directories and locks. Each part is reached from the top without links."""
    for part in PARTS:
        for directory, _directories, names in walk_tree(top, part):
            below = os.path.relpath(directory, top)
            yield from (os.path.join(below, name) for name in names if not name.endswith(".lock"))


class _Unpacked(gzip.GzipFile):
    """An archive whose headers are few: tarfile keeps all that it reads before the content of a file in memory."""

    left = _MOST_HEADERS

    def read(self, size: int | None = -1) -> bytes:
        """Return some bytes. Raises CacheError where they are more than ``left``."""
        if size is None or not 0 <= size <= self.left:
            raise CacheError(f"the archive has more than {_MOST_HEADERS >> 10} KiB of headers before a file")
        self.left -= size
        return super().read(size)


def unpack(file: IO[bytes], top: str, most: int) -> str:
    """Unpack an archive into a cache that has none of its parts, as its owner. Raises CacheError."""
    fresh = os.path.join(top, _UNPACKED)
    remove_tree(fresh, ignore_errors=True)
    try:
        with _Unpacked(fileobj=file) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as archive:
            _extract(archive, unpacked, fresh, most)
        for part in PARTS:
            if os.path.isdir(os.path.join(fresh, part)):
                parent = os.path.dirname(part)
                make_directories(os.path.join(top, parent))
                if parent and os.path.islink(os.path.join(top, parent)):
                    raise CacheError(f"{top}/{parent} is a link that the engine has made; remove it")
                os.rename(os.path.join(fresh, part), os.path.join(top, part))
    except (tarfile.TarError, EOFError, OSError, zlib.error) as exc:
        raise CacheError(f"the archive cannot be unpacked: {exc}") from exc
    finally:
        remove_tree(fresh, ignore_errors=True)
    return ""


def _extract(archive: tarfile.TarFile, unpacked: _Unpacked, fresh: str, most: int) -> None:
    left, count = most, 0
    for member in iter(archive.next, None):
        # tarfile keeps every header here, which typeshed does not know.
        archive.members.clear()  # type: ignore[attr-defined]
        check_member(member)
        if archive.pax_headers:
            raise CacheError("the archive has headers for all its files, expected none")
        left, count = left - member.size, count + 1
        if left < 0 or count > MAX_FILES:
            raise CacheError(
                f"the archive holds more than the {most} bytes of its manifest; make it again with caches.yml"
            )
        path, content = os.path.join(fresh, member.name), archive.extractfile(member)
        make_directories(os.path.dirname(path))
        unpacked.left = member.size
        with open(path, "xb") as out:
            # For mypy: check_member has refused what has no content.
            if content:
                shutil.copyfileobj(content, out, _CHUNK)
        unpacked.left = _MOST_HEADERS
        os.chmod(path, 0o700 if member.mode & 0o100 else 0o600)
        # Builds compare times.
        os.utime(path, (member.mtime, member.mtime))


def as_user(user: str, work: Callable[[], str]) -> str:
    """Run a function in a process of this user; return its text. Raises CacheError with the message of its error.

    Other processes of the user, such as an engine, can stop it: after _PATIENCE, and after its answer, it is killed.
    """
    account = pwd.getpwnam(user)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _run_as(account, work, writer)
    os.close(writer)
    try:
        ready = select.select([reader], [], [], _PATIENCE)[0]
        answer = os.read(reader, 4096).decode("utf-8", "replace") if ready else ""
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not answer.startswith(_DONE):
        late = f"the process of {user} " + ("was killed" if ready else f"has not ended within {_PATIENCE:g} s")
        raise CacheError(answer[1:] or late)
    return answer[1:]


def _run_as(account: pwd.struct_passwd, work: Callable[[], str], writer: int) -> None:
    """Become the user, run, write the text or the error behind a sign that says which it is, and end."""
    sign = "-"
    try:
        if os.geteuid() == 0:
            become(account)()
        os.umask(0o077)
        text, sign = work(), _DONE
    except BaseException as exc:  # the process ends here
        text = str(exc) or type(exc).__name__
    os.write(writer, (sign + text).encode("utf-8", "replace")[:4096])
    os._exit(0)
