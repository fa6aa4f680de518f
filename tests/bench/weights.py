#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast weights come, verified, beside clients that verify nothing, from the same nginx over loopback.

All take turns in the same minutes: the ratios are the result, not the seconds. Ours hashes and calls fsync, which takes
processor time that the others do not need: where other work keeps the processors busy, the ratio is that of processor
time, so the load is printed too. The hub's client is measured with --hub-python, a Python that has huggingface_hub.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PORT = 8899
MEGABYTE = 1_000_000
OURS = """
import json, sys
sys.path[:0] = [sys.argv[1]]
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import (
    DownloadRequest, Settings, fetch_files
)
fetch_files([DownloadRequest(*file) for file in json.load(sys.stdin)], Settings())
"""
# Nothing to do: a manifest of the largest bundled model, files and stamp as a run leaves them, but without their bytes.
NOTHING = """
import json, sys
sys.path[:0] = [sys.argv[1]]
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.files_host import stat_files, write_stamp
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import inspect_weights
manifest = parse_manifest(json.load(sys.stdin))
if sys.argv[3] == "stamp":
    directory = f"{sys.argv[2]}/{manifest.path}"
    write_stamp(directory, manifest, stat_files(directory, manifest))
assert not inspect_weights(sys.argv[2], manifest).changed
"""
CONF = """worker_processes 2; pid {0}/nginx.pid; error_log {0}/error.log; daemon off; user root;
events {{ worker_connections 256; }}
http {{
  sendfile on; access_log off;
  server {{
    listen 127.0.0.1:{1}; root {0}/site;
    location /acme/ {{ rewrite ^/acme/[a-z]+/resolve/[0-9a-f]+/(.*)$ /$1 break; add_header X-Repo-Commit {2} always; }}
    location /api/ {{ rewrite ^/api/models/acme/([a-z]+)/tree/.*$ /$1.json break; default_type application/json; }}
  }}
}}
"""
REVISION = "0123456789" * 4
HUB = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(f"acme/{sys.argv[1]}", revision=sys.argv[2], local_dir=sys.argv[3], max_workers=8)
"""
HUB_ENVIRONMENT = {
    "HF_ENDPOINT": f"http://127.0.0.1:{PORT}",
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "no_proxy": "127.0.0.1",
}


@contextlib.contextmanager
def nginx(home: Path) -> Iterator[None]:
    (home / "nginx.conf").write_text(CONF.format(home, PORT, REVISION))
    server = subprocess.Popen(["nginx", "-c", home / "nginx.conf"])
    time.sleep(1)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def make(home: Path, prefix: str, count: int, size: int) -> list[list[object]]:
    """Write files; return what is wanted of them."""
    (home / "site").mkdir(exist_ok=True)
    wanted = []
    for number in range(count):
        name, digest = f"{prefix}-{number}", hashlib.sha256()
        with open(home / "site" / name, "wb") as file:
            # In pieces, so that no child begins with this program's memory.
            for first in range(0, size, MEGABYTE):
                piece = os.urandom(min(MEGABYTE, size - first))
                digest.update(piece)
                file.write(piece)
        wanted.append([f"http://127.0.0.1:{PORT}/{name}", str(home / "out" / name), size, digest.hexdigest()])
    names = [Path(str(file[0])).name for file in wanted]
    tree = [{"type": "file", "path": name, "size": size, "oid": "0" * 40} for name in names]
    (home / "site" / f"{prefix}.json").write_text(json.dumps(tree))
    return wanted


def measure(command: list[str], out: Path, stdin: str = "") -> tuple[float, float]:
    """Return seconds and the most memory (MiB) that a command took, with an empty directory to write to."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    started = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    child.stdin.write(stdin.encode())
    child.stdin.close()
    _pid, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)[:80]} ended with {child.returncode}")
    return time.monotonic() - started, usage.ru_maxrss / 1024


def contenders(
    wanted: list[list[object]], out: Path, title: str = "", hub_python: str = ""
) -> dict[str, tuple[list[str], str]]:
    urls = [str(file[0]) for file in wanted]
    pairs = [word for file in wanted for word in (str(file[0]), "-o", str(file[1]))]
    found = {
        "ours, sha256 verified": ([sys.executable, "-c", OURS, str(TOP / ".collections")], json.dumps(wanted)),
        "curl --parallel": (["curl", "-s", "--parallel", "--parallel-max", "8", *pairs], ""),
        "curl": (["curl", "-s", *pairs], ""),
    }
    if shutil.which("aria2c"):
        options = ["-q", "-d", str(out), "-x8", "-s8", "-j8", "--file-allocation=none", "-k", "8M", "--input-file=-"]
        found["aria2c -x8"] = (["aria2c", *options], "\n".join(urls))
    if hub_python:
        found["hub client"] = ([hub_python, "-c", HUB, title, REVISION, str(out)], "")
    return found


def compare(title: str, wanted: list[list[object]], out: Path, rounds: int, hub_python: str) -> None:
    runs = contenders(wanted, out, title, hub_python)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    memory: dict[str, float] = {}
    for _round in range(rounds):
        for name, (command, stdin) in runs.items():
            took, memory[name] = measure(command, out, stdin)
            if sum(1 for file in wanted if (out / Path(str(file[1])).name).stat().st_size == file[2]) < len(wanted):
                sys.exit(f"{name} has not brought all files")
            seconds[name].append(took)
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    size = sum(int(file[2]) for file in wanted) / MEGABYTE
    print(f"{title} files: {len(wanted)}, {size:.0f} MB, median of {rounds}, load {os.getloadavg()[0]:.1f}")
    for name, took in middle.items():
        print(f"  {name:24} {took:6.2f} s  {size / took:6.0f} MB/s  {memory[name]:4.0f} MiB")
    ours = middle.pop("ours, sha256 verified")
    print("  ours is " + ", ".join(f"{took / ours:.2f} of {name}" for name, took in middle.items()))
    print(f"  ours at {min(middle.values()) / ours:.2f} of the fastest other")


def nothing_to_do(home: Path) -> None:
    import yaml

    manifest = yaml.safe_load((TOP / "catalog/weights/openai/gpt-oss-120b.yml").read_text())
    directory = home / "models" / manifest["repository"] / manifest["revision"]
    for name, file in manifest["files"].items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        with open(directory / name, "wb") as sparse:
            sparse.truncate(file["size"])
    words = [sys.executable, "-c", NOTHING, str(TOP / ".collections"), str(home / "models")]
    text = json.dumps(manifest)
    measure([*words, "stamp"], home / "out", text)
    base = statistics.median(measure([sys.executable, "-c", "pass"], home / "out")[0] for _round in range(5))
    took = statistics.median(measure([*words, "look"], home / "out", text)[0] for _round in range(5))
    print(f"nothing to do on gpt-oss-120b: {took:.2f} s, {took / base:.1f} x a bare Python ({base:.2f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--small", type=int, default=500, help="small files (default 500)")
    parser.add_argument("--hub-python", default="", help="a Python that has huggingface_hub")
    parser.add_argument("--directory", help="where to write; the file system that is measured (default: that of /tmp)")
    options = parser.parse_args()
    os.environ.update(HUB_ENVIRONMENT)
    for tool in ("nginx", "curl"):
        if not (shutil.which(tool) or shutil.which(tool, path="/usr/sbin")):
            sys.exit(f"{tool} is not installed: apt-get install nginx-light curl aria2")
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        home = Path(name)
        large = make(home, "large", 4, options.megabytes * MEGABYTE // 4)
        small = make(home, "small", options.small, 100_000)
        with nginx(home):
            compare("large", large, home / "out", options.rounds, options.hub_python)
            compare("small", small, home / "out", options.rounds, options.hub_python)
        nothing_to_do(home)


if __name__ == "__main__":
    main()
