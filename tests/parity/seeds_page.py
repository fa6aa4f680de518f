# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/reference/seeds.md, each command of the seed documents beside ours: python -m tests.parity.seeds_page."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.parity import seeds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "seeds.md"

PARITY = "https://github.com/baremetal-inference/baremetal.inference/blob/main/tests/parity"
HEAD = """\
# The commands of the guides

Each command of five published guides that starts a server, and the instance here that renders the same command.

"The same" means: the release's parser reads both `argv` alike, and every variable that the release reads is equal.
[`tests/parity/test_seeds.py`]({parity}/test_seeds.py) tests it: in {real} with vLLM's real parsers, in older releases
against `catalog/options/`. Where {real} are not named, they refuse the guide's command. A new site gets one of these
two (Ascend 0.30.0); the older ones are here because the guides were written for them.

The comparison ignores what a site has and a guide does not: the path of the model, its pinned revision, host, port and
served names; and whether a start forks its processes (`VLLM_WORKER_MULTIPROC_METHOD`). The collection adds
`--shutdown-timeout` and `--fail-on-environ-validation`; for the comparison they are off (`vllm_drain_timeout: 0`, which
is vLLM's default, and `args: {{fail-on-environ-validation: null}}`). `null` removes what a recipe sets because it is
better today. A host has 8 chips where no number is given.

In a checkout, this page is made from
[`tests/parity/seeds.yml`]({parity}/seeds.yml) by
`PYTHONPATH=.collections .venv/bin/python -m tests.parity.seeds_page`.
"""


def page(documents, commands):
    """Return the text of the page."""
    parts = [HEAD.format(real=" and ".join(seeds.real_releases()), parity=PARITY)]
    for name, document in documents.items():
        parts.append(f"\n## {document['title']}\n\nWritten for {document['written_for']}.\n\n")
        parts.append("| Where | The guide's command | Ours |\n|---|---|---|\n")
        parts += [row(seed) for seed in commands if seed.document == name]
    return "".join(parts)


def row(seed):
    """Return the line of one command."""
    where = seed.where if seed.hardware in seed.where else f"{seed.where} ({seed.hardware})"
    cells = (where, "<br>".join(guide(seed)), "<br>".join(answers(seed)))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def guide(seed):
    """Yield the parts of the guide's side: variables, command, file, and what does nothing."""
    for name, value in seed.env.items():
        yield code(f"{name}={value}")
    yield code(" ".join(seed.command.split()))
    for key, value in seed.config.items():
        yield code(f"{key}: {str(value).strip() if value is not True else 'true'}")
    for release in dict.fromkeys(release for ours in seed.ours for release in ours.releases):
        unread = seeds.read_variables(seed, release, seed.ours[0].accelerators[0])[1]
        if unread:
            yield f"{release} does not read {', '.join(code(name) for name in unread)}"


def answers(seed):
    """Yield our side: hardware and releases, and below them the instance."""
    for ours in seed.ours:
        hosts = ", ".join(ours.accelerators) + ("" if ours.count == 8 else f" x {ours.count}")
        facts = "".join(f", {name} {value}" for name, value in ours.facts.items())
        yield f"**{hosts}{facts}** in {', '.join(ours.releases)}:"
        yield code(flow(ours.instance))
        for name, value in ours.more_env.items():
            yield f"adds {code(f'{name}={value}')}, the released name of the guide's variable"
        for name, reason in ours.lacks.items():
            yield f"{'without' if name in seed.command else 'with'} {code(f'--{name}')}: {reason}"
        if ours.refused:
            yield f"refused: {ours.refused}"


def code(text):
    return f"`{text}`"


def flow(value):
    """Return a value as one line of YAML."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6).strip()


if __name__ == "__main__":
    PAGE.write_text(page(*seeds.load()), encoding="utf-8")
