# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a virtual environment from a lock of wheels, beside the one that it replaces."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import platform
import shutil
import zipfile
from hashlib import sha256
from typing import Any, Callable, Iterator, Protocol
from urllib.parse import urljoin

from ..common.files_host import create, existing_above, locked, make_directories, make_directory, sync_directory
from ..common.foreign_text import quote_foreign
from ..common.foreign_trees_host import remove_tree
from ..common.module import Module
from ..common.mounts_host import check_unmounted
from .environment_host import DAMAGED, find_damage, mark_verified, set_aside
from .index import Link
from .venv import (
    Lock,
    VenvError,
    check_host,
    check_listed,
    check_space,
    choose_tool,
    directory_name,
    explain_failure,
    parse_lock,
    uv_environment,
)

# The page of a project and a wheel of uv are far smaller.
DOWNLOAD_LIMIT = 256 << 20
# To wait for another run, which downloads and compiles an environment.
BUILD_SECONDS = 3600.0
# 7,700 of the 20,700 files of vLLM 0.32.0's environment and half the time: tests, and packages of which a start imports
# nothing or one model's few files. Anything imported from them is compiled in memory.
NOT_COMPILED = "/(tests?|testing|transformers/models/[^_][^/]*|anthropic|numba)/"


class Index(Protocol):
    """A simple index; every method raises VenvError."""

    url: str

    def get(self, url: str, most: int) -> bytes:
        """Return the content of url, at most ``most`` bytes."""

    def links(self, url: str, most: int) -> list[Link]:
        """Return what a page of the index links to."""

    def projects(self) -> list[str] | None:
        """Return the projects that the index lists; None if the list is too long for a mirror."""


def ensure(module: Module, open_index: Callable[[], Index]) -> dict[str, Any]:
    """Create the environment unless it exists, and return the module's result."""
    root, requirements = module.params["root"], module.params["requirements"]
    lock = parse_lock(requirements)
    path = os.path.join(root, directory_name(module.params["name"], requirements))
    result = {"changed": False, "path": path, "packages": len(lock.contents()), "damage": []}
    check_host(lock.target, module.params["python"], python_version(module), platform.machine())
    damage = find_damage(path, lock.contents()) if os.path.isdir(path) else []
    if os.path.isdir(path) and not damage:
        return {**result, "changed": link_for_linker(module, path)}
    if damage:
        # Before minutes of work for an environment that could not take its place.
        check_unmounted(path)
        module.warn(describe_damage(path, damage))
    index = open_index()
    check(module, lock, index)
    if not module.check_mode:
        make_directories(root)
        # A second run on the host would remove what this one has begun.
        with locked(os.path.join(root, ".lock"), BUILD_SECONDS):
            if os.path.isdir(path) and not damage:
                return result
            build(module, lock, index, path)
            mark_verified(path, lock.contents())
    pinned = "".join(f"{pin.name}=={pin.version}\n" for pin in lock.contents())
    return {
        **result,
        "changed": True,
        "damage": damage,
        "diff": {
            "before_header": path,
            "after_header": path,
            "before": "".join(f"damaged: {text}\n" for text in damage),
            "after": pinned,
        },
    }


def describe_damage(path: str, damage: list[str]) -> str:
    """Return a sentence about a damaged environment, with its first three faults."""
    more = f" and {len(damage) - 3} more" if len(damage) > 3 else ""
    return f"{path} is damaged: {', '.join(damage[:3])}{more}. It is built again from its lock, beside the old one"


def link_for_linker(module: Module, path: str) -> bool:
    """Create the links by which the linker finds CUDA's libraries; return whether one was missing.

    NVIDIA's wheels have only libcudart.so.13, and some drivers only libcuda.so.1, but FlashInfer links its kernels with
    -lcudart and -lcuda.
    """
    wanted = {}
    for library in glob.glob(f"{glob.escape(path)}/lib/python3*/site-packages/nvidia/cu*/lib/libcudart.so.*"):
        directory = os.path.dirname(library)
        wanted[os.path.join(directory, "libcudart.so")] = os.path.basename(library)
        driver = driver_library(module)
        if driver:
            wanted[os.path.join(directory, "libcuda.so")] = driver
    changed = [link for link, target in wanted.items() if not (os.path.islink(link) and os.readlink(link) == target)]
    for link in changed if not module.check_mode else ():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(link)
        os.symlink(wanted[link], link)
    return bool(changed)


def driver_library(module: Module) -> str:
    """Return the path of the driver's libcuda.so.1 by the dynamic linker's cache, empty where it has none."""
    ldconfig = module.get_bin_path("ldconfig", opt_dirs=["/sbin", "/usr/sbin"])
    out = module.run_command([ldconfig, "-p"])[1] if ldconfig else ""
    return next((line.split(" => ")[1] for line in out.splitlines() if line.strip().startswith("libcuda.so.1 ")), "")


def compile_bytecode(module: Module, path: str) -> None:
    """Compile what vLLM may import.

    The service's user writes nothing here: each process would compile 5,000 files at each start, and spend 20.8 s of
    CPU time in place of 9.2 s on what vLLM 0.32.0 imports. Here it is done once for all instances, and before a rollout
    takes the host out of service.
    """
    packages = glob.glob(os.path.join(glob.escape(path), "lib", "python3*", "site-packages"))
    # Many packages have files that no Python can compile (templates, tests), so the exit status means nothing.
    module.run_command([f"{path}/bin/python", "-I", "-m", "compileall", "-q", "-j", "0", "-x", NOT_COMPILED, *packages])


def check(module: Module, lock: Lock, index: Index) -> None:
    """Raise VenvError for every problem that can be found before anything is written."""
    root = module.params["root"]
    existing = existing_above(root)
    check_space(existing, shutil.disk_usage(existing).free, module.params["size_bytes"])
    lock.tool  # noqa: B018  raises when there is none
    if module.check_mode and not module.params["check_index"]:
        return
    listed = index.projects()
    if listed is not None:
        check_listed(lock, listed, index.url)


def python_version(module: Module) -> str:
    """Return version, like 3.11, of the host's Python."""
    python = module.params["python"]
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    if not os.access(python, os.X_OK):
        raise VenvError(
            f"{python} is not a program on this host; set the option python (vllm_python) to the Python that vLLM is "
            "to run on"
        )
    _rc, out, _err = module.run_command([python, "-I", "-S", "-c", code], check_rc=True)
    return str(out).strip()


def build(module: Module, lock: Lock, index: Index, path: str) -> None:
    """Create the environment at path. Leaves only the finished one, and uv."""
    root, name = os.path.split(path)
    # The service's user must read these files, whatever root's umask is.
    os.umask(0o022)
    remove_leftovers(root)
    # uv locks the environment and its cache by files that everybody may open, and waits for who holds one: here nobody
    # else reaches them.
    scratch = os.path.join(root, f".{name}.partial")
    partial, cache = os.path.join(scratch, name), os.path.join(scratch, "cache")
    with cleaned_up(root):
        make_directory(scratch, 0o700)
        uv = ensure_uv(lock, index, root)
        wanted = uv_environment(os.environ, index.url, module.params["ca_file"], cache)
        # run_command can add variables, but not remove those of the host's login environment.
        os.environ.clear()
        os.environ.update(wanted)
        run(module, [uv, "venv", "--relocatable", "--python", module.params["python"], partial], index.url, root)
        locked = os.path.join(partial, "requirements.txt")
        with open(locked, "w", encoding="utf-8") as file:
            file.writelines(f"{pin.text()}\n" for pin in lock.contents())
        sync = [
            uv,
            "pip",
            "sync",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--python",
            f"{partial}/bin/python",
            locked,
        ]
        run(module, sync, index.url, root)
        compile_bytecode(module, partial)
        link_for_linker(module, partial)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(partial, ".lock"))
        # Tens of thousands of files: one sync of the disk, so that they are complete after a power cut.
        os.sync()
        set_aside(path)
        os.rename(partial, path)
        sync_directory(root)


def run(module: Module, command: list[str], index_url: str, root: str) -> None:
    """Run uv. Raises VenvError with one sentence when it fails."""
    rc, out, err = module.run_command(command)
    if rc:
        raise VenvError(explain_failure(err or out, index_url, root))


@contextlib.contextmanager
def cleaned_up(root: str) -> Iterator[None]:
    """Remove unfinished files and uv's cache, however the block ends."""
    try:
        yield
    finally:
        remove_leftovers(root)


def remove_leftovers(root: str) -> None:
    """Remove the files that a killed run has left."""
    for suffix in ("partial", "cache", DAMAGED):
        for path in glob.glob(os.path.join(glob.escape(root), f".*.{suffix}")):
            remove_tree(path)


def ensure_uv(lock: Lock, index: Index, root: str) -> str:
    """Return the path of the uv that the lock pins; download it from the index if it is missing."""
    pin = lock.tool
    directory = os.path.join(root, f"uv-{pin.version}")
    program = os.path.join(directory, "uv")
    if os.path.exists(program):
        return program
    links = index.links(urljoin(index.url, "uv/"), DOWNLOAD_LIMIT)
    link, digests = choose_tool(pin, links, platform.machine(), index.url)
    wheel = index.get(link.url, DOWNLOAD_LIMIT)
    if sha256(wheel).hexdigest() not in digests:
        raise VenvError(
            f"{quote_foreign(link.url)}: sha256 is {sha256(wheel).hexdigest()}, "
            f"the lock has {', '.join(sorted(digests))}; carry the wheel to the mirror again (playbooks/mirror.yml)"
        )
    partial = os.path.join(root, f".uv-{pin.version}.partial")
    make_directory(partial)
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        # One static program; the rest of the wheel is a Python wrapper.
        create(os.path.join(partial, "uv"), archive.read(f"uv-{pin.version}.data/scripts/uv"), 0o755)
    sync_directory(partial)
    os.rename(partial, directory)
    sync_directory(root)
    return program
