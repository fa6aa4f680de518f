# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the collection's gpt-oss recipes with every strategy over several hosts:  groups.py CATALOG

They name only what somebody has run. The copies go below recipes, beside this file.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
STRATEGIES = (
    "single_node_tp",
    "multi_node_tp",
    "multi_node_tep",
    "multi_node_tp_pp",
    "multi_node_dep",
    "multi_node_tp_dp",
)


def main(catalog: Path) -> None:
    """Write the copies."""
    for name in ("baremetal/gpt-oss-smoke.yaml", "openai/gpt-oss-20b.yml"):
        before, after = (catalog / "recipes" / name).read_text(encoding="utf-8").split("compatible_strategies:\n", 1)
        lines = after.splitlines()
        while lines and lines[0].startswith("  - "):
            del lines[0]
        text = before + "compatible_strategies:\n" + "".join(f"  - {each}\n" for each in STRATEGIES)
        target = HERE / "recipes" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join([text.rstrip("\n"), *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
