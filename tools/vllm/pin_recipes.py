#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write catalog/upstream/VERSION.yml: the sha256 of every recipe in vLLM's source distribution, and of its licence.

    tools/vllm/pin_recipes.py 0.33.0 [--archive FILE]

Without --archive, pip downloads the source distribution; its sha256 stands in tools/vllm/fetch_vllm_release.py.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / ".collections")]

from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_archive import (  # noqa: E402
    read_archive,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_recipes import (  # noqa: E402
    UpstreamError,
)

from tools.vllm.fetch_vllm_release import FetchError, download  # noqa: E402

HEAD = """\
---
# The recipes in the source distribution of vLLM {version}, which playbooks/fetch_recipes.yml fetches.
# Written by: tools/vllm/pin_recipes.py {version}
vllm: "{version}"
licence: Apache-2.0
archive: {{name: {name}, size: {size}, sha256: {sha256}}}
files:
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="the version of vLLM, such as 0.33.0")
    parser.add_argument("--archive", type=Path, metavar="FILE", help="a source distribution that is here already")
    arguments = parser.parse_args()
    target = ROOT / "catalog" / "upstream" / f"{arguments.version}.yml"
    try:
        with tempfile.TemporaryDirectory() as scratch:
            archive = arguments.archive or download(arguments.version, Path(scratch))
            text = pins_of(archive, arguments.version)
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except (FetchError, UpstreamError, OSError) as exc:
        print(f"pin_recipes: {exc}", file=sys.stderr)
        return 1
    print(f"{target}: {text.count('recipes/models/')} recipes")
    return 0


def pins_of(archive: Path, version: str) -> str:
    """Return the text of the file of pins."""
    content = archive.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    lines = [
        f"  {name}: {hashlib.sha256(data).hexdigest()}\n"
        for name, data in sorted(read_archive(archive, version).items())
    ]
    return HEAD.format(version=version, name=archive.name, size=len(content), sha256=sha256) + "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
