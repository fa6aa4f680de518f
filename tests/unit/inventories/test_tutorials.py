# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventories of the tutorials and of the README, taken out of the pages and rendered; and the names they use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).resolve().parents[3]
PAGES = [TOP / "README.md", *sorted((TOP / "docs/start").glob("*.md"))]
# A block of YAML whose first line names its file: # inventories/first/hosts.yml
BLOCK = re.compile(r"^```yaml\n# (inventor\S+/\S+\.yml)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
# The hosts that each page's inventory serves, with the number of instances on all of them.
SERVED = {"README.md": (1, 4), "gpu-server.md": (1, 4), "fleet.md": (5, 14), "air-gapped.md": (1, 4), "amd.md": (1, 1),
          "ascend.md": (1, 2)}  # fmt: skip
# Where the tutorial has the reader make a manifest: what it would be like.
MANIFEST = {
    "repository": "unsloth/gpt-oss-120b-BF16",
    "revision": "0" * 40,
    "files": {"model.safetensors": {"size": 234 * 10**9, "sha256": "0" * 64}},
}


def blocks(page: Path) -> dict[str, str]:
    return dict(BLOCK.findall(page.read_text(encoding="utf-8")))


# The commands of these pages render their inventories in CI: tests/unit/docs/test_blocks.py.
LONG = {TOP / "README.md", TOP / "docs/start/fleet.md", TOP / "docs/start/amd.md"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long if page in LONG else ()) for page in PAGES if blocks(page)],
    ids=lambda page: page.name,
)
def test_the_inventory_of_a_page_can_be_planned(page, tmp_path):
    for name, text in blocks(page).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    inventory = next(tmp_path / name for name in blocks(page) if name.endswith("hosts.yml")).parent
    pinned = inventory.parent / "ascend-weights/unsloth/gpt-oss-120b-BF16.yml"
    pinned.parent.mkdir(parents=True)
    pinned.write_text(yaml.safe_dump(MANIFEST), encoding="utf-8")
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, "playbooks/render.yml"]
    done = subprocess.run(
        [*command, "-e", f"render_dir={tmp_path}/out"],
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    plans = sorted((tmp_path / "out").glob("*/*/plan.json"))
    assert (len({plan.parent.parent for plan in plans}), len(plans)) == SERVED[page.name]


def test_every_page_with_an_inventory_is_known():
    assert {page.name for page in PAGES if blocks(page)} == set(SERVED)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_playbook_and_variable_of_a_page_exists(page):
    roles = [path.name for path in (TOP / "roles").iterdir()]
    specs = [yaml.safe_load((TOP / "roles" / role / "meta/argument_specs.yml").read_text()) for role in roles]
    known = {name for spec in specs for entry in spec["argument_specs"].values() for name in entry.get("options") or {}}
    known |= {"accelerator_memory_gib", "accelerator_driver_version", "accelerator_mec_firmware"}
    playbooks = "".join(path.read_text(encoding="utf-8") for path in (TOP / "playbooks").rglob("*.yml"))
    for text in blocks(page).values():
        for name in re.findall(r"\b([a-z]+_[a-z_]+):", text):
            if name.startswith(tuple(f"{role}_" for role in roles)):
                assert name in known, f"{name} is no option of a role"
    for commands in CONSOLE.findall(page.read_text(encoding="utf-8")):
        for playbook in re.findall(r"playbooks/(\w+)\.yml|baremetal\.inference\.(\w+)", commands):
            assert (TOP / "playbooks" / f"{''.join(playbook)}.yml").is_file(), playbook
        for variable in re.findall(r"-e (\w+)=", commands):
            assert re.search(rf"\b{variable}\b", playbooks) or variable in known, variable
