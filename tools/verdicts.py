#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what the plan says of many requests into tests/fixtures/verdicts.json, so that review sees what changes.

    tools/verdicts.py [PART...]     recipes, commands, inventories, upstream (needs tools/vllm/fetch_vllm_release.py)

A verdict is a list of kinds of sentences: none for a plan without a warning, `refused: ...` for none. In a kind, names
and numbers are `_`. A command of the part `commands` is read where it stands as a key, HOST | COMMAND: add one with an
empty value, and run this.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.answer import AdoptRequest, adopted_plan  # noqa: E402
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import CommandError  # noqa: E402
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue  # noqa: E402
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import known_names, load_recipe  # noqa: E402
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import Bench  # noqa: E402

from tools.vllm.fetch_vllm_release import sources  # noqa: E402

RECORD = ROOT / "tests" / "fixtures" / "verdicts.json"
HOSTS = (
    "a100:8", "h100:8", "h200:8", "b200:8", "l40s:4", "rtx_5090:2", "rtx_3090:2", "gb10", "mi300x:8", "mi355x:8",
    "r9700:4", "strix_halo:1", "ascend_a2:8", "ascend_a3:16", "ascend_310p:8", "arc_pro_b60:4", "cpu",
)  # fmt: skip
FEW = ("h200:8", "rtx_5090:1", "mi355x:8", "ascend_a3:16")
INVENTORIES = ("inventories/example", "inventories/four-servers", "inventories/lab", "tests/gpu/site")
Verdict = list[str]
_MASKED = re.compile(r"'[^']*'|\"[^\"]*\"|\$\{?\w+\}?|(?<![\w/.-])[\w.@/-]*/[\w.@-]+|\b\d[\d.,]*")
# Notes of nearly every request.
_USUAL = re.compile(r"host: listens on|no manifest pins the weights|.*the role vllm sets for its containers")


def kind(text: str) -> str:
    """Return the first clause of a sentence without its place, names and numbers."""
    clause = re.sub(r"^vllm_instances(?:\.\w[\w-]*)?(?=[.:])[.: ]*", "", text).partition("; ")[0]
    return re.sub(_MASKED, "_", clause)[:120]


def verdict(problem: str, notes: Iterable[str] = ()) -> Verdict:
    """Return the kinds of a problem or, without one, of notes."""
    if problem:
        return [f"refused: {kind(problem)}"]
    return sorted({found for found in map(kind, notes) if not _USUAL.match(found)})


def of_command(text: str, host: str = "", **options: Any) -> Verdict:
    """Return what adopt.yml and the plan of its entry say of a command, with the words that it leaves out."""
    try:
        _start, adopted, compared = adopted_plan(AdoptRequest(accelerator=host, **options), text)
    except CommandError as exc:
        return [f"unread: {kind(str(exc))}"]
    left_out = [f"left out: {word if word[:2] == '--' else 'a variable'}: {why}" for word, why in adopted.left_out]
    return verdict(compared.problem, [*left_out, *(compared.plan["warnings"] if compared.plan else ())])


def of_recipes(names: Iterable[str], hosts: Iterable[str], directories: list[str]) -> Iterator[tuple[str, Verdict]]:
    """Yield each variant of recipes, with its sentences on each host."""
    bench = Bench(load_catalogue(), "", {"recipe_path": directories})
    tried = bench.hosts(list(hosts), [])
    for name in sorted(names):
        found: dict[str, Verdict] = {}
        for trial in bench.try_recipe(name, load_recipe(name, directories), tried):
            words = verdict("", trial.plan["warnings"]) if trial.plan else verdict(trial.problem)
            where = f"on {trial.accelerator.count} x {trial.accelerator.model}"
            found.setdefault(f"{name} {trial.variant}", []).extend(f"{where}: {word}" for word in words)
        yield from found.items()


def of_inventory(directory: str) -> Iterator[tuple[str, Verdict]]:
    """Yield the instances of an inventory, or why it is refused."""
    with tempfile.TemporaryDirectory() as out:
        words = ["-i", directory, "playbooks/render.yml", "-e", f"render_dir={out}"]
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ansible-playbook")), *words],
            cwd=ROOT, capture_output=True, text=True, check=False,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "FRA1_API_KEY": "none"},
        )  # fmt: skip
        if done.returncode:
            yield directory, verdict(" ".join((done.stdout + done.stderr).partition("cannot be planned.")[2].split()))
        for path in sorted(Path(out).glob("*/*/plan.json")):
            plan = json.loads(path.read_text(encoding="utf-8"))
            yield f"{directory} {plan['host']} {plan['instance']}", verdict("", plan["warnings"])


def recipes(_known: Mapping[str, Any]) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdicts of the collection's recipes."""
    yield from of_recipes(known_names("recipes", (".yaml", ".yml"), []), HOSTS, [])


def commands(known: Mapping[str, Any]) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdicts of public command lines."""
    for entry in yaml.safe_load((ROOT / "tests/fixtures/commands.yml").read_text(encoding="utf-8")):
        text = " ".join(entry["text"].split()) if entry.get("joined") else entry["text"]
        options = {name: entry[name] for name in ("model", "service") if name in entry}
        yield entry["source"], of_command(text, entry.get("accelerator", ""), **options)
    for entry in yaml.safe_load((ROOT / "tests/parity/seeds.yml").read_text(encoding="utf-8"))["commands"]:
        yield f"seed {entry['id']}", of_command(entry["command"].replace("...", "openai/gpt-oss-120b"), "b200:8")
    for key in known:
        host, separator, text = key.partition(" | ")
        if separator:
            yield key, of_command(text, host)


def inventories(_known: Mapping[str, Any]) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdicts of the inventories of a checkout."""
    for directory in INVENTORIES:
        yield from of_inventory(directory)


def upstream(_known: Mapping[str, Any]) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdicts of the recipes that vLLM carries, and of the commands of their guides."""
    top = sources("0.33.0") / "recipes" / "models"
    paths = {str(path.relative_to(top).with_suffix("")): path for path in sorted(top.rglob("*.yaml"))}
    yield from of_recipes(paths, FEW, [str(top)])
    for name, path in paths.items():
        guide = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).get("guide") or ""
        for number, block in enumerate(re.findall(r"```\w*\n(.*?)```", guide, re.S)):
            if re.search(r"vllm serve|api_server|docker run|podman run|services:", block):
                yield f"{name} #{number}", of_command(block, "h200:8")


PARTS: dict[str, Callable[[Mapping[str, Any]], Iterator[tuple[str, Verdict]]]] = {
    "recipes": recipes,
    "commands": commands,
    "inventories": inventories,
    "upstream": upstream,
}


def read() -> dict[str, dict[str, Verdict]]:
    """Return the record: of each part, the verdicts by request."""
    document = json.loads(RECORD.read_text(encoding="utf-8"))
    texts = document.pop("texts")
    return {
        part: {key: [texts[code] for code in codes.split()] for key, codes in found.items()}
        for part, found in document.items()
    }


def write(record: Mapping[str, Mapping[str, Verdict]]) -> None:
    """Write the record, each text once."""
    texts = {text for found in record.values() for each in found.values() for text in each}
    codes = {text: hashlib.sha256(text.encode()).hexdigest()[:6] for text in texts}
    document: dict[str, Any] = {"texts": {codes[text]: text for text in sorted(texts)}}
    for part, found in record.items():
        # Requests that are found again each time stand here only with a sentence.
        kept = {key: each for key, each in found.items() if each or " | " in key}
        document[part] = {key: " ".join(codes[text] for text in each) for key, each in kept.items()}
    if len({*codes.values()}) < len(texts):
        raise SystemExit("verdicts: two texts have one code; make codes longer")
    RECORD.write_text(json.dumps(document, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def differences(part: str) -> list[str]:
    """Return what differs from the record now: each request with the sentences that are gone (-) and new (+)."""
    known = read()[part]
    now = dict(PARTS[part](known))
    lines = []
    for key in [*known, *(key for key in now if key not in known)]:
        before, after = known.get(key, []), now.get(key, [])
        changed = [f"  - {text}" for text in before if text not in after]
        changed += [f"  + {text}" for text in after if text not in before]
        lines += [f"{key}:", *changed] if changed else []
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help="all where none is named")
    record: dict[str, dict[str, Verdict]] = read() if RECORD.exists() else {}
    for part in parser.parse_args().parts or PARTS:
        record[part] = dict(PARTS[part](record.get(part, {})))
        print(f"{part}: {len(record[part])} requests, {sum(map(bool, record[part].values()))} with a sentence")
    write({part: record[part] for part in PARTS if part in record})
    return 0


if __name__ == "__main__":
    sys.exit(main())
