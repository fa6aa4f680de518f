#!/usr/bin/env python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the encodings into OUT/encodings, the directory of a mirror, as the role encodings puts them on a host.

They come out of a wheel of oss-harmony in OUT/wheels when there is one, else from their publisher.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.baremetal.inference.plugins.module_utils._encodings import (  # noqa: E402
    ENCODINGS,
    PUBLISHER,
    EncodingsError,
)
from ansible_collections.baremetal.inference.plugins.module_utils._encodings_host import (  # noqa: E402
    bring,
    check_sources,
    choose,
    look,
)
from ansible_collections.baremetal.inference.plugins.module_utils._fetch import Settings  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory of the mirror, such as /srv/mirror")
    parser.add_argument(
        "--source", action="append", help="where to look instead: see encodings_sources; may be repeated"
    )
    parser.add_argument("--ca-file", help="PEM file with authorities that are trusted beside the system's")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    sources = arguments.source or [*map(str, sorted(out.glob("wheels/oss_harmony-*.whl"), reverse=True)), PUBLISHER]
    try:
        check_sources(sources)
        settings = Settings(ca_file=arguments.ca_file)
        chosen = [choose(state, sources, settings) for state in look(str(out / "encodings"), list(ENCODINGS))]
        for outcome in [bring(outcome, sources, settings) for outcome in chosen]:
            print(f"{outcome.state.path}: {f'from {outcome.source}' if outcome.state.changed else 'up to date'}")
    except (OSError, EncodingsError) as exc:
        print(f"fetch_encodings: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
