#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a new vLLM release into the catalogue, and show what changes: options, parsers, metrics, endpoints, recipes.

    tools/vllm/adopt_release.py 0.34.0 [--archive FILE] [--catalog DIR] [--compare 0.33.0]

pip downloads the source distribution, as it is configured here. The tool writes VERSION.yml into catalog/options,
catalog/surface and, if the release carries recipes, catalog/upstream; it imports nothing of vLLM. The status is 1 if
the release lacks a metric or an endpoint that this collection reads.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / ".collections")]

from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.questions import (  # noqa: E402
    CHECKS,
    Question,
    request_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_recipes import (  # noqa: E402
    MODELS,
    UpstreamError,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.versions import sort_key  # noqa: E402
from ansible_collections.baremetal.inference.plugins.plugin_utils.drift.options import differences_of  # noqa: E402
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.paths import (  # noqa: E402
    BY_TASK,
    paths_of,
)

from tools.vllm import read_options  # noqa: E402
from tools.vllm.fetch_vllm_release import SOURCES, FetchError, download, unpack  # noqa: E402
from tools.vllm.pin_recipes import pins_of  # noqa: E402
from tools.vllm.surface import METRIC, has_metric, metrics, routes  # noqa: E402

# A longer list of names ends with how many more there are.
MOST = 12


class Indented(yaml.SafeDumper):
    """Indent lists, as ansible-lint demands."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Ignore that YAML allows lists without indentation."""
        super().increase_indent(flow, indentless=False)


@dataclass(frozen=True)
class Release:
    """What the catalogue has of a release: its option table, its surface, and the sha256 of its recipes by name."""

    version: str
    options: Mapping[str, Any]
    surface: Mapping[str, Sequence[str]]
    recipes: Mapping[str, str]


def main() -> int:
    options = arguments()
    began = time.monotonic()
    try:
        write_files(options.version, options.archive, options.catalog)
        releases = sorted((path.stem for path in (options.catalog / "surface").glob("*.yml")), key=sort_key)
        older = options.compare or next((one for one in reversed(releases) if one != options.version), options.version)
        before, after = (read_release(version, options.catalog) for version in (older, options.version))
        missing = list(missing_uses(after))
        print("\n".join(report(before, after, missing)))
    except (FetchError, UpstreamError, read_options.ReadError, tarfile.TarError, OSError) as exc:
        print(f"adopt_release: {' '.join(str(exc).split())}", file=sys.stderr)
        return 1
    print(f"read in {time.monotonic() - began:.0f} s; next: docs/contribute/add-a-flag-or-release.md")
    return 1 if missing else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="the version of vLLM, such as 0.34.0")
    parser.add_argument("--archive", type=Path, metavar="FILE", help="a source distribution that is here already")
    parser.add_argument("--catalog", type=Path, default=ROOT / "catalog", metavar="DIR", help="default: catalog/")
    parser.add_argument("--compare", metavar="VERSION", help="the release to compare with (default: the newest other)")
    return parser.parse_args()


def write_files(version: str, archive: Path | None, catalog: Path) -> None:
    """Write what the catalogue has of a release."""
    with tempfile.TemporaryDirectory() as scratch:
        archive = archive or fetch(version, Path(scratch))
        source = Path(scratch) / "source"
        unpack(archive, source)
        surface = {"vllm": version, "metrics": metrics(source / "vllm"), "routes": routes(source / "vllm")}
        texts = {
            "options": options_table(version, source),
            "surface": f"---\n# Written by: tools/vllm/adopt_release.py {version}\n"
            + yaml.dump(surface, Dumper=Indented),
        }
        if (source / MODELS).is_dir():
            texts["upstream"] = pins_of(archive, version)
    for part, text in texts.items():
        path = catalog / part / f"{version}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def fetch(version: str, scratch: Path) -> Path:
    """Return the source distribution, with the sha256 that stands in the repository, else with the index's own."""
    if version not in SOURCES:
        print(
            f"adopt_release: the sha256 of {version} is not in tools/vllm/fetch_vllm_release.py: the index is trusted"
        )
    return download(version, scratch)


def options_table(version: str, source: Path) -> str:
    """Return the option table of a source tree, in a separate process: the argument code of vLLM runs in it."""
    command = [
        sys.executable,
        str(ROOT / "tools" / "vllm" / "read_options.py"),
        version,
        "--site-packages",
        str(source),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise read_options.ReadError(done.stderr.strip().replace("read_options: ", ""))
    return done.stdout


def read_release(version: str, catalog: Path) -> Release:
    """Return what the catalogue has of a release; a part without a file is empty."""
    parts = {}
    for part in ("options", "surface", "upstream"):
        path = catalog / part / f"{version}.yml"
        parts[part] = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    files = parts["upstream"].get("files") or {}
    recipes = {path[len(MODELS) :].rpartition(".")[0]: sha256 for path, sha256 in files.items() if path != "LICENSE"}
    return Release(version, parts["options"], parts["surface"], recipes)


def report(before: Release, after: Release, missing: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the comparison."""
    yield f"vLLM {after.version}, compared with {before.version}"
    old, new = before.options.get("flags") or {}, after.options.get("flags") or {}
    yield from change("flags", old, new, [name for name in new if name in old and differences_of(old[name], new[name])])
    had, has = variables_of(before.options), variables_of(after.options)
    yield from change("variables", had, has, [name for name in has if name in had and had[name] != has[name]])
    for flag in ("tool-call-parser", "reasoning-parser"):
        yield from change(f"{flag}s", *((flags.get(flag) or {}).get("known") or () for flags in (old, new)))
    for part in ("metrics", "routes"):
        yield from change(part, before.surface.get(part) or (), after.surface.get(part) or ())
    changed = [name for name, sha256 in after.recipes.items() if before.recipes.get(name) not in (None, sha256)]
    yield from change("recipes", before.recipes, after.recipes, changed)
    yield from (f"MISSING: {text}" for text in missing)


def variables_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of each variable of a table; of a choice with its values."""
    kinds: Mapping[str, Any] = options.get("env") or {}
    return {name: (kind, names[name] if kind == "choice" else ()) for kind, names in kinds.items() for name in names}


def change(what: str, before: Iterable[str], after: Iterable[str], changed: Sequence[str] = ()) -> Iterator[str]:
    """Yield the line of a kind of names, and a line for each way in which they differ."""
    old, new = set(before), set(after)
    yield f"{what}: {len(old)} -> {len(new)}"
    for verb, names in (("appear", new - old), ("vanish", old - new), ("change", set(changed))):
        if names:
            more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
            yield f"  {len(names)} {verb}: {', '.join(sorted(names)[:MOST])}{more}"


def missing_uses(release: Release) -> Iterator[str]:
    """Yield each metric and endpoint that this collection reads and the release does not have."""
    names = set(release.surface["metrics"])
    for name, file in sorted(used_metrics().items()):
        if not has_metric(name, names):
            yield f"metric {name}, which {file} reads"
    known = {re.sub(r"\{[^}]*\}", "<id>", route) for route in release.surface["routes"]}
    for route in used_routes():
        if route not in known:
            yield f"endpoint {route}"


def used_metrics() -> dict[str, str]:
    """Return a file for each metric that this collection reads."""
    found = {}
    for folder in ("plugins", "roles", "playbooks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".yml", ".j2", ".lua") and path.is_file():
                for name in METRIC.findall(path.read_text(encoding="utf-8")):
                    found[name] = str(path.relative_to(ROOT))
    return {name: file for name, file in found.items() if not is_beginning(name, found)}


def is_beginning(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is only the beginning of others, as in a pattern."""
    return any(other.startswith(f"{name}_") and not has_metric(other, {name}) for other in names)


def used_routes() -> list[str]:
    """Return the routes that checks ask and that a gateway allows; a model's own page is vLLM's list of models."""
    question = Question(("model",), "x", "x", "", 1)
    asked = {" ".join(request_of(name, question)[:2]) for name in CHECKS}
    allowed = {f"{path['methods']} {path['value']}" for path in paths_of(tuple(BY_TASK), []) if path["match"] == "str"}
    return sorted({*asked, *allowed, "GET /health"})


if __name__ == "__main__":
    sys.exit(main())
